package pool

import (
	"context"
	"runtime/debug"

	"github.com/cohort-hpc/cohort/backend"
)

// lead is what Run gives to worker 0.
type lead struct {
	f    func() error
	done chan error
}

// Run calls f as worker 0, on that worker's thread, and returns what it does. The
// loops that f calls are spread over all workers, and this one takes part.
//
// That is for programs with many short loops and no more processors than workers:
// a caller outside has to hand its processor over to a worker and to take it back,
// in every loop, which takes some ten microseconds; f has its own. What f
// allocates is of the NUMA domain that worker 0 runs in. For as long as f runs,
// loops of other goroutines wait, and it is best if f does not wait for other
// goroutines much: to switch from and to a goroutine with a thread of its own is
// slow.
//
// A panic of f is a TaskError with index -1. In a task of the pool Run is ErrBusy;
// in f itself it calls its function there.
func (p *Pool) Run(f func() error) error {
	if p == nil {
		return errClosed
	}
	w, err := p.enter(context.Background())
	switch {
	case err != nil:
		return err
	case w != nil && w.leads:
		return f()
	case w != nil:
		return faultf(backend.ErrBusy, "Run in a task of the pool")
	}
	p.begin()
	l := &lead{f, make(chan error)}
	p.team.Store(true)
	p.lead.Store(l)
	p.epoch.Store((p.epoch.Load() | 1) + 1)
	p.rouse(p.workers[0])
	err = <-l.done
	p.team.Store(false)
	p.turn <- struct{}{}
	return err
}

// lead runs what Run was given.
func (w *worker) lead(l *lead) {
	var err error
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = &TaskError{Index: -1, Worker: w.id, Err: &PanicError{v}, Stack: debug.Stack()}
		} else if !returned {
			err = &TaskError{Index: -1, Worker: w.id, Err: errGoexit, Stack: debug.Stack()}
		}
		w.leads = false
		l.done <- err
	}()
	w.leads = true
	err = l.f()
	returned = true
}

// team runs a loop with the calling worker, which leads, as one of its workers.
func (w *worker) team(ctx context.Context, n int, f task, each bool) (err error) {
	if n == 0 {
		return nil
	}
	p := w.pool
	w.leads = false
	w.seen = p.publish(ctx, n, f, each)
	defer func() { // also if a task calls Goexit
		w.giveBack()
		p.finish(p.together.caller)
		err = p.outcome(ctx)
		w.leads = true
	}()
	switch awake := len(p.workers) - int(p.asleep.Load()); {
	case each:
		p.wakeEach(w.seen)
	case awake < min(n, len(p.workers)):
		p.wakeSome(w.seen)
	}
	w.work()
	return nil
}
