package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cohort-hpc/cohort"
)

// Collectives one after the other, and several at the same time.

// backToBack calls different collectives one after the other, and changes the buffers of each as soon as it has returned.
// A backend that lets a call overtake the one before it, or uses a buffer after it, would corrupt the data of a slow rank.
func backToBack(r *Rank) {
	h, rng := aRing(r), seeded(r.scenario, r.Size)
	calls := filled(30, func(i int) *bound { return draw(rng, nil, h, []int{1, 1, 5000}[i%3]) })
	for range r.pick(160, 600) {
		b := calls[rng.IntN(len(calls))]
		r.OK(b.once(blocking))
		b.verify(r, blocking)
		b.renew()
	}
}

// outstanding has many nonblocking collectives of one communicator under way at once,
// and completes them in an order that differs from rank to rank. Rank 0 first waits for a message that the last
// rank sends when it has completed them.
func outstanding(r *Rank) {
	last, h, rng := r.Size-1, aRing(r), seeded(r.scenario, r.Size)
	for _, m := range []int{3, 700, 20000} {
		k := 48
		if m > 700 {
			k = r.pick(12, k)
		}
		calls := filled(k, func(int) *bound { return draw(rng, nil, h, m) })
		reqs := filled(k, func(i int) *cohort.Request { return must(calls[i].start()) })
		if r.Rank == 0 && last > 0 {
			must(cohort.Recv(r.Comm, make([]int8, 0), last, m))
		}
		for _, i := range seeded(fmt.Sprint(r.scenario, r.Rank), r.Size).Perm(k) {
			must(reqs[i].Wait())
			calls[i].verify(r, nonblocking)
		}
		if r.Rank == last && last > 0 {
			r.OK(cohort.Send(r.Comm, []int8{}, 0, m))
		}
	}
}

// persistentSet starts several persistent operations together, many times with other
// data, and calls other collectives on the communicator in between.
func persistentSet(r *Rank) {
	const k = 6
	h, rng, own := aRing(r), seeded(r.scenario, r.Size), seeded(fmt.Sprint(r.scenario, r.Rank), r.Size)
	calls := filled(k, func(i int) *bound { return draw(rng, nil, h, []int{3, 3000}[i%2]) })
	ops := filled(k, func(i int) *cohort.Persistent { return must(calls[i].setup()) })
	token, got := make([]int, 1), make([]int, 1)
	ops = append(ops, must(cohort.SendInit(r.Comm, token, r.next, 5)), must(cohort.RecvInit(r.Comm, got, r.prev, 5)))
	for round := range 20 {
		token[0] = 100*round + r.Rank
		if round%2 == 0 {
			r.OK(cohort.StartAll(ops...))
		} else {
			for _, i := range own.Perm(len(ops)) { // in another order on each rank
				r.OK(ops[i].Start())
			}
		}
		r.Is(ops[0].Start(), cohort.ErrRequest, "Start of a started operation")
		if round%4 > 1 {
			for _, i := range own.Perm(len(ops)) {
				must(ops[i].Wait())
			}
		}
		r.OK(cohort.WaitAllPersistent(ops...))
		for _, b := range calls {
			b.verify(r, persistent)
			b.renew()
		}
		equal(r, got[0], 100*round+r.prev, "round %d: token", round)
		equal(r, must(cohort.AllreduceOne(r.Comm, 1, cohort.Sum)), r.Size, "round %d: ranks", round)
	}
	// Waiting for and testing one that is not started returns at once.
	must(ops[0].Wait())
	_, done := must2(ops[1].Test())
	equal(r, done, true, "Test of an operation that is not started")
	for _, p := range ops {
		r.OK(p.Close())
		r.OK(p.Close())
		r.Is(p.Start(), cohort.ErrClosed, "Start after Close")
	}
}

// insideBlockingCalls has rank 0 make a blocking call while a collective is in progress that the other ranks wait
// for before they take part in the call. So the collective must go on inside it (MPI-4.1 section 6.12). It has a user
// operation, so every backend makes it of messages.
func insideBlockingCalls(r *Rank) {
	const tag = 3
	n, me, last := r.Size, r.Rank, r.Size-1
	other := r.dup()
	add := cohort.NewOp(true, func(in, inout []int64) {
		for i, x := range in {
			inout[i] += x
		}
	})
	one, x := []int64{1}, make([]int64, 70001)
	send := func() error { return cohort.Send(other, one, 0, tag) }
	recv := func() error { return errorOf(cohort.Recv(other, one, cohort.AnySource, tag)) }
	between := func(first, last func() error) func() error { // a call of rank 0, and the one of the last rank
		return func() error {
			switch me {
			case 0:
				return first()
			case n - 1:
				return last()
			}
			return nil
		}
	}
	for _, call := range []struct {
		name string
		do   func() error
	}{
		{"Recv", between(recv, send)},
		{"Ssend", between(func() error { return cohort.Ssend(other, one, last, tag) }, recv)},
		{"Probe", between(func() error { _, err := other.Probe(last, tag); return errors.Join(err, recv()) }, send)},
		{"Barrier", other.Barrier},
		{"Allreduce", func() error { return cohort.Allreduce(other, one, make([]int64, 1), cohort.Max) }},
		{"Bcast", func() error { return cohort.Bcast(other, make([]int64, 70001), last) }},
	} {
		for i := range x {
			x[i] = int64(me + i)
		}
		sum := must(cohort.Iallreduce(r.Comm, x, x, add))
		if me == 0 {
			r.OK(call.do())
		}
		must(sum.Wait())
		if me > 0 {
			r.OK(call.do())
		}
		same(r, x, func(i int) int64 { return int64(n*i + n*(n-1)/2) }, "%s", call.name)
	}
}

// besideMessages runs collectives on a communicator on which a receive from any source
// with any tag is posted. The receive must match user messages only.
func besideMessages(r *Rank) {
	got := make([]int32, 8)
	req := must(cohort.Irecv(r.Comm, got, cohort.AnySource, cohort.AnyTag))
	rng := seeded(r.scenario, r.Size)
	for range 10 {
		b := draw(rng, r.Comm, nil, 3000)
		q := must(b.start())
		r.OK(r.Comm.Barrier())
		must(q.Wait())
		b.verify(r, nonblocking)
	}
	_, done := must2(req.Test())
	equal(r, done, false, "a receive of a user message, which matches no collective's")
	r.noMessage("a collective's message")
	r.OK(cohort.Send(r.Comm, []int32{int32(r.Rank), 42}, r.next, 3))
	status[int32](r, must(req.Wait()), r.prev, 3, 2, "the receive beside collectives")
	equal(r, [2]int32(got), [2]int32{int32(r.prev), 42}, "the message beside collectives")
}

// collectiveGoroutines has several goroutines of every rank call collectives at the same
// time, each on another communicator, while one more exchanges messages.
func collectiveGoroutines(r *Rank) {
	comms, rngs := filled(4, func(int) *cohort.Comm { return r.dup() }), filled(4, func(w int) *rand.Rand { return seeded(fmt.Sprint(r.scenario, w), r.Size) })
	got := make([]int, 1)
	together(r, 5, r.pick(12, 40), func(w, k int) (err error) {
		if w < 4 {
			return draw(rngs[w], comms[w], nil, []int{1, 40, 3000, 20000}[w]).run(r, forms[k%len(forms)])
		}
		for i := 0; i < 4 && err == nil; i++ {
			_, err = cohort.Sendrecv(r.Comm, []int{1000*k + r.Rank}, r.next, i, got, r.prev, i)
			equal(r, got[0], 1000*k+r.prev, "message %d beside collectives", k)
		}
		return err
	})
}
