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
// one of those. A rank killed by SIGKILL or SIGTERM is therefore only a suspect, until
// the launcher's own report is available (conclude).
func (s *state) blamed(e exit) bool {
	if s.m.Phase != job.Runs && e.at.After(s.m.Began) {
		return false // it ended because the job was ending
	}
	if e.err == nil && e.wait.Signaled() && (e.wait.Signal() == syscall.SIGKILL || e.wait.Signal() == syscall.SIGTERM) {
		if len(s.suspects) == 0 {
			s.suspected = time.After(suspectLimit)
		}
		s.suspects = append(s.suspects, e)
		return false
	}
	return true
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
	if s.m.Running > 0 && s.m.Phase == job.Runs { // it failed or left its ranks, or the ranks' ends are reported next
		s.suspected = time.After(suspectLimit)
	}
	l.output.hurry()
}

// conclude determines the job's status once launcher and ranks have ended.
func (s *state) conclude() {
	l, name := s.launcher, s.cfg.Launch.Name
	s.readEnds()
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
	if never >= 0 && status == 0 && !s.m.Decided {
		s.m.Status, s.m.Err = 1, fmt.Errorf("%s ended without an error, but has not started rank %d", name, never)
		s.logf("%v", s.m.Err)
		return
	}
	if s.m.Decided || status == 0 && len(s.suspects) == 0 {
		return
	}
	if asked != 0 { // the user asked for the end: the rank does not matter
		s.m.Status, s.m.Err = 128+int(asked), fmt.Errorf("asked to end (%v) after %s %s", asked, name, how)
		return
	}
	if len(s.suspects) > 0 {
		// The launcher waits for ranks in its own order, and Hydra blames the first of
		// that order. This package has recorded which rank really ended first.
		e := slices.MinFunc(s.suspects, func(a, b exit) int { return a.at.Compare(b.at) })
		own := int(e.wait.Signal())
		if status == 0 || status == own || status == 128+own || l.killed || s.cfg.Launch.Broken(l.lines) {
			s.m.Ended(s.exit(e))
			return
		}
	}
	first, sig := s.cfg.Launch.Blame(l.lines)
	if sig > 0 {
		status, how = 128+sig, fmt.Sprintf("was killed by signal %d (%v)", sig, syscall.Signal(sig))
	}
	s.m.Status = status
	after := job.Seconds(l.ending.at.Sub(s.begun))
	switch {
	case first >= 0 && first < len(s.ranks):
		s.m.First = first
		if sig == 0 {
			how = fmt.Sprintf("exited with status %d", status)
		}
		s.logf("%s %s after %s, as %s reports", s.cfg.Programs.Name(first), how, after, name)
	case sig > 0:
		s.m.Err = fmt.Errorf("a rank %s", how)
		s.logf("a rank %s after %s, as %s reports", how, after, name)
	default:
		s.m.Err = fmt.Errorf("%s %s", name, how)
		s.logf("%s %s after %s", name, how, after)
	}
}

// readEnds reads the status of ranks whose status was not available when they ended. It is available now,
// because the launcher has waited for them; the watch's event may have come after the launcher's own end.
func (s *state) readEnds() {
	var ends []exit
	for i, r := range s.ranks {
		if r.unread.IsZero() {
			continue
		}
		if wait, known := s.watch.how(i); known {
			ends = append(ends, exit{rank: i, wait: wait, at: r.unread})
		}
	}
	slices.SortFunc(ends, func(a, b exit) int { return a.at.Compare(b.at) })
	for _, e := range ends {
		s.rankEnded(e)
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

// stopLauncher is part of terminate.
func (s *state) stopLauncher() {
	if s.launcher != nil {
		s.launcher.quiet.Store(true)
		s.askLauncher(syscall.SIGTERM)
	}
}

// killLauncher kills the launcher if it does not end by itself within closeLimit.
func (s *state) killLauncher() {
	if s.launcher != nil && s.launcher.up {
		s.launcher.stuck = time.After(closeLimit)
	}
}
