package tcp

import "time"

// limit does nothing here: heartbeats find what it would.
func (socket) limit(time.Duration) {}

// unsent is not known here.
func (socket) unsent() int { return 0 }

// withinHost does nothing here.
func (socket) withinHost() {}
