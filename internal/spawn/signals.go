//go:build unix

package spawn

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
)

// passedOn are the signals that a launcher passes on to its ranks.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
}

// Notify returns a channel that receives the signals that a launcher passes on to its
// ranks. Signals that the launcher was started to ignore (by nohup, or as a background
// job of a script) stay ignored, here and in the ranks.
func Notify() chan os.Signal {
	c := make(chan os.Signal, 64)
	for _, s := range append([]os.Signal{syscall.SIGPIPE}, passedOn...) { // SIGPIPE: writing to a closed pipe returns an error
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

const onUnix = true

const (
	holdLimit   = 100 * time.Millisecond // for a sender of a signal to send it to all processes of a control group
	answerLimit = time.Second            // for the keeper to answer
	directLimit = time.Second            // for this process to get a signal that the keeper has got
)

// A relay decides which signals are passed on to the ranks. systemd and batch systems send a signal to all processes of a
// control group, and so to the ranks themselves. Many programs save on the first SIGTERM and end on a second one. The keeper shows
// which signals are such ones: it is in a session of its own, so that no others reach it.
//
//	state of a signal   this process gets it   the keeper reports it   time passes
//	none                held                   direct
//	held                held again             none, not passed on     holdLimit: asked
//	asked               held again             none, not passed on     the keeper answers, or answerLimit: none, passed on
//	direct              none, not passed on    direct                  directLimit: none
type relay struct {
	keeper *Keeper
	held   []heldSignal // in the order in which they came
	asked  int          // so many of the first ones are in state asked
	until  time.Time    // when the next held signal is asked for, or the answer is late
	direct map[syscall.Signal]time.Time
	pass   func(n syscall.Signal, direct bool) // called when a signal leaves state held, asked or direct
}

type heldSignal struct {
	n  syscall.Signal
	at time.Time
}

func newRelay(k *Keeper, pass func(n syscall.Signal, direct bool)) *relay {
	return &relay{keeper: k, pass: pass, direct: map[syscall.Signal]time.Time{}}
}

// got handles a signal that this process gets.
func (r *relay) got(n syscall.Signal) {
	if r.keeper == nil {
		r.pass(n, false)
		return
	}
	if at, ok := r.direct[n]; ok && time.Since(at) < directLimit {
		delete(r.direct, n)
		r.pass(n, true)
		return
	}
	switch n { // as in the kernel, stopping and continuing a process cancel each other
	case syscall.SIGTSTP:
		r.drop(syscall.SIGCONT)
	case syscall.SIGCONT:
		r.drop(syscall.SIGTSTP)
	}
	r.held = append(r.held, heldSignal{n, time.Now()})
	r.next()
}

// drop removes the first held signal n.
func (r *relay) drop(n syscall.Signal) bool {
	i := slices.IndexFunc(r.held, func(h heldSignal) bool { return h.n == n })
	if i < 0 {
		return false
	}
	r.held = slices.Delete(r.held, i, i+1)
	if i < r.asked {
		r.asked--
	}
	r.next()
	return true
}

// next sets until.
func (r *relay) next() {
	switch {
	case r.asked > 0: // the answer is waited for
	case len(r.held) == 0:
		r.until = time.Time{}
	default:
		r.until = r.held[0].at.Add(holdLimit)
	}
}

// wait returns a channel that receives when tick is to be called, nil for never.
func (r *relay) wait() <-chan time.Time {
	if r.until.IsZero() {
		return nil
	}
	return time.After(time.Until(r.until))
}

func (r *relay) tick() {
	if r.asked > 0 {
		r.answered()
		return
	}
	r.keeper.ask()
	r.asked, r.until = len(r.held), time.Now().Add(answerLimit)
}

// reported handles a report of the keeper, or its end.
func (r *relay) reported(n syscall.Signal, alive bool) {
	switch {
	case !alive:
		r.keeper, r.asked = nil, len(r.held)
		r.answered()
	case n == 0:
		r.answered()
	case r.drop(n):
		r.pass(n, true)
	default:
		r.direct[n] = time.Now()
	}
}

// reports is the channel for reported.
func (r *relay) reports() <-chan syscall.Signal {
	if r.keeper == nil {
		return nil
	}
	return r.keeper.got
}

// answered passes on the signals that the keeper has not got.
func (r *relay) answered() {
	all := r.held[:r.asked]
	r.held, r.asked = r.held[r.asked:], 0
	r.next()
	for _, h := range all {
		r.pass(h.n, false)
	}
}

// pass passes a signal on to all ranks, unless it was sent directly to them.
func (s *state) pass(n syscall.Signal, direct bool) {
	if !direct {
		s.signal(n)
	}
	if job.AsksForEnd(n) {
		s.request = n
		if !direct {
			s.askLauncher(n)
		}
	}
	if s.cfg.Part == nil { // else the launcher of the larger job decides what follows
		job.Suspend(n) // the ranks have stopped too, by default
	}
}

// signaled handles a signal that the launcher got.
func (s *state) signaled(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	if !ok || n == syscall.SIGPIPE { // the failed write is reported instead
		return
	}
	s.m.Signal(n)
	s.relay.got(n)
}
