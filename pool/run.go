package pool

import (
	"context"
	"runtime/debug"

	"github.com/cohort-hpc/cohort/backend"
)

// lead is a function that Run passes to worker 0.
type lead struct {
	f    func() error
	done chan error
}

// Run calls f on worker 0's thread and returns its error. Loops that f calls are spread over all
// workers, worker 0 included.
//
// Run suits programs with many short loops and no more processors than workers. A caller outside
// the pool must pass its processor to a worker and take it back in every loop, which takes about
// ten microseconds; f already has the processor. Memory that f allocates belongs to the NUMA domain
// of worker 0. While f runs, loops of other goroutines wait. f should seldom wait for other
// goroutines, because switching to and from a goroutine with its own thread is slow.
//
// A panic of f is a TaskError with index -1. In a task of the pool Run returns ErrBusy; inside f
// itself it calls its function directly.
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
		return faultf(backend.ErrBusy, "a task of the pool cannot call Run")
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

// lead runs the function of Run.
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

// team runs a loop with the calling worker as one of its workers.
func (w *worker) team(ctx context.Context, n int, f task, each bool) (err error) {
	if n == 0 {
		return nil
	}
	p := w.pool
	w.leads = false
	w.seen = p.publish(ctx, n, f, each)
	defer func() { // runs even if a task calls Goexit
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
