package sched

import "time"

// ListenFor sets how long ranks listen for reports, and returns what restores it.
func ListenFor(d time.Duration) (restore func()) {
	before := reportTime
	reportTime = d
	return func() { reportTime = before }
}
