package tcp

import "time"

// Limit does nothing here: heartbeats find what it would.
func (socket) Limit(time.Duration) {}

// Unsent is not known here.
func (socket) Unsent() int { return 0 }

// withinHost does nothing here.
func (socket) withinHost() {}
