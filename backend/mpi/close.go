//go:build cgo && linux

package mpi

import (
	"runtime"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// leaveFor is how long MPI_Finalize, and the rounds of drain, may take where they may never end:
// both wait for the other ranks, one of which may have stopped.
const leaveFor = 5 * time.Second

// Close closes the communicator, and frees it as soon as no message can arrive on it (retire.go). On the
// world it finalizes MPI, which waits for the other ranks to do the same.
func (c *comm) Close() error {
	e := &c.p.engine
	if c.isWorld {
		if !c.gate.Shut() {
			return nil
		}
		c.drop(backend.CommClosed)
		e.remove(c)
		c.p.removeProcessor()
		return c.p.finalize(c)
	}
	world := c.p.world
	if !world.reenter() {
		return nil // the world's Close has closed it, or nobody can free it any more
	}
	defer world.leave()
	e.shut(c)
	e.tend()
	return nil
}

// finalize ends MPI in the world's Close, which waits for all ranks:
//
//  1. All communicators close, and the other ranks learn that this one leaves.
//  2. It waits until no other call is in the library. A call that another goroutine was about to make has been made by
//     then. One that waits for a message or for other ranks may never end.
//  3. Abandoned operations get a moment to end.
//  4. If cohort finalizes MPI on all ranks, they receive what is on its way (drain).
//  5. The engine stops, and the library gets its handles back.
//  6. MPI_Finalize ends MPI (exit).
//
// Once a rank has failed, closeFailed replaces the steps that are left.
func (p *process) finalize(world *comm) error {
	p.engine.shutAll()
	if f := p.failed.Load(); f != nil {
		return p.closeFailed(f)
	}
	p.departs()
	end := time.Now().Add(leaveFor)
	free := libmpi.MayCall() && p.engine.left(world, end)
	if f := p.failed.Load(); f != nil {
		return p.closeFailed(f)
	}
	if free {
		p.settle()
	}
	l := leaving{inside: !free, why: p.mayNotEnd(world), within: leaveFor}
	if p.job.drains && free {
		until := time.Time{} // like MPI_Finalize, until all ranks have called it
		if l.why != "" {
			until = end
		}
		if !p.drain(world, until) {
			l.within = max(time.Until(end).Round(leaveFor/10), leaveFor/10) // the rest of that time
		}
		if f := p.failed.Load(); f != nil {
			return p.closeFailed(f)
		}
		l.why = p.mayNotEnd(world)
	}
	p.sampler.stop()
	p.engine.stop()
	if free {
		p.free(world)
	}
	return p.exit(l)
}

// free gives the library its handles back, unless it may still use some of them.
func (p *process) free(world *comm) {
	if p.engine.leaked() || p.engine.any(func(*op) bool { return true }) || world.broken.Load() != nil {
		return
	}
	if p.job.drains { // else messages may be on their way
		world.data.Free()
		world.ctl.Free()
		p.parent.Free()
	}
	p.types.free()
	p.ops.free()
}

// mayNotEnd returns why MPI_Finalize may never return, and the empty string if it will.
func (p *process) mayNotEnd(world *comm) string {
	switch s := world.broken.Load(); {
	case p.engine.owed():
		return owing
	case s != nil:
		return "the world was broken: " + s.Error()
	case p.engine.wins.Load() > 0:
		return "a window is not freed, and other ranks may be waiting for that"
	}
	return ""
}

const owing = "a message of an abandoned send has not been received"

// settle gives abandoned operations a moment to complete, and retired communicators to be freed.
func (p *process) settle() {
	e := &p.engine
	for end := time.Now().Add(backend.Grace); time.Now().Before(end); yield() {
		e.tend()
		e.mu.Lock()
		n := len(e.reqs) + len(e.comms.retired)
		e.mu.Unlock()
		if n == 0 {
			return
		}
	}
}

// leaked reports whether anything could not be freed.
func (e *engine) leaked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaks+len(e.comms.retired)+len(e.comms.kept) > 0
}

// unfreed returns the closed communicators that are not freed.
func (e *engine) unfreed() []*comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Concat(e.comms.retired, e.comms.kept)
}

