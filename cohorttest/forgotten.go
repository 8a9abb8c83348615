package cohorttest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// forgotten starts operations of every kind and drops their requests: none has Wait or Close called. Then it closes
// their communicator, or drops that too, and closes the world. Both say that requests were dropped. A backend that lends their buffers to a library must keep them in place until the
// library has done with them: the runtime ends a process that lets the collector find a pinned buffer.
func forgotten(r *Rank) {
	for _, closes := range []bool{true, false} {
		c := must(r.Comm.Dup())
		forgetMessages(r, c)
		forgetFamilies(r, c, moves[int32]())
		forgetFamilies(r, c, reductions[int32]())
		must(c.Ibarrier())
		r.forget(c.BarrierInit)
		r.OK(r.Comm.Barrier())
		collect()
		if closes {
			r.Is(c.Close(), cohort.ErrRequest, "Close")
		}
	}
	h := aRing(r)
	forgetFamilies(r, r.Comm, neighborFamilies[int32](h))
	r.OK(h.comm.Barrier()) // a rank that closes it ends what the others wait for
	r.Is(h.close(), cohort.ErrRequest, "Close of %s", h.name)
	collect()
	r.Is(r.World.Close(), cohort.ErrRequest, "Close of the world")
}

// unwaited checks the error of closing the communicator on, on which the program has not waited for an operation with
// this name. With a tag it is a receive from this rank; otherwise it is a collective.
func (r *Rank) unwaited(err error, on, name string, peer, tag int) {
	text := fmt.Sprintf("%v: the program has not waited for its %s", cohort.ErrRequest, name)
	var op *cohort.OpError
	if !errors.As(err, &op) || op.Op != "close" || op.Comm != on || op.Rank != r.Rank || op.Peer != peer || op.Tag != tag || op.Err.Error() != text {
		r.Errorf("Close of %s: %v, want %q of %s with peer %d and tag %d", on, err, text, name, peer, tag)
	}
}

// notWaitedFor closes the world while a receive is under way for which nobody waits.
func notWaitedFor(r *Rank) {
	_, err := cohort.Irecv(r.World, make([]int32, 1), r.Rank, 7) // no other rank's Close can end it
	r.OK(err)
	r.unwaited(r.World.Close(), r.World.Name(), "irecv", r.Rank, 7)
}

// notWaitedForDerived closes communicators on which the program has not waited for an operation, whether it is complete or not, and
// leaves one open. Close of the world tells of the first again, since nobody need have looked at the error of a deferred Close.
func notWaitedForDerived(r *Rank) {
	one, two := make([]int32, 1), make([]int32, 1)
	started := func(p *cohort.Persistent, err error) error {
		r.OK(err)
		return p.Start()
	}
	first := ""
	for _, o := range []struct {
		name      string
		peer, tag int
		start     func(c *cohort.Comm) error
	}{
		{"iallreduce", cohort.Undefined, cohort.Undefined, func(c *cohort.Comm) error { _, err := cohort.Iallreduce(c, one, two, cohort.Sum); return err }},
		{"irecv", r.Rank, 7, func(c *cohort.Comm) error { _, err := cohort.Irecv(c, one, r.Rank, 7); return err }},
		{"isendrecv", r.Rank, 7, func(c *cohort.Comm) error { _, err := cohort.Isendrecv(c, one, r.Rank, 8, two, r.Rank, 7); return err }},
		{"recvinit", r.Rank, 7, func(c *cohort.Comm) error { return started(cohort.RecvInit(c, one, r.Rank, 7)) }},
		{"ibcast", 0, cohort.Undefined, func(c *cohort.Comm) error { _, err := cohort.Ibcast(c, one, 0); return err }},
		{"ibarrier", cohort.Undefined, cohort.Undefined, func(c *cohort.Comm) error { _, err := c.Ibarrier(); return err }},
		{"allgatherinit", cohort.Undefined, cohort.Undefined, func(c *cohort.Comm) error { return started(cohort.AllgatherInit(c, one, make([]int32, r.Size))) }},
	} {
		c := must(r.World.Dup())
		r.OK(o.start(c))
		r.OK(c.Barrier())
		r.OK(r.World.Barrier())
		r.unwaited(c.Close(), c.Name(), o.name, o.peer, o.tag)
		first = cmp.Or(first, c.Name())
	}
	r.unwaited(r.World.Close(), first, "iallreduce", cohort.Undefined, cohort.Undefined)
}

// forget drops a persistent operation that was never started, one that is complete, and one that is under way. A
// receive is completed by the send that follows it.
func (r *Rank) forget(setups ...func() (*cohort.Persistent, error)) {
	for starts := range 3 {
		var started []*cohort.Persistent
		for _, setup := range setups {
			if p := must(setup()); starts > 0 {
				r.OK(p.Start())
				started = append(started, p)
			}
		}
		for _, p := range started {
			if starts == 1 {
				must(p.Wait())
			}
		}
	}
}

// forgetFamilies does so with collectives, and with their nonblocking form.
func forgetFamilies(r *Rank, c *cohort.Comm, families []family[int32]) {
	for _, f := range families {
		defined := func() *args[int32] { // with buffers of its own: the operations before may be under way
			a := &args[int32]{shape: shape{m: 100}, rank: r.Rank, size: r.Size, kind: int32s, op: cohort.Sum, fold: func(a, b int32) int32 { return a + b }}
			f.define(a)
			return a
		}
		must(f.start(c, defined()))
		r.forget(func() (*cohort.Persistent, error) { return f.setup(c, defined()) })
	}
}

// forgetMessages does so with messages, in all ways that do not block. All are received, except for one receive that no
// message comes for.
func forgetMessages(r *Rank, c *cohort.Comm) {
	buf := func() []int32 { return make([]int32, 100) }
	drop := func(_ *cohort.Request, err error) { r.OK(err) }
	posted := func(w way[int32]) bool { return !w.posted || w.any }
	sends, recvs := slices.DeleteFunc(sendWays[int32](), posted), slices.DeleteFunc(recvWays[int32](), posted)
	for i := range max(len(sends), len(recvs)) {
		recvs[i%len(recvs)].start(c, buf(), r.prev, i)
		sends[i%len(sends)].start(c, buf(), r.next, i)
	}
	drop(cohort.Isend(c, buf(), r.next, 105))
	m, _ := must2(c.Mprobe(r.prev, 105))
	drop(cohort.ImessageRecv(m, buf()))
	drop(cohort.Irecv(c, buf(), cohort.AnySource, 106))
	for _, send := range []func(*cohort.Comm, []int32, int, int) (*cohort.Persistent, error){cohort.SendInit[int32], cohort.SsendInit[int32]} {
		r.forget(
			func() (*cohort.Persistent, error) { return cohort.RecvInit(c, buf(), r.prev, 107) },
			func() (*cohort.Persistent, error) { return send(c, buf(), r.next, 107) })
	}
	w := must(cohort.NewWindow[int32](c, 200))
	g := must(w.Lock(cohort.LockShared, r.next))
	drop(w.Rput(buf(), r.next, 0))
	drop(w.Rget(buf(), r.next, 100))
	r.OK(g.Unlock())
	r.OK(w.Close())
}

// collect runs the collector until it has found what the caller dropped, and the finalizers of that have run. A pool
// keeps an object for two collections, and a finalizer an object for one more.
func collect() {
	for range 4 {
		found := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(found) })
		for waiting := true; waiting; {
			runtime.GC()
			select {
			case <-found:
				waiting = false
			default:
				runtime.Gosched()
			}
		}
	}
}
