//go:build unix

package spawn

import (
	"syscall"
	"time"
)

// A rank that was stopped, and that the others took for lost and finished without, would keep the job
// for ever: nobody continues it. So in a job that goes on, ranks that are stopped when the first one
// succeeds, and still are when all others have ended, are ended, and count as lost. Who is stopped
// later may have something to finish, and is waited for as ever.

// lookEvery is the time between looks at ranks that are stopped.
const lookEvery = 100 * time.Millisecond

// noteStopped is called when the first rank has ended with 0.
func (s *state) noteStopped() {
	if s.cfg.Resilient == nil || s.launcher != nil || s.ending || !s.cfg.Resilient() {
		return
	}
	for _, r := range s.ranks {
		if r.stopped = r.running && isStopped(r.pgid); r.stopped {
			s.look = time.After(lookEvery)
		}
	}
}

// lookStopped looks whether only those are left that have been stopped since noteStopped.
func (s *state) lookStopped() {
	s.look = nil
	left := 0
	for _, r := range s.ranks {
		if r.stopped = r.stopped && r.running && isStopped(r.pgid); r.stopped {
			left++
		}
	}
	switch {
	case left == 0 || s.ending:
		return
	case left < s.running:
		s.alone = time.Time{}
	case s.alone.IsZero():
		s.alone = time.Now()
	case time.Since(s.alone) > lingerLimit:
		for i, r := range s.ranks {
			if r.stopped {
				s.logf("rank %d is stopped, and all others have ended; ending it", i)
				r.outlived = true
				syscall.Kill(-r.pgid, syscall.SIGKILL)
			}
		}
		return
	}
	s.look = time.After(lookEvery)
}
