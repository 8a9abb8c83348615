//go:build unix

package spawn

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// run supervises the job until its end. It owns all of the job's changing state:
//
//  1. While ranks, or processes that they left, still run: wait for the end of one, a signal to
//     pass on, or a reason to stop.
//  2. After the first failure the other ranks have Config.Grace to end by themselves.
//  3. Then, or for another reason to stop, all remaining processes get SIGTERM, and SIGKILL after KillAfter.
//  4. The last output is passed on.
func (j *Job) run() {
	s := state{Job: j, running: len(j.ranks)}
	logged := make(chan struct{})
	go func() {
		j.writeLog()
		close(logged)
	}()
	if j.cfg.Timeout > 0 {
		t := time.NewTimer(j.cfg.Timeout)
		defer t.Stop()
		s.timeout = t.C
	}
	tick := time.NewTicker(sweepEvery)
	tick.Stop()
	defer tick.Stop()
	by := j.launcher
	if by == nil {
		by = new(starter) // its channels are nil
	}
	for s.running > 0 || s.lingering > 0 || by.up {
		select {
		case h := <-by.hellos:
			s.hello(h)
		case e := <-by.ended:
			s.launcherEnded(e)
		case <-by.stuck:
			by.killed = true
			syscall.Kill(-by.proc.Pid, syscall.SIGKILL)
		case <-s.suspected:
			s.suspected = nil
			if s.running > 0 || len(s.suspects) > 0 {
				s.windDown()
			}
		case <-s.graceOver:
			s.terminate()
		case e := <-j.ended:
			s.rankEnded(e)
		case sig := <-j.cfg.Signals:
			s.pass(sig)
		case why := <-j.stop:
			s.end(why)
		case <-s.timeout:
			s.end(stopping{
				StatusTimeout, fmt.Errorf("the job did not end within %v", j.cfg.Timeout),
				fmt.Sprintf("the job did not end within %v (--timeout); ending its %s", j.cfg.Timeout, count(s.running, "rank")),
			})
		case <-s.kill:
			s.killAll()
		case <-s.stuck:
			s.giveUp()
		case <-tick.C:
			s.sweep()
		case <-s.look:
			s.lookStopped()
		}
		switch ticks := s.lingering > 0; {
		case ticks && !s.ticking:
			tick.Reset(sweepEvery)
		case !ticks:
			tick.Stop()
		}
		s.ticking = s.lingering > 0
	}
	if j.launcher != nil {
		s.conclude()
	}
	if j.drain() {
		select {
		case why := <-j.stop: // the last output could not be written
			s.end(why)
		default:
		}
		close(j.logs)
		j.await(logged)
	}
	close(j.done)
}

// state is the changing state of a job, owned by run.
type state struct {
	*Job
	running   int // ranks
	lingering int // groups of ranks that have ended
	ticking   bool
	ending    bool
	began     time.Time        // when the job began to end, grace time included
	graceOver <-chan time.Time // when the remaining ranks are terminated
	asked     time.Time        // when a signal that requests the end was first passed on
	request   syscall.Signal   // that signal
	timeout   <-chan time.Time
	kill      <-chan time.Time
	stuck     <-chan time.Time

	// suspects are ranks that were killed, perhaps by the launcher because of another
	// rank. suspected is when the wait for the launcher's report ends.
	suspects  []exit
	suspected <-chan time.Time

	succeeded bool  // a rank has ended with status 0
	lost      *exit // the first failure after which the job continued

	look  <-chan time.Time // when to check the stopped ranks
	alone time.Time        // since when only stopped ranks are left
}

// rankEnded handles the end of a rank. If the rank failed, it begins to end the others.
func (s *state) rankEnded(e exit) {
	s.gone(e.rank)
	if e.unknown {
		s.ranks[e.rank].unread = e.at
		return
	}
	s.ranks[e.rank].unread = time.Time{}
	if s.cfg.Part != nil {
		s.reportEnd(e)
		return
	}
	if s.ranks[e.rank].outlived {
		return
	}
	status, _ := describe(e)
	if status == 0 && !s.succeeded {
		s.succeeded = true
		s.noteStopped()
	}
	if status != 0 && s.goesOn(e) {
		return
	}
	if status == 0 || s.result.First >= 0 || s.result.Err != nil {
		return
	}
	if s.launcher != nil && !s.blamed(e) {
		return
	}
	s.blame(e)
	s.windDown()
}