// left waits until no call uses the world or a closed communicator, and all abandoned calls have returned. It reports
// whether that happened in time, and before another rank failed.
func (e *engine) left(world *comm, end time.Time) bool {
	over := func() bool {
		if world.p.lib.level == libmpi.Multiple { // below, a call that waits would keep this one out
			world.p.hear()
		}
		return world.p.failed.Load() != nil || time.Now().After(end)
	}
	for _, c := range append(e.unfreed(), world) {
		for !c.gate.AwaitEmpty(backend.Grace) {
			if over() {
				return false
			}
		}
	}
	for ; e.stuck.Load() > 0; time.Sleep(shortest) {
		if over() {
			return false
		}
	}
	return true
}

// leaving is what is known when MPI is about to be finalized. The zero value means that nothing is in its way.
type leaving struct {
	inside bool          // a call of another goroutine may still be in the library
	why    string        // why MPI_Finalize may never return; empty: it will
	within time.Duration // how long to wait for it then
}

// exit finalizes MPI if cohort initialized it and no call is in the library. If MPI_Finalize may never return, exit waits for
// it no longer than l.within.
func (p *process) exit(l leaving) error {
	switch mayCall := libmpi.MayCall(); {
	case p.ending.foreign && (!l.inside || !mayCall):
		return nil
	case !mayCall:
		return libmpi.Error(libmpi.Thread)
	}
	obstacle := p.obstacle(l)
	if p.ending.foreign && obstacle != "" {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: obstacle}
	}
	defer p.ending.thread.end()
	if obstacle != "" {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: "MPI is not finalized: " + obstacle + "; the launcher may report this process as failed"}
	}
	if p.ending.thread == nil {
		code := p.callFinalize()
		runtime.UnlockOSThread()
		return libmpi.Error(code)
	}
	done := make(chan libmpi.Code, 1)
	p.ending.thread.work <- func() { done <- p.callFinalize() }
	var late <-chan time.Time
	if l.why != "" {
		late = time.After(l.within)
	}
	select {
	case code := <-done:
		return libmpi.Error(code)
	case <-late:
		return backend.Faultf(backend.ErrBroken, "MPI_Finalize has not returned after %v, and may never: %s; "+
			"the launcher may report this process as failed", l.within, l.why)
	}
}

// obstacle returns why MPI_Finalize must not be called, and the empty string if it may.
func (p *process) obstacle(l leaving) string {
	switch {
	case p.engine.stuck.Load() > 0:
		return "an abandoned blocking call is still in the library"
	case l.inside:
		return "a blocking call of another goroutine is still in the library; use a handle of WithContext, whose receives and probes end"
	case l.why == owing && p.job.drains && p.lib.quirks.Has(mpiquirks.QuirkOwed):
		return l.why
	}
	return ""
}

// callFinalize calls MPI_Finalize, and then what the library registered for the end of the process.
func (p *process) callFinalize() libmpi.Code {
	var code libmpi.Code
	ended := false
	end := func() {
		if p.job.drains && p.lib.quirks.Has(mpiquirks.QuirkDisconnect) { // MPI_Finalize waits for all ranks anyway
			_ = libmpi.World().Collective(&libmpi.Coll{Coll: int(backend.Barrier), Size: p.world.size})
		}
		code, ended = libmpi.Finalize(), true
	}
	if run := p.ending.run.Load(); run != nil {
		_ = (*run)(end) // the device may have failed, which matters to those who use it
	}
	if !ended {
		end()
	}
	if code == 0 && p.lib.quirks.Has(mpiquirks.QuirkExit) {
		libmpi.End()
	}
	return code
}

// closeFailed is finalize once a rank has failed. It does not finalize MPI, and returns when the failed rank ends.
func (p *process) closeFailed(f *failure) error {
	for {
		end, known := f.ends()
		left := time.Until(end)
		switch {
		case !known:
			left = time.Millisecond
			if libmpi.MayCall() {
				p.hear()
			}
		case left <= 0:
			p.sampler.stop()
			p.engine.stop()
			p.ending.thread.end()
			return nil
		}
		p.engine.poll(1) // what tells the others
		time.Sleep(min(left, time.Millisecond))
	}
}
