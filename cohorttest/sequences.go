package cohorttest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// Collectives one after the other, and several at the same time.

func sequenceScenarios() []scenario {
	return []scenario{
		{name: "sequence/back-to-back", body: backToBack},
		{name: "sequence/rotating-root", body: rotatingRoot},
		{name: "sequence/two-communicators", body: twoCommunicators},
		{name: "sequence/outstanding", body: outstanding},
		{name: "sequence/persistent-set", body: persistentSet},
		{name: "sequence/with-posted-receive", body: besideMessages},
		{name: "sequence/inside-blocking-calls", sizes: atLeast(2), body: insideBlockingCalls},
		{name: "sequence/goroutines", body: collectiveGoroutines},
	}
}

// backToBack calls many different collectives with the same buffers and nothing between
// them. A backend that lets a call overtake the one before it would corrupt the data of
// a slow rank.
func backToBack(r *Rank) {
	c, n, me := r.Comm, r.Size, r.Rank
	rounds := 300
	if r.Short {
		rounds = 60
	}
	one, all, sum := make([]int64, 1), make([]int64, n), make([]int64, 1)
	for k := range rounds {
		base := int64(k * 1000)
		one[0] = base + int64(me)
		switch k % 6 {
		case 0:
			r.OK(cohort.Allreduce(c, one, sum, cohort.Sum))
			if want := int64(n)*base + int64(n*(n-1)/2); sum[0] != want {
				r.Errorf("round %d: Allreduce %d, want %d", k, sum[0], want)
			}
		case 1:
			r.OK(cohort.Allgather(c, one, all))
			same(r, all, func(i int) int64 { return base + int64(i) }, "round %d: Allgather", k)
		case 2:
			root := k % n
			r.OK(cohort.Bcast(c, one, root))
			if one[0] != base+int64(root) {
				r.Errorf("round %d: Bcast %d, want %d", k, one[0], base+int64(root))
			}
		case 3:
			root := k % n
			r.OK(cohort.Reduce(c, one, sum, cohort.Max, root))
			if want := base + int64(n-1); me == root && sum[0] != want {
				r.Errorf("round %d: Reduce %d, want %d", k, sum[0], want)
			}
		case 4:
			for i := range all {
				all[i] = base + int64(me*100+i)
			}
			r.OK(cohort.Alltoall(c, all, all))
			same(r, all, func(i int) int64 { return base + int64(i*100+me) }, "round %d: Alltoall", k)
		case 5:
			r.OK(c.Barrier())
			r.OK(cohort.Scan(c, one, sum, cohort.Min))
			if sum[0] != base {
				r.Errorf("round %d: Scan %d, want %d", k, sum[0], base)
			}
		}
	}
}

// rotatingRoot changes the root's buffer as soon as the broadcast has returned.
func rotatingRoot(r *Rank) {
	for _, m := range []int{1, 5000} {
		buf := make([]int32, m)
		for k := range 40 {
			root := k % r.Size
			if k%2 == 1 {
				root = 0
			}
			for i := range buf {
				buf[i] = -1
				if r.Rank == root {
					buf[i] = int32(k*m + i)
				}
			}
			r.OK(cohort.Bcast(r.Comm, buf, root))
			same(r, buf, func(i int) int32 { return int32(k*m + i) }, "broadcast %d from %d", k, root)
		}
	}
}

// twoCommunicators interleaves the collectives of two communicators. The second numbers
// the ranks in reverse.
func twoCommunicators(r *Rank) {
	a, n, me := r.Comm, r.Size, r.Rank
	b := must(a.Split(0, n-me))
	defer func() { r.OK(b.Close()) }()
	if b.Rank() != n-1-me {
		r.Errorf("rank %d in the reversed communicator, want %d", b.Rank(), n-1-me)
	}
	var reqs []*cohort.Request
	var check []func()
	for k := range 30 {
		sa, sb := make([]int32, 1), make([]int32, n)
		ra, err := cohort.Iscan(a, []int32{int32(me + k)}, sa, cohort.Sum)
		r.OK(err)
		rb := must(cohort.Iallgather(b, []int32{int32(me * k)}, sb))
		x, err := cohort.BcastOne(b, me, 0) // rank n-1 of a
		r.OK(err)
		if x != n-1 {
			r.Errorf("round %d: rank 0 of the reversed communicator sent %d, want %d", k, x, n-1)
		}
		if y := must(cohort.BcastOne(a, me, 0)); y != 0 {
			r.Errorf("round %d: rank 0 sent %d, want 0", k, y)
		}
		reqs = append(reqs, rb, ra)
		check = append(check, func() {
			if want := int32(me*(me+1)/2 + (me+1)*k); sa[0] != want {
				r.Errorf("round %d: Iscan %d, want %d", k, sa[0], want)
			}
			same(r, sb, func(i int) int32 { return int32((n - 1 - i) * k) }, "round %d: Iallgather", k)
		})
	}
	r.OK(cohort.WaitAll(reqs...))
	for _, f := range check {
		f()
	}
}

