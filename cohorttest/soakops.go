package cohorttest

import (
	"context"
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
	operations := []func(){p.collective, p.collective, p.collective, p.barrier, p.shift, p.pair, p.pair, p.exchange, p.fanIn, p.burst, p.derive, p.window}
	operations[p.rng.IntN(len(operations))]()
	return nil
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
	for i, g := range got {
		if w := want(i); g != w {
			p.r.Errorf("operation %d, %s on %d ranks: element %d of %d is %d, want %d", p.step, p.what, p.c.Size(), i, len(got), g, w)
			return
		}
	}
}

// collective makes a collective call in a random form. While a nonblocking one is under way, messages may be exchanged.
func (p *player) collective() {
	b := draw(p.rng, p.c, p.length())
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

func (p *player) barrier() {
	p.what = "Barrier"
	p.r.OK(p.c.Barrier())
}

// sendrecv passes m elements to the next rank.
func (p *player) sendrecv(m int) {
	n, me := p.c.Size(), p.c.Rank()
	next, prev := (me+1)%n, (me+n-1)%n
	got := make([]int64, m)
	st := must(cohort.Sendrecv(p.c, p.data(me, m), next, p.step, got, prev, p.step))
	if k := cohort.Count[int64](st); k != m || st.Source != prev {
		p.r.Errorf("operation %d, %s: %d elements from rank %d, want %d from %d", p.step, p.what, k, st.Source, m, prev)
	}
	p.check(got, func(i int) int64 { return p.val(prev, i) })
}

// shift passes data around the ring, by one call or by persistent ones.
func (p *player) shift() {
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	if p.rng.IntN(2) == 0 {
		p.what = "Sendrecv"
		p.sendrecv(m)
		return
	}
	p.what = "persistent messages"
	prev, got := (me+n-1)%n, make([]int64, m)
	send := must(cohort.SendInit(p.c, p.data(me, m), (me+1)%n, p.step))
	recv := must(cohort.RecvInit(p.c, got, prev, p.step))
	for range 3 {
		clear(got)
		p.r.OK(cohort.StartAll(recv, send))
		p.r.OK(cohort.WaitAllPersistent(send, recv))
		p.check(got, func(i int) int64 { return p.val(prev, i) })
	}
	p.r.OK(send.Close())
	p.r.OK(recv.Close())
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

// exchange sends a message from every rank to every other, all at once.
func (p *player) exchange() {
	p.what = "nonblocking messages of all to all"
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	var reqs []*cohort.Request
	got := make([][]int64, n)
	for k := range n {
		from, to := (me+n-k)%n, (me+k)%n
		got[from] = make([]int64, m)
		q := must(cohort.Irecv(p.c, got[from], from, p.step))
		s := must(cohort.Isend(p.c, p.data(me*n+to, m), to, p.step))
		reqs = append(reqs, q, s)
	}
	p.r.OK(cohort.WaitAll(reqs...))
	for from, b := range got {
		p.check(b, func(i int) int64 { return p.val(from*n+me, i) })
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
		if got != [2]int64{int64(st.Source), next[st.Source]} {
			p.r.Errorf("operation %d, %s: got %v from rank %d, want number %d", p.step, p.what, got, st.Source, next[st.Source])
		}
		next[st.Source]++
	}
}

// burst calls many short collectives.
func (p *player) burst() {
	p.what = "many short Allreduces"
	n := p.c.Size()
	for k := range 1 + p.rng.IntN(40) {
		got := must(cohort.AllreduceOne(p.c, int64(k), cohort.Sum))
		p.check([]int64{got}, func(int) int64 { return int64(k * n) })
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
	if d.Size() != len(peers) || peers[d.Rank()] != me {
		p.r.Errorf("operation %d, %s: rank %d of %d for rank %d, want the ranks %v", p.step, p.what, d.Rank(), d.Size(), me, peers)
	}
	got := make([]int, len(peers))
	p.r.OK(cohort.Allgather(q.c, []int{me}, got))
	p.check([]int64{int64(got[0]), int64(got[len(got)-1])}, func(i int) int64 { return int64(peers[i*(len(peers)-1)]) })
	q.sendrecv(20)
	// Close fails operations of other ranks that are still under way.
	p.r.OK(p.c.Barrier())
	p.r.OK(d.Close())
}

// window makes a window, reads what a neighbor has written, and increments a counter
// under a lock.
func (p *player) window() {
	p.what = "a window"
	n, me := p.c.Size(), p.c.Rank()
	m := 1 + p.rng.IntN(1000)
	w := must(cohort.AllocateShared[int64](p.c, m)).WithContext(p.ctx)
	touch := func(rank int, do func(part []int64)) {
		p.mem.Lock()
		defer p.mem.Unlock()
		do(must(w.Remote(rank)))
	}
	touch(me, func(mine []int64) { copy(mine, p.data(me, m)) })
	p.r.OK(w.Fence())
	for rank := range n {
		touch(rank, func(theirs []int64) { p.check(theirs, func(i int) int64 { return p.val(rank, i) }) })
	}
	p.r.OK(w.Fence())
	g := must(w.Lock(cohort.LockExclusive, 0))
	touch(0, func(counter []int64) { counter[0]++ })
	p.r.OK(g.Unlock())
	p.r.OK(w.Fence())
	touch(0, func(counter []int64) { p.check(counter[:1], func(int) int64 { return p.val(0, 0) + int64(n) }) })
	p.r.OK(w.Close())
}
