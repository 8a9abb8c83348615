package pool

import (
	"context"
	"runtime/debug"

	"github.com/cohort-hpc/cohort/backend"
)

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
	err = p.pass(f)
	p.turn <- struct{}{}
	return err
}

// pass lets worker 0 run f. From the order until f has returned, worker 0 holds the token.
func (p *Pool) pass(f func() error) error {
	p.lead = f
	p.team.Store(true)
	p.epoch.Store(p.next(leads))
	p.rouse(p.workers[0])
	p.led.Park(0)
	p.team.Store(false)
	return p.result
}

// lead runs the function of Run.
func (w *worker) lead() {
	p := w.pool
	f := p.lead
	p.lead = nil // it may keep much memory alive
	var err error
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = &TaskError{Index: -1, Worker: w.id, Err: &PanicError{v}, Stack: debug.Stack()}
		} else if !returned {
			err = &TaskError{Index: -1, Worker: w.id, Err: errGoexit, Stack: debug.Stack()}
		}
		w.leads = false
		p.result = err
		p.led.Unpark()
	}()
	w.leads = true
	err = f()
	returned = true
}

// team runs a loop with the calling worker as one of its workers.
func (w *worker) team(ctx context.Context, n int, f task, kind uint64) (err error) {
	if n == 0 {
		return nil
	}
	p := w.pool
	w.leads = false
	w.seen = p.publish(ctx, n, f, kind)
	defer func() { // runs even if a task calls Goexit
		w.giveBack()
		p.finish(p.together.caller)
		err = p.outcome(ctx)
		w.leads = true
	}()
	switch awake := len(p.workers) - int(p.asleep.Load()); {
	case kind == loopEach:
		p.wakeEach(w.seen)
	case awake < min(n, len(p.workers)):
		p.wakeSome(w.seen)
	}
	w.work()
	return nil
}
