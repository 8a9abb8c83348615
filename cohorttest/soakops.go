package cohorttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// The operations of a random job. All ranks draw the same operations and arguments from one
// seed. Every result is checked with the formula of the data.

// player does random operations on one communicator. An operation stops at the
// first call that fails. It reports wrong results and goes on.
type player struct {
	r    *Rank
	ctx  context.Context // of communicators and windows that operations make
	c    *cohort.Comm    // with ctx
	rng  *rand.Rand      // in the same state on all ranks between operations
	step int             // number of the operation: tag of its messages, and salt of its data
	what string          // the operation, for reports
	mem  *sync.Mutex     // held while it touches a window's memory, which must not be closed then
}

// on returns a player for another communicator that draws from the same generator.
func (p *player) on(c *cohort.Comm) *player {
	q := *p
	q.c = c.WithContext(p.ctx)
	return &q
}

// play does the next operation. It returns the error of the first call that fails.
func (p *player) play(step int) (err error) {
	defer func() {
		switch x := recover().(type) {
		case nil:
		case stop:
			err = x.err
		default:
			panic(x)
		}
	}()
	p.step = step
	operations := p.operations()
	operations[p.rng.IntN(len(operations))]()
	return nil
}

func (p *player) operations() []func() {
	return []func(){p.collective, p.collective, p.collective, p.pair, p.pair, p.exchange, p.fanIn, p.derive, p.graph, p.window}
}

// val is element i of what rank sends in this operation.
func (p *player) val(rank, i int) int64 { return int64(p.step*7919+rank*104729+i*31) % 100003 }

// data returns m elements of a rank.
func (p *player) data(rank, m int) []int64 {
	return filled(m, func(i int) int64 { return p.val(rank, i) })
}

// length draws how many elements a rank contributes.
func (p *player) length() int {
	return []int{0, 1, 1, 3, 5, 64, 64, 500, 1000, 8000, 40000}[p.rng.IntN(11)]
}

// check compares a result with what it must be.
func (p *player) check(got []int64, want func(i int) int64) {
	same(p.r, got, want, "operation %d, %s on %d ranks", p.step, p.what, p.c.Size())
}

// collective makes a collective call in a random form. While a nonblocking one is under way, messages may be exchanged.
func (p *player) collective() {
	b := draw(p.rng, p.c, nil, p.length())
	form, beside := p.rng.IntN(4), p.rng.IntN(2) == 0
	how := forms[max(form-1, 0)]
	p.what = b.name(how)
	if how != nonblocking {
		p.r.OK(b.run(p.r, how))
		return
	}
	q := must(b.start())
	if beside {
		p.sendrecv(10)
	}
	must(q.Wait())
	b.verify(p.r, how)
}

// sendrecv passes m elements to the next rank.
func (p *player) sendrecv(m int) {
	n, me := p.c.Size(), p.c.Rank()
	next, prev := (me+1)%n, (me+n-1)%n
	got := make([]int64, m)
	st := must(cohort.Sendrecv(p.c, p.data(me, m), next, p.step, got, prev, p.step))
	status[int64](p.r, st, prev, p.step, m, "operation %d, %s", p.step, p.what)
	p.check(got, func(i int) int64 { return p.val(prev, i) })
}

// pair sends one message from one rank to another, in random ways.
func (p *player) pair() {
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	sends, recvs := sendWays[int64](), recvWays[int64]()
	recvs = slices.DeleteFunc(recvs, func(w way[int64]) bool { return w.any }) // which might take the next operation's message
	from, send, recv := p.rng.IntN(n), sends[p.rng.IntN(len(sends))], recvs[p.rng.IntN(len(recvs))]
	p.what = fmt.Sprintf("a message, sent by %s and received by %s", send.name, recv.name)
	if n == 1 {
		return
	}
	switch to := (from + 1 + p.rng.IntN(n-1)) % n; me {
	case from:
		must(send.start(p.c, p.data(me, m), to, p.step)())
	case to:
		got := make([]int64, m)
		st := must(recv.start(p.c, got, from, p.step)())
		status[int64](p.r, st, from, p.step, m, "operation %d, %s", p.step, p.what)
		p.check(got, func(i int) int64 { return p.val(from, i) })
	}
}

