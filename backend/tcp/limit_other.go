//go:build !linux

package tcp

import "time"

// sockLimit does nothing here: heartbeats find what it would.
func sockLimit(int, time.Duration) {}

// sockUnsent is not known here.
func sockUnsent(int) int { return 0 }

// sockWithinHost does nothing here.
func sockWithinHost(int) {}
