package job

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// trial is a machine whose requests are recorded, and whose clock the test sets.
type trial struct {
	*Machine
	now     time.Time
	hosts   int // that answer Ask
	trace   []string
	drained chan struct{}
}

func newTrial(c Config) *trial {
	r := &trial{now: time.Unix(0, 0), drained: make(chan struct{})}
	note := func(what string) func() { return func() { r.trace = append(r.trace, what) } }
	c.Now = func() time.Time { return r.now }
	c.KillAfter, c.GiveUpAfter = time.Second, 5*time.Second
	c.Terminate, c.Kill, c.GiveUp = note("terminate"), note("kill"), note("give up")
	c.Ask = func() int {
		if r.hosts > 0 {
			note("ask")()
		}
		return r.hosts
	}
	c.Say = func(text string, after <-chan struct{}) {
		if after != nil {
			text += " (after its output)"
		}
		r.trace = append(r.trace, text)
	}
	r.Machine = New(c)
	return r
}

// An event is a step of a job.
type event func(*trial)

// exit is the end of a rank.
func exit(rank, status int) event { return ended(Exit{Rank: rank, Status: status}) }

// recovered is the failure of a rank of a resilient job.
func recovered(rank, status int) event { return ended(Exit{Rank: rank, Status: status, GoesOn: true}) }

// abort is the end of a rank that called Abort.
func abort(rank, status int) event { return ended(Exit{Rank: rank, Status: status, Aborted: true}) }

// reacts is the end of a rank that called Abort because another one had failed.
func reacts(rank, status int) event {
	return ended(Exit{Rank: rank, Status: status, Aborted: true, Follows: true})
}

// follows is the failure of a rank because another one has failed.
func follows(rank, status int) event { return ended(Exit{Rank: rank, Status: status, Follows: true}) }

func ended(e Exit) event {
	return func(r *trial) {
		if e.GoesOn {
			r.Continue()
		}
		r.Running--
		e.Name, e.How, e.After, e.Drained = fmt.Sprint("rank ", e.Rank), fmt.Sprint("exited with status ", e.Status), "1.0 s", r.drained
		r.Ended(e)
	}
}

// lost is the loss of a host with ranks, while hosts others are left.
func lost(ranks, hosts int) event {
	return func(r *trial) {
		r.Running -= ranks
		r.hosts = hosts
		r.HostLost("host a was lost")
	}
}

// on says how many hosts the job is on.
func on(hosts int) event { return func(r *trial) { r.hosts = hosts } }

// asks has a rank ask that the job continues after losses.
func (r *trial) asks() { r.Continue() }

func answers(goesOn bool) event { return func(r *trial) { r.Answer(goesOn) } }

func signal(n syscall.Signal) event { return func(r *trial) { r.Signal(n) } }

// after lets time pass, up to every limit on the way.
func after(d time.Duration) event {
	return func(r *trial) {
		end := r.now.Add(d)
		for r.now.Before(end) {
			r.now = r.now.Add(100 * time.Millisecond)
			r.Tick()
		}
	}
}

func outputFails(err error) event { return func(r *trial) { r.OutputFailed(err) } }

func outputIsLost(r *trial) { r.LostOutput(syscall.SIGINT) }

