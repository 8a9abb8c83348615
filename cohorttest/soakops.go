package cohorttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// The operations of a random job. All ranks draw the same operations and arguments from one
// seed. Every result is checked with the formula of the data.

// player does random operations on one communicator. An operation returns the error of the
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

// play does the next operation.
func (p *player) play(step int) error {
	p.step = step
	switch p.rng.IntN(12) {
	case 0, 1, 2, 3:
		return p.collective()
	case 4:
		return p.shift()
	case 5, 6:
		return p.pair()
	case 7:
		return p.exchange()
	case 8:
		return p.fanIn()
	case 9:
		return p.burst()
	case 10:
		return p.derive()
	default:
		return p.window()
	}
}

// val is element i of what rank sends in this operation.
func (p *player) val(rank, i int) int64 { return int64(p.step*7919+rank*104729+i*31) % 100003 }

// data returns m elements of a rank.
func (p *player) data(rank, m int) []int64 {
	b := make([]int64, m)
	for i := range b {
		b[i] = p.val(rank, i)
	}
	return b
}

// sum is element i of the sum over the first n ranks.
func (p *player) sum(n, i int) (s int64) {
	for rank := range n {
		s += p.val(rank, i)
	}
	return s
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

// ways are the three forms of one collective call.
type ways struct {
	block   func() error
	begin   func() (*cohort.Request, error)
	prepare func() (*cohort.Persistent, error)
}

// run makes a call in a random form, a persistent one twice. While a nonblocking one is
// under way, messages may be exchanged.
func (p *player) run(f ways) error {
	form, beside := p.rng.IntN(4), p.rng.IntN(2) == 0
	switch form {
	case 0:
		p.what += ", nonblocking"
		q, err := f.begin()
		if err != nil {
			return err
		}
		if beside {
			if err := p.sendrecv(10); err != nil {
				return err
			}
		}
		_, err = q.Wait()
		return err
	case 1:
		p.what += ", persistent"
		q, err := f.prepare()
		if err != nil {
			return err
		}
		for range 2 {
			if err := q.Start(); err != nil {
				return err
			}
			if _, err := q.Wait(); err != nil {
				return err
			}
		}
		return q.Close()
	}
	return f.block()
}

// collective makes one of the collective calls.
func (p *player) collective() error {
	c, n, me, m := p.c, p.c.Size(), p.c.Rank(), p.length()
	kind, root := p.rng.IntN(11), p.rng.IntN(n)
	mine, all := p.data(me, m), make([]int64, m*n)
	recv := make([]int64, m)
	// part returns element i of what rank from has for rank to, in a buffer with m elements
	// for each rank.
	part := func(from, to, i int) int64 { return p.val(from, to*m+i) }
	var f ways
	var got []int64
	var want func(i int) int64
	switch kind {
	case 0:
		p.what = "Barrier"
		f = ways{c.Barrier, c.Ibarrier, c.BarrierInit}
	case 1:
		p.what, got = "Bcast", recv
		if me == root {
			got = p.data(root, m)
		}
		f = ways{func() error { return cohort.Bcast(c, got, root) },
			func() (*cohort.Request, error) { return cohort.Ibcast(c, got, root) },
			func() (*cohort.Persistent, error) { return cohort.BcastInit(c, got, root) }}
		want = func(i int) int64 { return p.val(root, i) }
	case 2:
		p.what = "Reduce"
		f = ways{func() error { return cohort.Reduce(c, mine, recv, cohort.Sum, root) },
			func() (*cohort.Request, error) { return cohort.Ireduce(c, mine, recv, cohort.Sum, root) },
			func() (*cohort.Persistent, error) { return cohort.ReduceInit(c, mine, recv, cohort.Sum, root) }}
		if me == root {
			got, want = recv, func(i int) int64 { return p.sum(n, i) }
		}
	case 3, 4:
		p.what, got = "Allreduce", recv
		f = ways{func() error { return cohort.Allreduce(c, mine, recv, cohort.Sum) },
			func() (*cohort.Request, error) { return cohort.Iallreduce(c, mine, recv, cohort.Sum) },
			func() (*cohort.Persistent, error) { return cohort.AllreduceInit(c, mine, recv, cohort.Sum) }}
		want = func(i int) int64 { return p.sum(n, i) }
	case 5:
		p.what = "Gather"
		f = ways{func() error { return cohort.Gather(c, mine, all, root) },
			func() (*cohort.Request, error) { return cohort.Igather(c, mine, all, root) },
			func() (*cohort.Persistent, error) { return cohort.GatherInit(c, mine, all, root) }}
		if me == root {
			got, want = all, func(i int) int64 { return p.val(i/m, i%m) }
		}
	case 6:
		p.what, got = "Allgather", all
		f = ways{func() error { return cohort.Allgather(c, mine, all) },
			func() (*cohort.Request, error) { return cohort.Iallgather(c, mine, all) },
			func() (*cohort.Persistent, error) { return cohort.AllgatherInit(c, mine, all) }}
		want = func(i int) int64 { return p.val(i/m, i%m) }
	case 7:
		p.what, got = "Scatter", recv
		send := p.data(root, m*n)
		f = ways{func() error { return cohort.Scatter(c, send, recv, root) },
			func() (*cohort.Request, error) { return cohort.Iscatter(c, send, recv, root) },
			func() (*cohort.Persistent, error) { return cohort.ScatterInit(c, send, recv, root) }}
		want = func(i int) int64 { return part(root, me, i) }
	case 8:
		p.what, got = "Alltoall", all
		send := p.data(me, m*n)
		f = ways{func() error { return cohort.Alltoall(c, send, all) },
			func() (*cohort.Request, error) { return cohort.Ialltoall(c, send, all) },
			func() (*cohort.Persistent, error) { return cohort.AlltoallInit(c, send, all) }}
		want = func(i int) int64 { return part(i/m, me, i%m) }
	case 9:
		p.what, got = "Scan", recv
		f = ways{func() error { return cohort.Scan(c, mine, recv, cohort.Sum) },
			func() (*cohort.Request, error) { return cohort.Iscan(c, mine, recv, cohort.Sum) },
			func() (*cohort.Persistent, error) { return cohort.ScanInit(c, mine, recv, cohort.Sum) }}
		want = func(i int) int64 { return p.sum(me+1, i) }
	default:
		p.what, got = "ReduceScatterBlock", recv
		send := p.data(me, m*n)
		f = ways{func() error { return cohort.ReduceScatterBlock(c, send, recv, cohort.Sum) },
			func() (*cohort.Request, error) { return cohort.IreduceScatterBlock(c, send, recv, cohort.Sum) },
			func() (*cohort.Persistent, error) { return cohort.ReduceScatterBlockInit(c, send, recv, cohort.Sum) }}
		want = func(i int) int64 { return p.sum(n, me*m+i) }
	}
	if err := p.run(f); err != nil {
		return err
	}
	p.check(got, want)
	return nil
}

// sendrecv passes m elements to the next rank.
func (p *player) sendrecv(m int) error {
	n, me := p.c.Size(), p.c.Rank()
	next, prev := (me+1)%n, (me+n-1)%n
	got := make([]int64, m)
	st, err := cohort.Sendrecv(p.c, p.data(me, m), next, p.step, got, prev, p.step)
	if err != nil {
		return err
	}
	if k := cohort.Count[int64](st); k != m || st.Source != prev {
		p.r.Errorf("operation %d, %s: %d elements from rank %d, want %d from %d", p.step, p.what, k, st.Source, m, prev)
	}
	p.check(got, func(i int) int64 { return p.val(prev, i) })
	return nil
}

// shift passes data around the ring, by one call or by persistent ones.
func (p *player) shift() error {
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	if p.rng.IntN(2) == 0 {
		p.what = "Sendrecv"
		return p.sendrecv(m)
	}
	p.what = "persistent messages"
	prev, got := (me+n-1)%n, make([]int64, m)
	send, err := cohort.SendInit(p.c, p.data(me, m), (me+1)%n, p.step)
	if err != nil {
		return err
	}
	recv, err := cohort.RecvInit(p.c, got, prev, p.step)
	if err != nil {
		return err
	}
	for range 3 {
		clear(got)
		if err := cohort.StartAll(recv, send); err != nil {
			return err
		}
		if err := cohort.WaitAllPersistent(send, recv); err != nil {
			return err
		}
		p.check(got, func(i int) int64 { return p.val(prev, i) })
	}
	if err := send.Close(); err != nil {
		return err
	}
	return recv.Close()
}

// pair sends one message from one rank to another, in random modes.
func (p *player) pair() error {
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	from, mode, how := p.rng.IntN(n), p.rng.IntN(4), p.rng.IntN(5)
	p.what = fmt.Sprintf("a message, sent in mode %d and received in mode %d", mode, how)
	if n == 1 {
		return nil
	}
	to := (from + 1 + p.rng.IntN(n-1)) % n
	wait := func(q *cohort.Request, err error) error {
		if err == nil {
			_, err = q.Wait()
		}
		return err
	}
	if me == from {
		buf := p.data(me, m)
		switch mode {
		case 0:
			return cohort.Send(p.c, buf, to, p.step)
		case 1:
			return cohort.Ssend(p.c, buf, to, p.step)
		case 2:
			return wait(cohort.Isend(p.c, buf, to, p.step))
		}
		return wait(cohort.Issend(p.c, buf, to, p.step))
	}
	if me != to {
		return nil
	}
	got, err := make([]int64, m), error(nil)
	switch how {
	case 0:
		_, err = cohort.Recv(p.c, got, from, p.step)
	case 1:
		_, err = cohort.Recv(p.c, got, cohort.AnySource, p.step)
	case 2:
		err = wait(cohort.Irecv(p.c, got, from, p.step))
	case 3:
		got, _, err = cohort.RecvAlloc[int64](p.c, cohort.AnySource, p.step)
	default:
		if _, err = p.c.Probe(from, p.step); err == nil {
			_, err = cohort.Recv(p.c, got, from, p.step)
		}
	}
	if err != nil {
		return err
	}
	if len(got) != m {
		p.r.Errorf("operation %d, %s: %d elements, want %d", p.step, p.what, len(got), m)
	}
	p.check(got, func(i int) int64 { return p.val(from, i) })
	return nil
}

// exchange sends a message from every rank to every other, all at once.
func (p *player) exchange() error {
	p.what = "nonblocking messages of all to all"
	n, me, m := p.c.Size(), p.c.Rank(), p.length()
	var reqs []*cohort.Request
	got := make([][]int64, n)
	for k := range n {
		from, to := (me+n-k)%n, (me+k)%n
		got[from] = make([]int64, m)
		q, err := cohort.Irecv(p.c, got[from], from, p.step)
		if err != nil {
			return err
		}
		s, err := cohort.Isend(p.c, p.data(me*n+to, m), to, p.step)
		if err != nil {
			return err
		}
		reqs = append(reqs, q, s)
	}
	if err := cohort.WaitAll(reqs...); err != nil {
		return err
	}
	for from, b := range got {
		p.check(b, func(i int) int64 { return p.val(from*n+me, i) })
	}
	return nil
}

// fanIn has all ranks send to one, which receives from any source: the messages of one rank
// in their order.
func (p *player) fanIn() error {
	p.what = "messages from any source"
	n, me, root := p.c.Size(), p.c.Rank(), p.rng.IntN(p.c.Size())
	each := 1 + p.rng.IntN(20)
	if me != root {
		for k := range each {
			if err := cohort.Send(p.c, []int64{int64(me), int64(k)}, root, p.step); err != nil {
				return err
			}
		}
		return nil
	}
	next := make([]int64, n)
	for range each * (n - 1) {
		var got [2]int64
		st, err := cohort.Recv(p.c, got[:], cohort.AnySource, p.step)
		if err != nil {
			return err
		}
		if got != [2]int64{int64(st.Source), next[st.Source]} {
			p.r.Errorf("operation %d, %s: got %v from rank %d, want number %d", p.step, p.what, got, st.Source, next[st.Source])
		}
		next[st.Source]++
	}
	return nil
}

// burst calls many short collectives.
func (p *player) burst() error {
	p.what = "many short Allreduces"
	n := p.c.Size()
	for k := range 1 + p.rng.IntN(40) {
		got, err := cohort.AllreduceOne(p.c, int64(k), cohort.Sum)
		if err != nil {
			return err
		}
		p.check([]int64{got}, func(int) int64 { return int64(k * n) })
	}
	return nil
}

// derive makes a communicator, uses it, and closes it when all ranks have used it.
func (p *player) derive() error {
	n, me := p.c.Size(), p.c.Rank()
	d, peers := (*cohort.Comm)(nil), []int(nil)
	var err error
	if p.rng.IntN(2) == 0 {
		p.what = "Dup"
		d, err = p.c.Dup()
		for rank := range n {
			peers = append(peers, rank)
		}
	} else {
		p.what = "Split"
		d, err = p.c.Split(me%2, -me)
		for rank := n - 1; rank >= 0; rank-- {
			if rank%2 == me%2 {
				peers = append(peers, rank)
			}
		}
	}
	if err != nil {
		return err
	}
	q := p.on(d)
	if d.Size() != len(peers) || peers[d.Rank()] != me {
		p.r.Errorf("operation %d, %s: rank %d of %d for rank %d, want the ranks %v", p.step, p.what, d.Rank(), d.Size(), me, peers)
	}
	got := make([]int, len(peers))
	if err := cohort.Allgather(q.c, []int{me}, got); err != nil {
		return err
	}
	p.check([]int64{int64(got[0]), int64(got[len(got)-1])}, func(i int) int64 { return int64(peers[i*(len(peers)-1)]) })
	if err := q.sendrecv(20); err != nil {
		return err
	}
	// Close fails operations of other ranks that are still under way.
	if err := p.c.Barrier(); err != nil {
		return err
	}
	return d.Close()
}

// window makes a window, reads what a neighbor has written, and increments a counter
// under a lock.
func (p *player) window() error {
	p.what = "a window"
	n, me := p.c.Size(), p.c.Rank()
	m := 1 + p.rng.IntN(1000)
	w, err := cohort.AllocateShared[int64](p.c, m)
	if err != nil {
		return err
	}
	w = w.WithContext(p.ctx)
	touch := func(rank int, do func(part []int64)) error {
		p.mem.Lock()
		defer p.mem.Unlock()
		part, err := w.Remote(rank)
		if err == nil {
			do(part)
		}
		return err
	}
	if err := touch(me, func(mine []int64) { copy(mine, p.data(me, m)) }); err != nil {
		return err
	}
	if err := w.Fence(); err != nil {
		return err
	}
	for rank := range n {
		err := touch(rank, func(theirs []int64) { p.check(theirs, func(i int) int64 { return p.val(rank, i) }) })
		if err != nil {
			return err
		}
	}
	if err := w.Fence(); err != nil {
		return err
	}
	g, err := w.Lock(cohort.LockExclusive, 0)
	if err != nil {
		return err
	}
	if err := touch(0, func(counter []int64) { counter[0]++ }); err != nil {
		return err
	}
	if err := g.Unlock(); err != nil {
		return err
	}
	if err := w.Fence(); err != nil {
		return err
	}
	err = touch(0, func(counter []int64) { p.check(counter[:1], func(int) int64 { return p.val(0, 0) + int64(n) }) })
	if err != nil {
		return err
	}
	return w.Close()
}