// gone records that a rank's process has ended.
func (s *state) gone(rank int) {
	r := s.ranks[rank]
	if !r.running {
		return
	}
	r.running = false
	s.running--
	if r.pgid == 0 { // it never started
		return
	}
	if groupAlive(r.pgid) {
		r.linger, r.since = true, time.Now()
		s.lingering++
		switch {
		case s.ending && s.kill == nil:
			syscall.Kill(-r.pgid, syscall.SIGKILL)
		case s.ending:
			syscall.Kill(-r.pgid, syscall.SIGTERM)
		}
	} else {
		s.cfg.Keeper.GroupGone(r.pgid)
	}
}

// goesOn reports whether the job continues after a rank's failure, and logs it. Until a rank has ended with
// status 0, the others are expected to recover from a failure: it gives the job its status only if no rank
// succeeds. A rank that fails later gives the job its status.
func (s *state) goesOn(e exit) bool {
	if s.cfg.Resilient == nil || s.launcher != nil && !s.cfg.Launch.GoesOn || !s.began.IsZero() || !s.asked.IsZero() || !s.cfg.Resilient() {
		return false
	}
	if _, _, aborted := s.aborted(); aborted {
		return false
	}
	if s.lost == nil {
		s.lost = &e
	}
	_, how := describe(e)
	text := fmt.Sprintf("rank %d %s after %s", e.rank, how, seconds(e.at.Sub(s.begun)))
	first := *s.lost
	switch {
	case s.running > 0:
		text += "; the job goes on with " + count(s.running, "rank")
	case !s.succeeded:
		text += "; no rank is left"
	}
	if s.succeeded {
		first = e
	}
	if s.result.First < 0 && s.result.Err == nil && (s.succeeded || s.running == 0) {
		status, _ := describe(first)
		s.result.First, s.result.Status = first.rank, status
	}
	s.log(message{text, s.ranks[e.rank].drained})
	return true
}

// blame gives the job the status of a rank. After an Abort it is the rank that called Abort, even if
// another one has ended before because of it.
func (s *state) blame(e exit) {
	status, how := describe(e)
	rank := e.rank
	if r, code, ok := s.aborted(); ok {
		rank, status, how = r, code, fmt.Sprintf("aborted the job with code %d", code)
		s.result.Aborted = true
	}
	s.result.First, s.result.Status = rank, status
	text := fmt.Sprintf("rank %d %s after %s", rank, how, seconds(e.at.Sub(s.begun)))
	if s.running > 0 {
		text += "; ending the others"
	}
	s.log(message{text, s.ranks[e.rank].drained}) // after the rank's last output
}

// aborted returns the rank that has aborted the job, and its status.
func (s *state) aborted() (rank, status int, ok bool) {
	if s.cfg.Aborted == nil {
		return 0, 0, false
	}
	return s.cfg.Aborted()
}

// end begins the end of the job for a reason other than a rank's failure.
func (s *state) end(why stopping) {
	if s.ending {
		return
	}
	if s.result.First < 0 && s.result.Err == nil {
		s.result.Status, s.result.Err = why.status, why.err
	}
	if why.log != "" {
		s.logf("%s", why.log)
	}
	s.terminate()
}

// windDown gives the ranks Config.Grace to end by themselves before they are terminated.
func (s *state) windDown() {
	switch {
	case s.cfg.Grace <= 0:
		s.terminate()
	case s.began.IsZero():
		s.began = time.Now()
		s.graceOver = time.After(s.cfg.Grace)
	}
}