// exchange sends messages from every rank to others, all at once.
func (p *player) exchange() {
	p.what = "nonblocking messages"
	x := exchangeAll(p.r, p.rng, 2*p.c.Size(), p.step<<8, p.c)
	p.r.OK(cohort.WaitAll(x.reqs...))
	for i, check := range x.recvs {
		check(must(x.reqs[i].Wait()))
	}
}

// fanIn has all ranks send to one, which receives from any source: the messages of one rank
// in their order.
func (p *player) fanIn() {
	p.what = "messages from any source"
	n, me, root := p.c.Size(), p.c.Rank(), p.rng.IntN(p.c.Size())
	each := 1 + p.rng.IntN(20)
	if me != root {
		for k := range each {
			p.r.OK(cohort.Send(p.c, []int64{int64(me), int64(k)}, root, p.step))
		}
		return
	}
	next := make([]int64, n)
	for range each * (n - 1) {
		var got [2]int64
		st := must(cohort.Recv(p.c, got[:], cohort.AnySource, p.step))
		equal(p.r, got, [2]int64{int64(st.Source), next[st.Source]}, "operation %d, %s", p.step, p.what)
		next[st.Source]++
	}
}

// derive makes a communicator, uses it, and closes it when all ranks have used it.
func (p *player) derive() {
	n, me := p.c.Size(), p.c.Rank()
	var d *cohort.Comm
	var peers []int
	if p.rng.IntN(2) == 0 {
		p.what = "Dup"
		d, peers = must(p.c.Dup()), each(n, func(rank int) int { return rank })
	} else {
		p.what = "Split"
		d = must(p.c.Split(me%2, -me))
		for rank := n - 1; rank >= 0; rank-- {
			if rank%2 == me%2 {
				peers = append(peers, rank)
			}
		}
	}
	q := p.on(d)
	got := make([]int, d.Size())
	p.r.OK(cohort.Allgather(q.c, []int{me}, got))
	equalSlices(p.r, got, peers, "operation %d, the ranks of a communicator by %s", p.step, p.what)
	equal(p.r, got[d.Rank()], me, "operation %d, rank %d by %s", p.step, d.Rank(), p.what)
	q.sendrecv(20)
	// Close fails operations of other ranks that are still under way.
	p.r.OK(p.c.Barrier())
	p.r.OK(d.Close())
}

// graph makes a graph, and a collective call on it.
func (p *player) graph() {
	p.what = "GraphCreate"
	h := ringOn(p.r, p.c)
	how := forms[p.rng.IntN(len(forms))]
	b := draw(p.rng, nil, h, p.length())
	p.what = b.name(how)
	p.r.OK(b.run(p.r, how))
	p.r.OK(p.c.Barrier())
	p.r.OK(h.close())
}

// window makes a window, reads what all ranks have written to their neighbors' parts, and increments a counter with and
// without a lock.
func (p *player) window() {
	p.what = "a window"
	n, me := p.c.Size(), p.c.Rank()
	m, all := 1+p.rng.IntN(1000), makers[int64](p.c)
	w := must(all[p.rng.IntN(len(all))](p.c, m)).WithContext(p.ctx)
	inPlace := func(rank int, do func(part []int64)) {
		p.mem.Lock()
		defer p.mem.Unlock()
		if part, err := w.Remote(rank); !errors.Is(err, cohort.ErrWin) {
			p.r.OK(err)
			do(part)
		}
	}
	p.r.OK(w.Put(p.data(me, m), (me+1)%n, 0))
	p.r.OK(w.Fence())
	for rank := range n {
		want := func(i int) int64 { return p.val((rank+n-1)%n, i) }
		got := make([]int64, m)
		p.r.OK(w.Get(got, rank, 0))
		p.check(got, want)
		inPlace(rank, func(part []int64) { p.check(part, want) })
	}
	p.r.OK(w.Fence())
	g := must(w.Lock(cohort.LockExclusive, 0))
	counter := make([]int64, 1)
	p.r.OK(w.Get(counter, 0, 0))
	counter[0]++
	p.r.OK(w.Put(counter, 0, 0))
	p.r.OK(g.Unlock())
	p.r.OK(w.Fence())
	must(w.FetchAndOp(1, 0, 0, cohort.Sum))
	p.r.OK(w.Fence())
	p.r.OK(w.Get(counter, 0, 0))
	p.check(counter, func(int) int64 { return p.val(n-1, 0) + 2*int64(n) })
	p.r.OK(w.Fence())
	p.r.OK(w.Close())
}
