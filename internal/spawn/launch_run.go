//go:build unix

package spawn

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// blamed decides whether a rank that failed under a launcher is the one to blame.
// A launcher ends the other ranks when one fails, and the first end that is seen
// may be its doing: a rank that was killed as launchers kill is blamed only if the
// launcher, which knows, does not say otherwise (conclude).
func (s *state) blamed(e exit) bool {
	if !s.began.IsZero() && e.at.After(s.began) {
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

// launcherEnded notes the launcher's end. Ranks it has not started will not come.
func (s *state) launcherEnded(e exit) {
	l := s.launcher
	l.up, l.ending = false, e
	l.listen.Close()
	s.cfg.Keeper.GroupGone(l.proc.Pid)
	for i, r := range s.ranks {
		if r.pgid == 0 {
			close(r.drained)
		}
		if r.pgid == 0 || l.follower == nil {
			s.gone(i)
		}
	}
	if s.running > 0 && s.began.IsZero() { // it has failed, or left them, or their ends are seen next
		s.suspected = time.After(suspectLimit)
	}
	l.output.hurry()
}

// conclude settles the job's status once launcher and ranks have ended.
func (s *state) conclude() {
	l, name := s.launcher, s.cfg.Launch.Name
	s.readEnds()
	l.follower.close()
	for following := true; following; {
		select {
		case <-s.ended: // it changes nothing any more
		case <-l.followed:
			following = false
		}
	}
	asked := s.await(l.passed)
	status, how := describe(l.ending)
	if s.result.First >= 0 || s.result.Err != nil || status == 0 && len(s.suspects) == 0 {
		return
	}
	if s.lost != nil && s.succeeded { // what the launcher makes of the loss is not what the ranks that were left have made of it
		return
	}
	if asked != 0 { // nobody wants to know whose failure it was
		s.result.Status, s.result.Err = 128+int(asked), fmt.Errorf("asked to end (%v) after %s %s", asked, name, how)
		return
	}
	if len(s.suspects) > 0 {
		// How they ended is known in the order in which the launcher has asked, and
		// Hydra blames the first of that order; this package has seen who was first.
		e := slices.MinFunc(s.suspects, func(a, b exit) int { return a.at.Compare(b.at) })
		own := int(e.wait.Signal())
		if status == 0 || status == own || status == 128+own || l.killed || s.cfg.Launch.Broken(l.lines) {
			s.blame(e)
			return
		}
	}
	first, sig := s.cfg.Launch.Blame(l.lines)
	if sig > 0 {
		status, how = 128+sig, fmt.Sprintf("was killed by signal %d (%v)", sig, syscall.Signal(sig))
	}
	s.result.Status = status
	after := seconds(l.ending.at.Sub(s.begun))
	switch {
	case first >= 0 && first < len(s.ranks):
		s.result.First = first
		if sig == 0 {
			how = fmt.Sprintf("exited with status %d", status)
		}
		s.logf("rank %d %s after %s, as %s reports", first, how, after, name)
	case sig > 0:
		s.result.Err = fmt.Errorf("a rank %s", how)
		s.logf("a rank %s after %s, as %s reports", how, after, name)
	default:
		s.result.Err = fmt.Errorf("%s %s", name, how)
		s.logf("%s %s after %s", name, how, after)
	}
}

// readEnds asks how those ranks have ended of which that was not known when they did. It is by now: the
// launcher has waited for them, and the news of that may only not have been heard before the launcher's own end.
func (s *state) readEnds() {
	var ends []exit
	for i, r := range s.ranks {
		if r.unread.IsZero() {
			continue
		}
		if wait, known := s.launcher.follower.how(i); known {
			ends = append(ends, exit{rank: i, wait: wait, at: r.unread})
		}
	}
	slices.SortFunc(ends, func(a, b exit) int { return a.at.Compare(b.at) })
	for _, e := range ends {
		s.rankEnded(e)
	}
}

// askLauncher passes a request to end on to the launcher, where there is no rank
// of which the end would be its own.
func (s *state) askLauncher(n syscall.Signal) {
	l := s.launcher
	if l != nil && l.up && (s.running == 0 || slices.ContainsFunc(s.ranks, func(r *rank) bool { return r.pgid == 0 })) {
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

// killLauncher ends the launcher if it does not end by itself soon.
func (s *state) killLauncher() {
	if s.launcher != nil && s.launcher.up {
		s.launcher.stuck = time.After(closeLimit)
	}
}
