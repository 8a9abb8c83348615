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
)

// A relay holds signals until it is known which ones to pass on to the ranks. systemd and batch systems send a signal to all
// processes of a control group, and so to the ranks themselves. Many programs save on the first SIGTERM and end on a second
// one. The keeper shows which signals are such ones: it is in a session of its own, so that no others reach it.
type relay struct {
	held []syscall.Signal // in the order in which they came
	due  <-chan time.Time // receives when the keeper is to be asked; nil while none is held
}

// hold holds a signal that this process gets.
func (r *relay) hold(n syscall.Signal) {
	switch n { // as in the kernel, stopping and continuing a process cancel each other
	case syscall.SIGTSTP:
		take(&r.held, syscall.SIGCONT)
	case syscall.SIGCONT:
		take(&r.held, syscall.SIGTSTP)
	}
	if r.held = append(r.held, n); r.due == nil {
		r.due = time.After(holdLimit)
	}
}

// release calls pass with each signal that is held, and whether the ranks have got it, as the keeper has got those given.
func (r *relay) release(keeper []syscall.Signal, pass func(n syscall.Signal, direct bool)) {
	held := r.held
	*r = relay{}
	for _, n := range held {
		pass(n, take(&keeper, n))
	}
}

// take removes the first n of a list, and reports whether there was one.
func take(list *[]syscall.Signal, n syscall.Signal) bool {
	i := slices.Index(*list, n)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
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
	if job.AsksForEnd(n) { // now, because the ranks may have got it too
		noteEnding(s.cfg.Folder)
	}
	if s.cfg.Keeper == nil {
		s.pass(n, false)
	} else {
		s.relay.hold(n)
	}
}
