//go:build unix

package spawn

import (
	"syscall"
	"time"
)

// If a rank was stopped, and the others declared it lost and finished without it, the job would never end:
// no process continues the rank. So in a resilient job, ranks that are stopped when the first rank succeeds,
// and still are when all others have ended, are killed and count as lost. A rank that is stopped later may
// have work to finish, and the job waits for it.

// lookEvery is the time between checks of the stopped ranks.
const lookEvery = 100 * time.Millisecond

// noteStopped records which ranks are stopped when the first rank has ended with status 0.
func (s *state) noteStopped() {
	if s.cfg.Resilient == nil || s.launcher != nil || s.last != 0 || !s.cfg.Resilient() {
		return
	}
	for _, r := range s.ranks {
		if r.stopped = r.running && isStopped(r.pgid); r.stopped {
			s.look = time.After(lookEvery)
		}
	}
}

// lookStopped ends the ranks that have been stopped since noteStopped once only these are left.
func (s *state) lookStopped() {
	s.look = nil
	left := 0
	for _, r := range s.ranks {
		if r.stopped = r.stopped && r.running && isStopped(r.pgid); r.stopped {
			left++
		}
	}
	switch {
	case left == 0 || s.last != 0:
		return
	case left < s.m.Running:
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