// outstanding has many nonblocking collectives of one communicator under way at once,
// and completes them in an order that differs from rank to rank. Rank 0 first waits for a message that the last
// rank sends when it has completed them.
func outstanding(r *Rank) {
	for _, m := range []int{3, 700} {
		outstandingOf(r, m)
	}
}

func outstandingOf(r *Rank, m int) {
	c, n, me := r.Comm, r.Size, r.Rank
	const k = 48
	reqs := make([]*cohort.Request, k)
	bufs := make([][]int64, k)
	for i := range reqs {
		var err error
		bufs[i] = filled(m, func(j int) int64 { return int64(i*1000000 + j*10 + me) })
		switch i % 3 {
		case 0:
			reqs[i], err = cohort.Iallreduce(c, bufs[i], bufs[i], cohort.Sum)
		case 1:
			reqs[i], err = cohort.Ibcast(c, bufs[i], i%n)
		case 2:
			reqs[i], err = cohort.Iscan(c, bufs[i], bufs[i], cohort.Max)
		}
		r.OK(err)
	}
	if me == 0 && n > 1 {
		must(cohort.Recv(c, make([]int8, 0), n-1, m))
	}
	order := seeded(fmt.Sprint(r.scenario, me), n).Perm(k)
	for _, i := range order {
		must(reqs[i].Wait())
		for j, x := range bufs[i] {
			base := int64(i*1000000 + j*10)
			want := [3]int64{int64(n)*base + int64(n*(n-1)/2), base + int64(i%n), base + int64(me)}[i%3]
			if x != want {
				r.Errorf("operation %d: element %d is %d, want %d", i, j, x, want)
				break
			}
		}
	}
	if me == n-1 && n > 1 {
		r.OK(cohort.Send(c, []int8{}, 0, m))
	}
}

// persistentSet starts several persistent operations together, many times with other
// data, and calls other collectives on the communicator in between.
func persistentSet(r *Rank) {
	c, n, me := r.Comm, r.Size, r.Rank
	next, prev := (me+1)%n, (me+n-1)%n
	sum, gathered := make([]int64, 3), make([]int64, n)
	in, out, token := make([]int64, 3), make([]int64, 1), make([]int64, 1)
	var ops []*cohort.Persistent
	add := func(p *cohort.Persistent, err error) {
		r.OK(err)
		ops = append(ops, p)
	}
	add(cohort.AllreduceInit(c, in, sum, cohort.Sum))
	add(cohort.AllgatherInit(c, out, gathered))
	add(cohort.SendInit(c, out, next, 5))
	add(cohort.RecvInit(c, token, prev, 5))
	for k := range 20 {
		for i := range in {
			in[i] = int64(k*100 + me + i)
		}
		out[0] = int64(k*n + me)
		if k%2 == 0 {
			r.OK(cohort.StartAll(ops...))
		} else {
			for _, p := range ops {
				r.OK(p.Start())
			}
		}
		r.Is(ops[0].Start(), cohort.ErrRequest, "Start of a started operation")
		r.OK(cohort.WaitAllPersistent(ops...))
		same(r, sum, func(i int) int64 { return int64(n*(k*100+i) + n*(n-1)/2) }, "round %d: sum", k)
		same(r, gathered, func(i int) int64 { return int64(k*n + i) }, "round %d: gathered", k)
		if want := int64(k*n + prev); token[0] != want {
			r.Errorf("round %d: token %d, want %d", k, token[0], want)
		}
		if x := must(cohort.AllreduceOne(c, 1, cohort.Sum)); x != n {
			r.Errorf("round %d: %d ranks, want %d", k, x, n)
		}
	}
	// Waiting for and testing one that is not started returns at once.
	if _, err := ops[0].Wait(); err != nil {
		r.Errorf("Wait of an operation that is not started: %v", err)
	}
	if _, done, err := ops[1].Test(); !done || err != nil {
		r.Errorf("Test of an operation that is not started: %v, %v", done, err)
	}
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
	other := must(r.Comm.Dup())
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
	r.OK(other.Close())
}

