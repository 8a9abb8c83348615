//go:build unix

package spawn

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
)

// blamed decides whether a rank that failed under a launcher caused the job's failure.
// A launcher ends the other ranks when one fails, so the first end that is seen may be
// one of those. A rank killed by SIGKILL or SIGTERM is therefore only a suspect, and so is
// one that fails after the first suspect. The launcher's status decides (conclude).
func (s *state) blamed(e exit) bool {
	later := s.m.Phase != job.Runs && e.at.After(s.m.Began)
	killed := e.err == nil && e.wait.Signaled() && (e.wait.Signal() == syscall.SIGKILL || e.wait.Signal() == syscall.SIGTERM)
	switch {
	case later && s.last != 0: // it ended because the job was ending
	case later || killed:
		s.suspects = append(s.suspects, e)
		s.m.WindDown()
	default:
		return true
	}
	return false
}

// launcherEnded handles the launcher's end. Ranks that it has not started never start.
func (s *state) launcherEnded(e exit) {
	l := s.launcher
	l.up, l.ending = false, e
	l.listen.Close()
	s.cfg.Keeper.GroupGone(l.proc.Pid)
	for i, r := range s.ranks {
		if r.pgid == 0 {
			close(r.drained)
		}
		if r.pgid == 0 || s.watch == nil {
			s.gone(i)
		}
	}
	if s.m.Running > 0 { // it failed, or left its ranks
		s.m.WindDown()
	}
	l.output.hurry()
}

// conclude determines the job's status once launcher and ranks have ended, if that of a rank does not:
//
//  1. The launcher has started too few ranks, or the user has asked for the end meanwhile.
//  2. The first suspect with the launcher's status is to blame. Hydra gives a signal's number as its status.
//  3. If the launcher's status says nothing, because it has not noticed the failure, has failed itself (Hydra's
//     is 255 then), or was killed, as when it hung, the first suspect is.
//  4. Otherwise the launcher's status is the job's, as after MPI_Abort.
func (s *state) conclude() {
	l, name := s.launcher, s.cfg.Launch.Name
	s.watch.close()
	for following := true; following; {
		select {
		case <-s.ended: // too late to change anything
		case <-l.followed:
			following = false
		}
	}
	asked := s.await(l.passed)
	status, how := describe(l.ending)
	never := slices.IndexFunc(s.ranks, func(r *rank) bool { return r.pgid == 0 })
	slices.SortFunc(s.suspects, func(a, b exit) int { return a.at.Compare(b.at) })
	first := slices.IndexFunc(s.suspects, func(e exit) bool {
		own, _ := describe(e)
		return status == own || e.wait.Signaled() && status == int(e.wait.Signal())
	})
	switch {
	case s.m.Decided || status == 0 && never < 0 && len(s.suspects) == 0:
	case never >= 0 && status == 0:
		s.m.Status, s.m.Err = 1, fmt.Errorf("%s ended without an error, but has not started rank %d", name, never)
		s.logf("%v", s.m.Err)
	case asked != 0: // the rank does not matter
		s.m.Status, s.m.Err = 128+int(asked), fmt.Errorf("asked to end (%v) after %s %s", asked, name, how)
	case first >= 0:
		s.m.Ended(s.exit(s.suspects[first]))
	case len(s.suspects) > 0 && (status == 0 || status == 255 || l.ending.wait.Signaled()):
		s.m.Ended(s.exit(s.suspects[0]))
	default:
		s.m.Status, s.m.Err = status, fmt.Errorf("%s %s", name, how)
		s.logf("%s %s after %s", name, how, job.Seconds(l.ending.at.Sub(s.begun)))
	}
}

// askLauncher passes a request to end on to the launcher if some ranks have not been
// started, or none is left. Otherwise the launcher ends when its ranks do.
func (s *state) askLauncher(n syscall.Signal) {
	l := s.launcher
	if l != nil && l.up && (s.m.Running == 0 || slices.ContainsFunc(s.ranks, func(r *rank) bool { return r.pgid == 0 })) {
		syscall.Kill(-l.proc.Pid, n)
	}
}

// killLauncher kills the launcher if it does not end by itself within closeLimit.
func (s *state) killLauncher() {
	if s.launcher != nil && s.launcher.up {
		s.launcher.stuck = time.After(closeLimit)
	}
}