func TestEventsDecideHowJobEnds(t *testing.T) {
	const second = time.Second
	grace := Config{Ranks: 3, Grace: second}
	resilient := Config{Ranks: 3, Grace: second, Resilient: true}
	for _, c := range []struct {
		name   string
		config Config
		events []event
		want   Result
		trace  string
	}{
		{"all leave in good order", grace, []event{exit(1, 0), exit(0, 0), exit(2, 0), after(9 * second)},
			Result{Status: 0, First: -1}, ""},
		{"a failure ends the others after the grace time", grace, []event{exit(1, 3), after(900 * time.Millisecond), exit(0, 0), after(second), exit(2, 143)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; ending the others (after its output)|terminate"},
		{"no grace time", Config{Ranks: 2}, []event{exit(1, 3), exit(0, 143)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; ending the others (after its output)|terminate"},
		{"the others end in the grace time", grace, []event{exit(1, 3), exit(0, 1), exit(2, 1)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; ending the others (after its output)"},
		{"the last rank fails", grace, []event{exit(1, 0), exit(0, 0), exit(2, 5)},
			Result{Status: 5, First: 2}, "rank 2 exited with status 5 after 1.0 s (after its output)"},
		{"a rank that failed because of another ends before it", grace, []event{follows(0, 1), follows(2, 1), after(second), exit(1, 3)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s (after its output)"},
		{"the failure because of which others fail does not come", grace, []event{follows(2, 4), follows(0, 1), after(3100 * time.Millisecond)},
			Result{Status: 4, First: 2}, "rank 2 exited with status 4 after 1.0 s; ending the others (after its output)|terminate"},
		{"the failure because of which others fail has status 0", grace, []event{follows(2, 4), follows(0, 1), exit(1, 0)},
			Result{Status: 4, First: 2}, "rank 2 exited with status 4 after 1.0 s (after its output)"},
		{"a rank exits with 0 without Close, and the others notice", grace, []event{exit(1, 0), exit(0, 1), exit(2, 1)},
			Result{Status: 1, First: 0}, "rank 0 exited with status 1 after 1.0 s; ending the others (after its output)"},
		{"ranks that do not end are killed, then given up", grace, []event{exit(1, 3), after(8 * second)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; ending the others (after its output)|terminate|kill|give up"},

		{"start fails halfway", grace, []event{func(r *trial) { r.Abandon(errors.New("no memory")) }, exit(0, 137), exit(1, 137)},
			Result{Status: 1, First: -1, Err: errors.New("no memory")}, "kill"},
		{"timeout", Config{Ranks: 3, Grace: second, Timeout: 2 * second}, []event{exit(0, 0), after(2 * second), exit(1, 143), exit(2, 143)},
			Result{Status: 124, First: -1, Err: errors.New("the job did not end within 2s")}, "the job did not end within 2s (--timeout); ending its 2 ranks|terminate"},
		{"timeout when all ranks have ended", Config{Ranks: 2, Timeout: 2 * second}, []event{exit(0, 0), exit(1, 0), after(2500 * time.Millisecond)},
			Result{Status: 0, First: -1}, "terminate"},
		{"no timeout once the job is ending", Config{Ranks: 3, Timeout: 2 * second}, []event{after(second), exit(0, 4), after(5 * second)},
			Result{Status: 4, First: 0}, "rank 0 exited with status 4 after 1.0 s; ending the others (after its output)|terminate|kill"},
		{"timeout in the grace time", Config{Ranks: 3, Grace: 9 * second, Timeout: 2 * second}, []event{after(second), exit(0, 4), after(1500 * time.Millisecond)},
			Result{Status: 4, First: 0}, "rank 0 exited with status 4 after 1.0 s; ending the others (after its output)|the job did not end within 2s (--timeout); ending its 2 ranks|terminate"},

		{"the ranks handle a signal", grace, []event{signal(syscall.SIGINT), exit(0, 0), exit(1, 0), exit(2, 0)},
			Result{Status: 0, First: -1}, ""},
		{"one request comes as two signals", grace, []event{signal(syscall.SIGTERM), after(500 * time.Millisecond), signal(syscall.SIGTERM), after(second)},
			Result{Status: 0, First: -1}, ""},
		{"a second request", grace, []event{signal(syscall.SIGINT), after(600 * time.Millisecond), signal(syscall.SIGTERM), exit(0, 143)},
			Result{Status: 143, First: -1, Err: errors.New("asked twice to end (terminated)")}, "second request to end: ending the ranks|terminate"},
		{"a second request in the grace time", grace, []event{exit(1, 3), signal(syscall.SIGINT), after(600 * time.Millisecond), signal(syscall.SIGINT)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; ending the others (after its output)|second request to end: ending the ranks|terminate"},
		{"other signals ask for nothing", grace, []event{signal(syscall.SIGALRM), after(second), signal(syscall.SIGALRM)},
			Result{Status: 0, First: -1}, ""},

		{"Abort after another rank's end", grace, []event{exit(0, 1), abort(1, 7), exit(2, 1)},
			Result{Status: 7, First: 1, Aborted: true}, "rank 0 exited with status 1 after 1.0 s; ending the others (after its output)|" +
				"rank 1 exited with status 7 after 1.0 s; ending the others (after its output)"},
		{"Abort after a timeout", Config{Ranks: 2, Timeout: second}, []event{after(second), abort(0, 7), exit(1, 143)},
			Result{Status: 124, First: -1, Err: errors.New("the job did not end within 1s")}, "the job did not end within 1s (--timeout); ending its 2 ranks|terminate"},

		{"the reader closes the output", grace, []event{outputFails(&os.PathError{Err: syscall.EPIPE}), outputFails(syscall.EIO)},
			Result{Status: 141, First: -1, Err: errors.New("writing the ranks' output:  : broken pipe")}, "terminate"},
		{"the user ends the wait for a reader of the output", grace, []event{exit(0, 0), exit(1, 0), exit(2, 0), outputIsLost},
			Result{Status: 130, First: -1, Err: errors.New("asked to end (interrupt) before the last output was written")}, ""},
		{"the same after a failure", Config{Ranks: 1, Grace: second}, []event{exit(0, 3), outputIsLost},
			Result{Status: 3, First: 0}, "rank 0 exited with status 3 after 1.0 s (after its output)"},
		{"another reason", grace, []event{func(r *trial) { r.End(2, nil, "host a: no") }},
			Result{Status: 2, First: -1}, "host a: no|terminate"},
		{"the disk is full", grace, []event{outputFails(syscall.ENOSPC)},
			Result{Status: 1, First: -1, Err: errors.New("writing the ranks' output: no space left on device")},
			"the ranks' output cannot be written (no space left on device)|terminate"},

		{"a resilient job continues", resilient, []event{recovered(1, 3), exit(0, 0), exit(2, 0)},
			Result{Status: 0, First: -1}, "rank 1 exited with status 3 after 1.0 s; the job goes on with 2 ranks (after its output)"},
		{"a rank fails after another has succeeded", resilient, []event{exit(0, 0), recovered(1, 3), recovered(2, 4)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; the job goes on with 1 rank (after its output)|" +
				"rank 2 exited with status 4 after 1.0 s (after its output)"},
		{"all ranks of a resilient job fail", resilient, []event{recovered(1, 3), recovered(0, 9), recovered(2, 4)},
			Result{Status: 3, First: 1}, "rank 1 exited with status 3 after 1.0 s; the job goes on with 2 ranks (after its output)|" +
				"rank 0 exited with status 9 after 1.0 s; the job goes on with 1 rank (after its output)|" +
				"rank 2 exited with status 4 after 1.0 s; no rank is left (after its output)"},
		{"a resilient job is asked to end", resilient, []event{signal(syscall.SIGTERM), recovered(1, 143), recovered(0, 143)},
			Result{Status: 143, First: 1}, "rank 1 exited with status 143 after 1.0 s; ending the others (after its output)"},
		{"Abort because of a failure that comes first", grace, []event{exit(0, 3), reacts(2, 9), exit(1, 1)},
			Result{Status: 3, First: 0}, "rank 0 exited with status 3 after 1.0 s; ending the others (after its output)"},
		{"Abort because of a failure that comes later", grace, []event{reacts(2, 9), follows(1, 1), exit(0, 3)},
			Result{Status: 3, First: 0}, "rank 0 exited with status 3 after 1.0 s (after its output)"},
		{"Abort because of a failure that does not come", grace, []event{reacts(2, 9), exit(0, 0), exit(1, 0)},
			Result{Status: 9, First: 2, Aborted: true}, "rank 2 exited with status 9 after 1.0 s (after its output)"},
		{"Abort because of a failure with which a resilient job went on", resilient, []event{exit(0, 3), reacts(2, 9), exit(1, 1)},
			Result{Status: 9, First: 2, Aborted: true}, "rank 0 exited with status 3 after 1.0 s; the job goes on with 2 ranks (after its output)|" +
				"rank 2 exited with status 9 after 1.0 s; ending the others (after its output)"},
		{"Abort because of an Abort that comes later", resilient, []event{reacts(2, 9), abort(0, 7), exit(1, 1)},
			Result{Status: 7, First: 0, Aborted: true}, "rank 2 exited with status 9 after 1.0 s; ending the others (after its output)|" +
				"rank 0 exited with status 7 after 1.0 s; ending the others (after its output)"},
		{"Abort because of an Abort that comes first", resilient, []event{abort(0, 7), reacts(2, 9), exit(1, 1)},
			Result{Status: 7, First: 0, Aborted: true}, "rank 0 exited with status 7 after 1.0 s; ending the others (after its output)"},
		{"two ranks abort because of a third", resilient, []event{reacts(2, 9), reacts(1, 8), exit(0, 1)},
			Result{Status: 9, First: 2, Aborted: true}, "rank 2 exited with status 9 after 1.0 s; ending the others (after its output)"},
		{"ranks of several hosts after an Abort", grace, []event{abort(1, 7), abort(1, 7), exit(0, 1)},
			Result{Status: 7, First: 1, Aborted: true}, "rank 1 exited with status 7 after 1.0 s; ending the others (after its output)"},
		{"Abort ends a resilient job", resilient, []event{ended(Exit{Rank: 1, Status: 7, GoesOn: true, Aborted: true}), exit(0, 1)},
			Result{Status: 7, First: 1, Aborted: true}, "rank 1 exited with status 7 after 1.0 s; ending the others (after its output)"},

		{"Abort after a failure with which a resilient job went on", resilient, []event{exit(0, 0), recovered(1, 3), abort(2, 7)},
			Result{Status: 7, First: 2, Aborted: true}, "rank 1 exited with status 3 after 1.0 s; the job goes on with 1 rank (after its output)|" +
				"rank 2 exited with status 7 after 1.0 s (after its output)"},

		{"a rank fails on one of several hosts", grace, []event{on(2), exit(1, 3), answers(false), answers(false), exit(0, 1), exit(2, 1)},
			Result{Status: 3, First: 1}, "ask|rank 1 exited with status 3 after 1.0 s; ending the others (after its output)"},
		{"a rank fails, and another host answers that the job continues", grace, []event{on(2), exit(1, 3), exit(0, 0), answers(false), answers(true), exit(2, 0)},
			Result{Status: 0, First: -1}, "ask|rank 1 exited with status 3 after 1.0 s; the job goes on with 1 rank (after its output)"},
		{"the same after another rank has succeeded", grace, []event{on(2), exit(0, 0), exit(1, 3), answers(true), exit(2, 0)},
			Result{Status: 3, First: 1}, "ask|rank 1 exited with status 3 after 1.0 s; the job goes on with 1 rank (after its output)"},
		{"Abort because of that failure", grace, []event{on(2), exit(1, 3), reacts(2, 9), answers(true), exit(0, 1)},
			Result{Status: 9, First: 2, Aborted: true}, "ask|ask|rank 1 exited with status 3 after 1.0 s; the job goes on with 1 rank (after its output)|" +
				"rank 2 exited with status 9 after 1.0 s; ending the others (after its output)"},
		{"the failure because of which others have failed is the last to come", grace, []event{on(1), reacts(2, 9), answers(false), follows(1, 1), exit(0, 3), answers(false), answers(false)},
			Result{Status: 3, First: 0}, "ask|ask|ask|rank 0 exited with status 3 after 1.0 s (after its output)"},
		{"nobody answers whether it continues", grace, []event{on(2), exit(1, 3), func(r *trial) { r.Stop() }},
			Result{Status: 3, First: 1}, "ask|rank 1 exited with status 3 after 1.0 s; ending the others (after its output)"},

		{"a host is lost", grace, []event{lost(1, 2), answers(false), answers(false), after(second), exit(1, 1), exit(2, 143)},
			Result{Status: 255, First: -1}, "ask|host a was lost; ending the others|terminate"},
		{"the only host is lost", grace, []event{lost(3, 0)},
			Result{Status: 255, First: -1}, "host a was lost"},
		{"hosts do not answer", grace, []event{lost(1, 2), answers(false), after(second), answers(true)},
			Result{Status: 255, First: -1}, "ask|host a was lost; ending the others"},
		{"a second host is lost before all have answered about the first", grace, []event{lost(1, 3), answers(false), lost(1, 2), answers(false), answers(false), answers(true), exit(2, 0)},
			Result{Status: 0, First: -1}, "ask|ask|host a was lost; the job goes on with 1 rank|host a was lost; the job goes on with 1 rank"},
		{"a host answers that the job continues", grace, []event{lost(1, 2), answers(false), answers(true), exit(1, 0), exit(2, 0)},
			Result{Status: 0, First: -1}, "ask|host a was lost; the job goes on with 2 ranks"},
		{"a rank that fails answers", grace, []event{lost(1, 2), recovered(1, 9), exit(2, 0), after(9 * second)},
			Result{Status: 0, First: -1}, "ask|host a was lost; the job goes on with 2 ranks|rank 1 exited with status 9 after 1.0 s; the job goes on with 1 rank (after its output)"},
		{"a host of a resilient job is lost", resilient, []event{lost(2, 1), exit(2, 0)},
			Result{Status: 0, First: -1}, "host a was lost; the job goes on with 1 rank"},
		{"the host is lost whose ranks have asked that the job continues", grace, []event{(*trial).asks, lost(1, 2), answers(false), answers(false), exit(1, 0), exit(2, 0)},
			Result{Status: 0, First: -1}, "host a was lost; the job goes on with 2 ranks"},
		{"all hosts of a resilient job are lost", resilient, []event{lost(2, 1), lost(1, 0)},
			Result{Status: 255, First: -1}, "host a was lost; the job goes on with 1 rank|host a was lost; no rank is left"},
		{"a host is lost after a rank has succeeded", resilient, []event{exit(0, 0), lost(2, 1)},
			Result{Status: 0, First: -1}, "host a was lost"},
		{"a host is lost when the job was asked to end", grace, []event{signal(syscall.SIGINT), lost(1, 2), exit(1, 0)},
			Result{Status: 255, First: -1}, "host a was lost|terminate"},
		{"a host is lost while the job ends", grace, []event{exit(0, 3), lost(1, 1), exit(2, 0)},
			Result{Status: 3, First: 0}, "rank 0 exited with status 3 after 1.0 s; ending the others (after its output)|host a was lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTrial(c.config)
			for _, e := range c.events {
				e(r)
			}
			if got, want := fmt.Sprintf("%+v", r.Result), fmt.Sprintf("%+v", c.want); got != want {
				t.Errorf("result %s, want %s", got, want)
			}
			if got := strings.Join(r.trace, "|"); got != c.trace {
				t.Errorf("trace:\n%s\nwant:\n%s", strings.ReplaceAll(got, "|", "\n"), strings.ReplaceAll(c.trace, "|", "\n"))
			}
		})
	}
}

// TestWaitEndsAtNextLimit checks the channel by which an owner learns that a limit has been reached.
func TestWaitEndsAtNextLimit(t *testing.T) {
	r := newTrial(Config{Ranks: 2, Grace: time.Hour, Timeout: 2 * time.Hour})
	exit(0, 3)(r)
	r.now = r.now.Add(time.Hour)
	<-r.Wait()
	r.Tick()
	if len(r.trace) != 2 || r.Phase != Ends {
		t.Errorf("%q, want the end of the grace time", r.trace)
	}
}

func TestLogPrintsMessagesInOrderAfterOutput(t *testing.T) {
	var said []string
	l := NewLog(1, func(text string) { said = append(said, text) })
	drained, never := make(chan struct{}), make(chan struct{})
	l.Say("first", drained)
	l.Say("second", nil)
	l.Say("third", never)
	close(drained)
	<-l.Close()
	if got := strings.Join(said, " "); got != "first second third" {
		t.Errorf("printed %q", got)
	}
}

// Rank 1 fails, or ends without Close, and the others fail because of it. Whatever the order in which their ends are seen,
// the job has the status of rank 1, unless that comes when the grace time is over.
func TestRankThatOthersFollowGivesJobItsStatus(t *testing.T) {
	ends := []event{follows(0, 1), exit(1, 3), follows(2, 1)}
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, grace := range []time.Duration{0, time.Second, time.Minute} { // from followLimit after the first end
			const more = 10 * time.Second
			m := newTrial(Config{Ranks: 3, Grace: grace})
			for _, i := range order {
				if i == 1 {
					after(followLimit)(m)
					after(more)(m)
				}
				ends[i](m)
			}
			first := 1
			if grace < more {
				first = order[0]
			}
			if m.First != first {
				t.Errorf("the ends of ranks %v, grace %v: rank %d is reported, want %d", order, grace, m.First, first)
			}
		}
	}
}

// Whatever happens to three ranks, in this order, and whenever the user asks for the end, the job ends as if the hosts had
// answered at once.
func TestLateAnswersDoNotChangeResult(t *testing.T) {
	kinds := []struct {
		name string
		end  func(rank int) event
	}{
		{"succeeds", func(rank int) event { return exit(rank, 0) }},
		{"fails", func(rank int) event { return exit(rank, 3+rank) }},
		{"follows", func(rank int) event { return follows(rank, 3+rank) }},
		{"aborts", func(rank int) event { return abort(rank, 3+rank) }},
		{"reacts", func(rank int) event { return reacts(rank, 3+rank) }},
		{"is lost with its host", func(rank int) event { return lost(1, 2) }},
	}
	play := func(events []event, goesOn bool, delay int) Result {
		r := newTrial(Config{Ranks: 3, Grace: time.Second})
		now, due := 0, []int(nil) // answers
		r.Ask = func() int {
			due = append(due, now+delay, now+delay)
			return 2
		}
		answer := func(until int) {
			for len(due) > 0 && due[0] <= until {
				due = due[1:]
				r.Answer(goesOn)
			}
		}
		for _, e := range events {
			e(r)
			answer(now)
			now++
		}
		answer(len(events) + delay)
		r.Stop()
		return r.Result
	}
	for first := range kinds {
		for second := range kinds {
			for third := range kinds {
				for asked := range 4 { // before which event; 3: never
					var events []event
					name := ""
					for rank, kind := range []int{first, second, third} {
						if rank == asked {
							events, name = append(events, signal(syscall.SIGINT)), name+"a request to end; "
						}
						events, name = append(events, kinds[kind].end(rank)), name+fmt.Sprintf("rank %d %s; ", rank, kinds[kind].name)
					}
					for _, goesOn := range []bool{false, true} {
						want := play(events, goesOn, 0)
						for delay := 1; delay < 5; delay++ {
							if got := play(events, goesOn, delay); got != want {
								t.Errorf("%sthe job goes on: %v, answers after %d events: %+v, want %+v", name, goesOn, delay, got, want)
							}
						}
					}
				}
			}
		}
	}
}
