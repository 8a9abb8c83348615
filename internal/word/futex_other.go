//go:build !linux

package word

import (
	"sync/atomic"
	"time"
)

// futexWait sleeps for a moment. The caller looks again.
func futexWait(*atomic.Uint32, uint32, time.Duration) { time.Sleep(50 * time.Microsecond) }

func futexWake(*atomic.Uint32, int) {}