// besideMessages runs collectives on a communicator on which a receive from any source
// with any tag is posted. The receive must match user messages only.
func besideMessages(r *Rank) {
	c, n, me := r.Comm, r.Size, r.Rank
	got := make([]int32, 8)
	req := must(cohort.Irecv(c, got, cohort.AnySource, cohort.AnyTag))
	buf := make([]int32, 3000)
	for k := range 10 {
		for i := range buf {
			buf[i] = int32(me + i)
		}
		ir := must(cohort.Iallreduce(c, buf, buf, cohort.Max))
		r.OK(c.Barrier())
		must(ir.Wait())
		same(r, buf, func(i int) int32 { return int32(n - 1 + i) }, "round %d", k)
	}
	if _, done, err := req.Test(); done || err != nil {
		r.Errorf("a receive matched a collective's message: %v, %v", done, err)
	}
	if st, found, err := c.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("Iprobe found a collective's message: %v, %v", st, err)
	}
	r.OK(c.Barrier())
	r.OK(cohort.Send(c, []int32{int32(me), 42}, (me+1)%n, 3))
	st := must(req.Wait())
	if prev := (me + n - 1) % n; st.Source != prev || st.Tag != 3 || cohort.Count[int32](st) != 2 || got[0] != int32(prev) || got[1] != 42 {
		r.Errorf("got %v (%d elements) %v, want 2 from %d", st, cohort.Count[int32](st), got[:2], prev)
	}
}

// collectiveGoroutines has several goroutines of every rank call collectives at the same
// time, each on another communicator, while one more exchanges messages.
func collectiveGoroutines(r *Rank) {
	n, me := r.Size, r.Rank
	next, prev := r.ring()
	const workers = 4
	rounds := 40
	if r.Short {
		rounds = 12
	}
	comms := filled(workers, func(w int) *cohort.Comm { return must(r.Comm.Dup()) })
	errs := make([]error, workers+1)
	var wg sync.WaitGroup
	for w, c := range comms {
		wg.Go(func() {
			m := []int{1, 40, 3000, 20000}[w]
			buf, all := make([]int64, m), make([]int64, n*m)
			for k := range rounds {
				for i := range buf {
					buf[i] = int64(w*1000000 + k*1000 + me)
				}
				if errs[w] = cohort.Allgather(c, buf, all); errs[w] != nil {
					return
				}
				same(r, all, func(i int) int64 { return int64(w*1000000 + k*1000 + i/m) }, "goroutine %d, round %d: Allgather", w, k)
				if errs[w] = cohort.Allreduce(c, buf, buf, cohort.Max); errs[w] != nil {
					return
				}
				if want := int64(w*1000000 + k*1000 + n - 1); buf[0] != want || buf[m-1] != want {
					r.Errorf("goroutine %d, round %d: Allreduce gives %d and %d, want %d", w, k, buf[0], buf[m-1], want)
				}
			}
		})
	}
	wg.Go(func() {
		got := make([]int64, 1)
		for k := range rounds * 4 {
			if _, errs[workers] = cohort.Sendrecv(r.Comm, []int64{int64(k*1000 + me)}, next, k, got, prev, k); errs[workers] != nil {
				return
			}
			if want := int64(k*1000 + prev); got[0] != want {
				r.Errorf("message %d beside collectives: %d, want %d", k, got[0], want)
			}
		}
	})
	wg.Wait()
	r.OK(errors.Join(errs...))
	for _, c := range comms {
		r.OK(c.Close())
	}
}