// terminate sends SIGTERM to all remaining processes.
func (s *state) terminate() {
	if s.ending {
		return
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.ending = true
	s.timeout, s.suspected, s.graceOver = nil, nil, nil
	s.kill = time.After(KillAfter)
	s.stopLauncher()
	s.signal(syscall.SIGTERM)
	s.signal(syscall.SIGCONT) // a stopped process handles SIGTERM only when it is continued
}

// killAll kills the processes that SIGTERM did not end.
func (s *state) killAll() {
	var names []string
	for i, r := range s.ranks {
		if r.running && r.pgid != 0 {
			names = append(names, fmt.Sprint(s.number(i)))
		}
	}
	s.signal(syscall.SIGKILL)
	if len(names) > 0 {
		s.logf("%s %s did not end within %v of SIGTERM: killed", plural(len(names), "rank"), strings.Join(names, ", "), KillAfter)
	}
	s.kill, s.stuck = nil, time.After(stuckLimit)
	s.killLauncher()
}

// giveUp stops waiting for processes that SIGKILL did not end.
func (s *state) giveUp() {
	for i, r := range s.ranks {
		if r.running && r.pgid != 0 {
			s.logf("rank %d (process %d) is stuck in the kernel and cannot be ended; leaving it", s.number(i), r.pgid)
		}
	}
	s.running, s.lingering = 0, 0
}

// signal sends a signal to every process group that may not be empty.
func (s *state) signal(sig syscall.Signal) {
	for _, r := range s.ranks {
		if r.pgid != 0 && (r.running || r.linger) {
			syscall.Kill(-r.pgid, sig)
		}
	}
}

// pass passes a signal on to all ranks. A second request to end begins the end of the
// job, however the ranks handle it.
func (s *state) pass(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok || n == syscall.SIGPIPE { // the failed write is reported instead
		return
	}
	s.signal(n)
	if asksForEnd(n) {
		s.askLauncher(n)
	}
	switch {
	case s.cfg.Part != nil: // the launcher of the larger job decides what follows
	case n == syscall.SIGTSTP:
		// SIGTSTP stops the ranks by default. The launcher stops too, as its shell expects.
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case !asksForEnd(n):
	case s.asked.IsZero():
		s.asked, s.request = time.Now(), n
	case time.Since(s.asked) > sameRequest:
		s.end(stopping{128 + int(n), fmt.Errorf("asked twice to end (%v)", n), "second request to end: ending the ranks"})
	}
}

func asksForEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// sweep ends the processes that ranks left in their groups: SIGTERM after lingerLimit, or
// at once if the job is ending, and SIGKILL after KillAfter.
func (s *state) sweep() {
	live, known := liveGroups()
	for i, r := range s.ranks {
		if !r.linger {
			continue
		}
		waited := time.Since(r.since)
		gone := syscall.Kill(-r.pgid, 0) == syscall.ESRCH || known && !live[r.pgid]
		if gone || waited > lingerLimit+KillAfter+stuckLimit {
			r.linger = false
			s.lingering--
			s.cfg.Keeper.GroupGone(r.pgid)
			continue
		}
		switch {
		case s.ending: // killAll ends them
		case waited > lingerLimit+KillAfter:
			syscall.Kill(-r.pgid, syscall.SIGKILL)
		case waited > lingerLimit && !r.asked:
			r.asked = true
			if s.began.IsZero() {
				s.logf("rank %d left processes behind; ending them", s.number(i))
			}
			syscall.Kill(-r.pgid, syscall.SIGTERM)
			syscall.Kill(-r.pgid, syscall.SIGCONT)
		}
	}
}

// drain waits until the last output has been written, however slow the reader is. It
// does not wait for a process outside its rank's group that holds a pipe open and
// writes nothing.
func (j *Job) drain() bool {
	for _, r := range j.ranks {
		for _, p := range r.pipes {
			p.hurry()
		}
	}
	for _, r := range j.ranks {
		if j.await(r.drained) != 0 {
			return false
		}
	}
	return true
}

// await waits until c is closed and returns 0, or until a signal that requests the end,
// and returns that.
func (j *Job) await(c <-chan struct{}) syscall.Signal {
	for {
		select {
		case <-c:
			return 0
		case sig := <-j.cfg.Signals:
			if n, _ := sig.(syscall.Signal); asksForEnd(sig) {
				return n
			}
		}
	}
}

// groupAlive reports whether a process group has processes. The group's number cannot
// belong to another group: it is checked right after the leader was reaped, and then
// regularly.
func groupAlive(pgid int) bool {
	if syscall.Kill(-pgid, 0) == syscall.ESRCH {
		return false
	}
	live, ok := liveGroups()
	return !ok || live[pgid]
}
