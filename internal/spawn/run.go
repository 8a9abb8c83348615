//go:build unix

package spawn

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
)

// run supervises the job until its end, or ends the ranks that were started before startErr. It owns all of
// the job's changing state. internal/job decides what follows from an event:
//
//  1. While ranks, or processes that they left, still run: wait for the end of one, a signal to
//     pass on, or a reason to stop.
//  2. Pass the event on, and do what that package asks for: terminate and kill.
//  3. The last output is passed on.
func (j *Job) run(startErr error) {
	log := job.NewLog(len(j.ranks), func(text string) {
		if j.cfg.Part != nil {
			j.cfg.Part.Log(text)
		} else {
			j.out.say("cohort: " + text + "\n")
		}
	})
	s := state{Job: j, unstarted: startErr != nil, oomKills: j.oomKills}
	s.m = job.New(job.Config{
		Now: time.Now, Ranks: len(j.ranks), Resilient: j.cfg.Resilient, Timeout: j.cfg.Timeout, Grace: j.cfg.Grace, KillAfter: KillAfter, GiveUpAfter: stuckLimit,
		Say: log.Say, Terminate: s.terminate, Kill: s.kill, GiveUp: s.giveUp,
	})
	if startErr != nil {
		s.m.Abandon(startErr)
	}
	s.begin()
	tick := time.NewTicker(sweepEvery)
	tick.Stop()
	defer tick.Stop()
	by := j.launcher
	if by == nil {
		by = new(starter) // its channels are nil
	}
	for s.m.Running > 0 || s.lingering > 0 || by.up || s.held() {
		select {
		case h := <-by.hellos:
			s.hello(h)
		case <-by.stuck:
			syscall.Kill(-by.proc.Pid, syscall.SIGKILL)
		case e := <-j.ended:
			if e.rank == ofLauncher {
				s.launcherEnded(e)
			} else {
				s.rankEnded(e)
			}
		case sig := <-j.cfg.Signals:
			s.signaled(sig)
		case <-s.relay.due:
			s.relay.release(s.cfg.Keeper.received(answerLimit), s.pass)
		case <-s.m.Wait():
			s.m.Tick()
		case <-tick.C:
			s.sweep()
		case <-s.look:
			s.lookStopped()
		case <-j.wake:
			s.handleRequests()
		case <-s.elastic.Timer():
			s.elastic.Tick()
		}
		if s.elastic != nil {
			s.elastic.Settle()
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
	if j.cfg.Part != nil {
		j.cfg.Part.Drains()
	}
	if sig := s.drain(); sig != 0 {
		s.m.LostOutput(sig)
	} else {
		s.handleRequests() // the last output may not have been written
		s.await(log.Close())
	}
	j.result = s.m.Result
	j.watch.close()
	j.generations.close()
	close(j.done)
}

// state is the changing state of a job, owned by run.
type state struct {
	*Job
	m         *job.Machine
	lingering int // groups of ranks that have ended
	ticking   bool
	unstarted bool           // a rank could not be started
	last      syscall.Signal // the last signal that was to end all processes: SIGTERM, then SIGKILL
	request   syscall.Signal // the last one that asked the ranks to end and has reached them
	relay     relay

	suspects []exit // ranks that may have been killed by the launcher because of another rank, or have failed because of that

	look     <-chan time.Time // when to check the stopped ranks
	alone    time.Time        // since when only stopped ranks are left
	reported bool             // that has been reported to the larger job

	elastic *ElasticJob // decides which ranks are replaced; nil: none are, or the launcher of the larger job does

	oomKills int64 // those that happened before the job or have explained the end of a rank
}

func (s *state) rankEnded(e exit) {
	r := s.ranks[e.rank]
	wasOutlived := r.phase == outlived
	s.gone(e.rank)
	if e.unknown {
		return
	}
	x := s.exit(e)
	x.Outlived = wasOutlived
	if s.generations != nil {
		s.generations.unlink(r.id)
	}
	if s.elastic != nil && s.elastic.Ended(&x) {
		return
	}
	switch {
	case s.cfg.Part != nil:
		if !s.unstarted { // else Start reports why
			s.cfg.Part.Ended(x)
		}
		return
	case x.Outlived:
	case x.Status == 0:
		if !s.m.Succeeded {
			s.noteStopped()
		}
	case s.launcher != nil && !s.m.Decided && !s.blamed(e):
		return
	}
	s.m.Ended(x)
}

// exit describes the end of a rank. After an Abort it is that of the rank of this node that called it. If that rank only reacted
// to the failure of another one, a rank that failed by itself keeps its own description, and is the one to blame. The Abort of
// the rank explains no later ends: the job has been told of it.
func (s *state) exit(e exit) job.Exit {
	r := s.ranks[e.rank]
	x := job.Exit{Rank: r.number, ID: r.id, After: job.Seconds(e.at.Sub(s.begun)), Drained: r.drained}
	x.Status, x.How = describe(e)
	x.How += s.outOfMemory(e)
	x.Open = x.Status == 0 && openIn(s.cfg.Folder, r.id)
	if s.cfg.Part == nil { // else the launcher of the larger job knows whether that has been asked to end
		s.m.Judge(&x)
	}
	x.GoesOn = ResilientIn(s.cfg.Folder)
	if x.Status != 0 || x.Open {
		x.Follows = followsIn(s.cfg.Folder, r.id)
		if by, code, reacts := s.abortFor(r, x.Follows); by != nil {
			x.Rank, x.Status, x.How = by.number, code, fmt.Sprintf("aborted the job with code %d", code)
			x.Aborted, x.Follows, x.Open = true, reacts, false
		}
		x.Name = s.cfg.Programs.Name(x.Rank)
	}
	if s.cfg.Folder != "" {
		_ = os.Remove(abortNote(s.cfg.Folder, r.id))
	}
	return x
}

// abortFor returns the Abort that explains the end of r: one that reacted to nothing, or if r has failed because of another rank,
// its own or any other.
func (s *state) abortFor(r *rank, follows bool) (by *rank, code int, reacts bool) {
	for _, p := range append([]*rank{r}, s.ranks...) {
		c, late, ok := abortIn(s.cfg.Folder, p.id)
		if ok && !late {
			return p, c, false
		}
		if ok && follows && by == nil {
			by, code, reacts = p, c, late
		}
	}
	return by, code, reacts
}

// gone records that a rank's process has ended.
func (s *state) gone(rank int) {
	r := s.ranks[rank]
	if !r.running() {
		return
	}
	r.phase = gone
	s.m.Running--
	if r.pgid == 0 { // it never started
		return
	}
	if groupAlive(r.pgid) {
		r.phase, r.since = lingers, time.Now()
		s.lingering++
		if s.last != 0 {
			syscall.Kill(-r.pgid, s.last)
		}
	} else {
		s.cfg.Keeper.GroupGone(r.pgid)
	}
}

// terminate sends SIGTERM to all remaining processes.
func (s *state) terminate() {
	if len(s.suspects) == 0 { // else the launcher's own status decides (conclude); kill ends it if it hangs
		s.askLauncher(syscall.SIGTERM)
	}
	noteEnding(s.cfg.Folder)
	s.signalAll(syscall.SIGTERM)
	s.signal(syscall.SIGCONT) // a stopped process handles SIGTERM only when it is continued
}

// kill kills the processes that SIGTERM did not end.
func (s *state) kill() {
	var names []string
	for _, r := range s.ranks {
		if r.running() && r.pgid != 0 {
			names = append(names, fmt.Sprint(r.number))
		}
	}
	if len(names) > 0 && s.last == syscall.SIGTERM {
		s.logf("%s %s did not end within %v of SIGTERM: killed", job.Plural(len(names), "rank"), strings.Join(names, ", "), KillAfter)
	}
	s.signalAll(syscall.SIGKILL)
	s.killLauncher()
}

func (s *state) logf(format string, args ...any) { s.m.Say(fmt.Sprintf(format, args...), nil) }

// signalAll sends all remaining processes a signal that ends them, as gone does later for processes that are left.
func (s *state) signalAll(sig syscall.Signal) {
	s.last = sig
	s.signal(sig)
}

// giveUp stops waiting for processes that SIGKILL did not end.
func (s *state) giveUp() {
	for _, r := range s.ranks {
		if r.running() && r.pgid != 0 {
			s.logf("rank %d (process %d) is stuck in the kernel and cannot be ended; leaving it", r.number, r.pgid)
		}
	}
	s.m.Running, s.lingering = 0, 0
}

// signal sends a signal to every process group that may not be empty.
func (s *state) signal(sig syscall.Signal) {
	for _, r := range s.ranks {
		if r.pgid != 0 && r.phase != gone {
			syscall.Kill(-r.pgid, sig)
		}
	}
}

// sweep ends the processes that ranks left in their groups: SIGTERM after lingerLimit, or
// at once if the job is ending, and SIGKILL after KillAfter.
func (s *state) sweep() {
	live, known := liveGroups()
	for _, r := range s.ranks {
		if r.phase != lingers && r.phase != asked {
			continue
		}
		waited := time.Since(r.since)
		empty := syscall.Kill(-r.pgid, 0) == syscall.ESRCH || known && !live[r.pgid]
		if empty || waited > lingerLimit+KillAfter+stuckLimit {
			r.phase = gone
			s.lingering--
			s.cfg.Keeper.GroupGone(r.pgid)
			continue
		}
		switch {
		case s.last != 0: // kill ends them
		case waited > lingerLimit+KillAfter && r.phase == asked:
			syscall.Kill(-r.pgid, syscall.SIGKILL)
		case waited > lingerLimit && r.phase == lingers:
			r.phase, r.since = asked, time.Now().Add(-lingerLimit)
			if s.m.Phase == job.Runs {
				s.logf("rank %d left processes behind; ending them", r.number)
			}
			syscall.Kill(-r.pgid, syscall.SIGTERM)
			syscall.Kill(-r.pgid, syscall.SIGCONT)
		}
	}
}

// drain waits until the last output has been written, however slow the reader is, or until
// a signal that requests the end, and returns that. A process outside its rank's group that
// holds a pipe open, or writes to it, does not keep the job from ending: see hurry.
func (s *state) drain() syscall.Signal {
	for _, r := range s.ranks {
		for _, p := range r.pipes {
			p.hurry()
		}
	}
	for _, r := range s.ranks {
		if sig := s.await(r.drained); sig != 0 {
			return sig
		}
	}
	return 0
}

// await waits until c is closed and returns 0, or until a signal that requests the end,
// and returns that.
func (s *state) await(c <-chan struct{}) syscall.Signal {
	for {
		select {
		case <-c:
			return 0
		case sig := <-s.cfg.Signals:
			if n, _ := sig.(syscall.Signal); job.AsksForEnd(sig) {
				return n
			}
		case <-s.wake:
			before := s.request
			s.request = 0
			if s.handleRequests(); s.request != 0 { // by Signal
				return s.request
			}
			s.request = before
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

// describe returns a rank's status in the shell's form (128 + signal), and a text such as
// "exited with status 3".
func describe(e exit) (status int, how string) {
	if e.err != nil {
		return 1, fmt.Sprintf("could not be waited for (%v)", e.err)
	}
	w := e.wait
	if !w.Signaled() {
		return w.ExitStatus(), fmt.Sprintf("exited with status %d", w.ExitStatus())
	}
	how = fmt.Sprintf("was killed by signal %d (%v)", int(w.Signal()), w.Signal())
	if w.CoreDump() {
		how += ", core dumped,"
	}
	return 128 + int(w.Signal()), how
}

// reap waits for a process that this one started. at is the time of its end; zero
// means the time at which reap returns.
func reap(rank int, p *os.Process, at time.Time) exit {
	state, err := p.Wait()
	if at.IsZero() {
		at = time.Now()
	}
	e := exit{rank: rank, err: err, at: at}
	if err == nil {
		e.wait, _ = state.Sys().(syscall.WaitStatus) // it is one on all systems with process groups
	}
	return e
}
