//go:build unix

package spawn

import (
	"syscall"
	"time"
)

// If a rank was stopped, and the others declared it lost and finished without it, the job would never end:
// no process continues the rank. So in a job that goes on after losses, ranks that are stopped when the first rank succeeds,
// and still are when all others have ended, are killed and count as lost. A rank that is stopped later may
// have work to finish, and the job waits for it.

// lookEvery is the time between checks of the stopped ranks.
const lookEvery = 100 * time.Millisecond

// noteStopped records which ranks are stopped when the first rank has ended with status 0. For ranks of a larger job, its launcher
// decides whether that matters.
func (s *state) noteStopped() {
	goesOn := s.cfg.Part != nil || s.cfg.Generations != nil || s.m.Resilient || ResilientIn(s.cfg.Folder)
	if s.last != 0 || !goesOn {
		return
	}
	for _, r := range s.ranks {
		if r.phase == runs && isStopped(r.pgid) {
			r.phase = stopped
			s.look = time.After(lookEvery)
		}
	}
}

// lookStopped ends the ranks that have been stopped since noteStopped once only these have been left for lingerLimit. For ranks of
// a larger job, it reports whether that is so.
func (s *state) lookStopped() {
	s.look = nil
	left := 0
	for _, r := range s.ranks {
		if r.phase == stopped && !isStopped(r.pgid) {
			r.phase = runs
		}
		if r.phase == stopped {
			left++
		}
	}
	alone := left > 0 && left == s.m.Running && s.last == 0
	switch {
	case !alone:
		s.alone = time.Time{}
	case s.alone.IsZero():
		s.alone = time.Now()
	}
	alone = alone && time.Since(s.alone) > lingerLimit
	switch {
	case s.cfg.Part == nil && alone:
		s.endStopped()
	case s.cfg.Part != nil && alone != s.reported:
		s.reported = alone
		s.cfg.Part.Stopped(alone)
	}
	if left > 0 && s.last == 0 || s.reported {
		s.look = time.After(lookEvery)
	}
}

// endStopped kills the ranks that have been stopped since noteStopped.
func (s *state) endStopped() {
	for _, r := range s.ranks {
		if r.phase == stopped && isStopped(r.pgid) {
			s.logf("rank %d is stopped, and all others have ended; ending it", r.number)
			r.phase = outlived
			syscall.Kill(-r.pgid, syscall.SIGKILL)
		}
	}
}
