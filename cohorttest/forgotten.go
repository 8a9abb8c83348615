package cohorttest

import (
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// forgotten starts operations of every kind and drops their requests: none has Wait or Close called. Then it closes
// their communicator, or drops that too. A backend that lends their buffers to a library must keep them in place until the
// library has done with them: the runtime ends a process that lets the collector find a pinned buffer.
func forgotten(r *Rank) {
	for _, closes := range []bool{true, false} {
		c, err := r.Comm.Dup()
		r.OK(err)
		forgetMessages(r, c)
		forgetFamilies(r, c, moves[int32]())
		forgetFamilies(r, c, reductions[int32]())
		_, err = c.Ibarrier()
		r.OK(err)
		r.forget(c.BarrierInit)
		r.OK(r.Comm.Barrier())
		collect()
		if closes {
			r.OK(c.Close())
		}
	}
	first := true // a ring; the others are no different here
	neighborhoods(r, func(h *neighborhood) {
		if !first {
			return
		}
		first = false
		forgetFamilies(r, r.Comm, neighborFamilies[int32](h))
		r.OK(h.on.(interface{ Barrier() error }).Barrier()) // a rank that closes it ends what the others wait for
	})
	collect()
}

// forget drops a persistent operation that was never started, one that is complete, and one that is under way. A
// receive is completed by the send that follows it.
func (r *Rank) forget(setups ...func() (*cohort.Persistent, error)) {
	for starts := range 3 {
		var started []*cohort.Persistent
		for _, setup := range setups {
			p, err := setup()
			r.OK(err)
			if starts > 0 {
				r.OK(p.Start())
				started = append(started, p)
			}
		}
		for _, p := range started {
			if starts == 1 {
				_, err := p.Wait()
				r.OK(err)
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
		_, err := f.start(c, defined())
		r.OK(err)
		r.forget(func() (*cohort.Persistent, error) { return f.setup(c, defined()) })
	}
}

// forgetMessages does so with messages. All are received, except for one receive that no message comes for.
func forgetMessages(r *Rank, c *cohort.Comm) {
	next, prev := r.ring()
	buf := func() []int32 { return make([]int32, 100) }
	view := func() cohort.View[int32] { return cohort.ViewOf(buf(), cohort.Vector(10, 1, 10)) }
	drop := func(_ *cohort.Request, err error) { r.OK(err) }
	drop(cohort.Irecv(c, buf(), prev, 1))
	drop(cohort.Isend(c, buf(), next, 1))
	drop(cohort.Irecv(c, buf(), prev, 2))
	drop(cohort.Issend(c, buf(), next, 2))
	drop(cohort.IrecvView(c, view(), prev, 3))
	drop(cohort.IsendView(c, view(), next, 3))
	drop(cohort.Isendrecv(c, buf(), next, 4, buf(), prev, 4))
	drop(cohort.Isend(c, buf(), next, 5))
	m, _, err := c.Mprobe(prev, 5)
	r.OK(err)
	drop(cohort.ImessageRecv(m, buf()))
	drop(cohort.Irecv(c, buf(), cohort.AnySource, 6))
	for _, send := range []func(*cohort.Comm, []int32, int, int) (*cohort.Persistent, error){cohort.SendInit[int32], cohort.SsendInit[int32]} {
		r.forget(
			func() (*cohort.Persistent, error) { return cohort.RecvInit(c, buf(), prev, 7) },
			func() (*cohort.Persistent, error) { return send(c, buf(), next, 7) })
	}
	w, err := cohort.NewWindow[int32](c, 200)
	r.OK(err)
	r.OK(w.Lock(cohort.LockShared, next))
	drop(w.Rput(buf(), next, 0))
	drop(w.Rget(buf(), next, 100))
	r.OK(w.Unlock(next))
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
