package cohorttest

import (
	"context"
	"math"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Windows (MPI-4.1 chapter 12): what ranks write, read and update in each other's parts, by calls or in place, and

// maker makes a window of n elements on this rank.
type maker[T any] = func(c *cohort.Comm, n int) (*cohort.Window[T], error)

// makers are the ways to make a window on c. All ranks of c share memory for the second one, and write each other's
// parts in place.
func makers[T any](c *cohort.Comm) []maker[T] {
	if len(c.Topology().Hosts) > 1 {
		return []maker[T]{cohort.NewWindow[T]}
	}
	return []maker[T]{cohort.NewWindow[T], cohort.AllocateShared[T]}
}

// window makes a window of n elements on this rank, which is closed at the end.
func window[T any](r *Rank, make maker[T], c *cohort.Comm, n int) *cohort.Window[T] {
	w := must(make(c, n))
	r.atEnd(w.Close)
	return w
}

// onesided makes one by NewWindow.
func onesided[T any](r *Rank, c *cohort.Comm, n int) *cohort.Window[T] {
	return window(r, cohort.NewWindow[T], c, n)
}

// windowPutGet has each rank write a block into every part, and read all parts.
func windowPutGet(r *Rank) {
	putGet(r, r.Comm, float64s)
	putGet(r, r.Comm, uint8s)
	putGet(r, r.Comm, complex128s)
	putGet(r, r.Comm, packeds)
	putGet(r, r.Comm, paddeds)
	putGet(r, r.Comm, triples)
	putGet(r, r.Comm, kind[bool]{name: "bool", elem: func(x int) bool { return x%2 == 1 }})
	putGet(r, r.Comm, kind[cohort.Float16]{name: "Float16", elem: func(x int) cohort.Float16 { return cohort.ToFloat16(float32(x)) }})
	putGet(r, r.Comm, kind[cohort.Loc[float32]]{name: "Loc", elem: func(x int) cohort.Loc[float32] { return cohort.Loc[float32]{Val: float32(x), Idx: int64(-x)} }})
}

// putGet does so with windows whose parts have blocks of every rank, and then more elements that nobody writes. The
// longest blocks do not fit into one message.
func putGet[T comparable](r *Rank, c *cohort.Comm, k kind[T]) {
	size, me := c.Size(), c.Rank()
	for i, s := range []struct {
		block int
		rest  func(rank int) int
	}{
		{0, func(int) int { return 0 }},
		{0, func(rank int) int { return (rank + 1) / size * 1000 }}, // only the last rank has elements
		{1, func(rank int) int { return rank }},
		{3, func(rank int) int { return 4096*(rank%2) + 1 }}, // some pages
		{64, func(rank int) int { return 7 * rank }},
		{r.pick(9001, 70001), func(rank int) int { return rank }},
	} {
		all := makers[T](c)
		if r.Short {
			all = all[i%len(all):][:1]
		}
		for _, make := range all {
			length := func(rank int) int { return s.block*size + s.rest(rank) }
			w, what := window(r, make, c, length(me)), k.name
			elems := func(from int) *buffer[T] { // of a part
				b := newBuffer(k, length(from))
				clear(b.data)
				for i := range s.block * size {
					b.data[i] = k.elem(value(i/s.block, from, i%s.block))
				}
				return b
			}
			holds := func(part []T, rank int) {
				if want := elems(rank).data; !slices.Equal(part, want) || cap(part) != len(want) || part == nil {
					r.Errorf("%s, blocks of %d: rank %d's part has %d of %d elements, want %d, or they differ", what, s.block, rank, len(part), cap(part), len(want))
				}
			}
			local := must(w.Local())
			if len(local) != length(me) || w.Size(me) != length(me) || slices.ContainsFunc(local, func(x T) bool { return x != *new(T) }) {
				r.Errorf("%s: a new part of %d elements has others, or has %d", what, length(me), len(local))
			}
			r.OK(c.Barrier())
			for to := range size {
				b := filled(s.block, func(i int) T { return k.elem(value(me, to, i)) })
				if part, err := w.Remote(to); err == nil && (i+to)%2 == 0 {
					copy(part[s.block*me:], b)
				} else {
					r.OK(w.Put(b, to, s.block*me))
				}
				clear(b) // it can be used again
			}
			r.OK(w.Fence())
			for from := range size {
				got := newBuffer(k, length(from))
				r.OK(w.Get(got.data, from, 0))
				got.is(r, elems(from), "%s, blocks of %d, of rank %d", what, s.block, from)
				if part, err := w.Remote(from); err == nil {
					holds(part, from)
				}
			}
			holds(local, me)
			r.OK(w.Fence()) // all have read all parts
			r.OK(w.Put(nil, 0, 0))
		}
	}
}

// windowSplits has windows on two communicators of different ranks at the same time, each with another number of
// rounds, and one of all ranks beside them. They share no memory.
func windowSplits(r *Rank) {
	for _, make := range makers[int32](r.Comm) {
		all := window(r, make, r.Comm, 10)
		r.OK(all.Put(filled(10, func(int) int32 { return int32(r.Rank) }), r.Rank, 0))
		r.OK(all.Fence())
		half := must(r.Comm.Split(r.Rank%2, -r.Rank))
		r.atEnd(half.Close)
		for range 1 + r.Rank%2 {
			putGet(r, half, int32s)
		}
		for rank := range r.Size {
			got := filled(10, func(int) int32 { return -1 })
			r.OK(all.Get(got, rank, 0))
			same(r, got, func(int) int32 { return int32(rank) }, "rank %d's part beside other windows", rank)
		}
		r.OK(all.Fence())
	}
}

// windowMessages passes data with messages: the receiver of a message sees what its sender has completed before, by
// Flush or in place by Sync.
func windowMessages(r *Rank) {
	const n = 20000
	for _, make := range makers[int64](r.Comm) {
		w := window(r, make, r.Comm, n)
		mine := must(w.Local())
		for round := range 9 {
			buf := filled(n, func(i int) int64 { return int64(round*n + i) })
			if theirs, err := w.Remote(r.next); err == nil && round%3 == 0 {
				copy(theirs, buf)
				r.OK(w.Sync())
			} else {
				r.OK(w.Put(buf, r.next, 0))
			}
			r.OK(w.Accumulate([]int64{1, 2}, r.next, 7, cohort.Sum))
			if round%2 == 0 {
				r.OK(w.Flush(r.next))
			} else {
				r.OK(w.FlushAll())
			}
			r.OK(cohort.Send(r.Comm, []int8{1}, r.next, round))
			must(cohort.Recv(r.Comm, []int8{0}, r.prev, round))
			r.OK(w.Sync())
			same(r, mine, func(i int) int64 {
				if i == 7 || i == 8 {
					return int64(round*n + i + i - 6)
				}
				return int64(round*n + i)
			}, "round %d", round)
			r.OK(r.Comm.Barrier()) // all have read
		}
	}
}

// windowRandom makes random accesses and compares them with a model that makes them one after the other.
// In a round, each rank accesses blocks that belong to it for this round, in every part, and all ranks
// update the others by operations that commute. All ranks know all accesses.
func windowRandom(r *Rank) {
	const blocks, length = 24, 5
	rounds, rng := r.pick(4, 20), seeded(r.scenario, r.Size)
	for i, make := range makers[int64](r.Comm) {
		w, kinds := window(r, make, r.Comm, blocks*length), []int{writesInPlace, accessKinds}[i]
		model := filled(r.Size, func(int) []int64 { return slices.Repeat([]int64{0}, blocks*length) })
		for round := range rounds {
			owner := filled(blocks, func(int) int { return rng.IntN(r.Size + 1) }) // r.Size: all
			for range 40 * r.Size {
				rank, to, b, at := rng.IntN(r.Size), rng.IntN(r.Size), rng.IntN(blocks), rng.IntN(length)
				a := oneAccess{kind: rng.IntN(kinds), buf: filled(1+rng.IntN(length-at), func(int) int64 { return rng.Int64() })}
				at += b * length
				part := model[to][at : at+len(a.buf)]
				a.old = part[0] + a.buf[0]&1 // every other one is wrong
				if owner[b] == r.Size {
					a.kind = accumulates
				} else {
					rank = owner[b]
				}
				if rank == r.Rank {
					equalSlices(r, must(a.make(w, to, at, part)), part, "round %d: access %d of rank %d's elements from %d", round, a.kind, to, at)
				}
				a.model(part)
			}
			r.OK(w.Fence())
			all := filled(blocks*length, func(int) int64 { return 0 })
			for from := range model {
				r.OK(w.Get(all, from, 0))
				equalSlices(r, all, model[from], "round %d: rank %d's part", round, from)
			}
			r.OK(w.Fence())
		}
	}
}

// oneAccess is a random access of a window.
type oneAccess struct {
	kind int
	buf  []int64
	old  int64 // that CompareAndSwap expects
}

const (
	accumulates = iota
	puts
	gets
	takesMaximum
	swapsIfOld
	writesInPlace // and what follows: only where ranks share memory
	readsInPlace
	accessKinds
)

// make makes the access from element at of rank to. It returns what these elements were, or part if the access
// does not say.
func (a *oneAccess) make(w *cohort.Window[int64], to, at int, part []int64) (got []int64, err error) {
	got = slices.Clone(part)
	switch a.kind {
	case accumulates:
		err = w.Accumulate(a.buf, to, at, cohort.Sum)
	case puts:
		err = w.Put(a.buf, to, at)
	case gets:
		clear(got)
		err = w.Get(got, to, at)
	case takesMaximum:
		clear(got)
		err = w.GetAccumulate(a.buf, got, to, at, cohort.Max)
	case swapsIfOld:
		got[0], err = w.CompareAndSwap(a.old, a.buf[0], to, at)
	case writesInPlace:
		copy(must(w.Remote(to))[at:], a.buf)
	case readsInPlace:
		copy(got, must(w.Remote(to))[at:])
	}
	return got, err
}

// model makes the access to the elements of a part.
func (a *oneAccess) model(part []int64) {
	for i, x := range a.buf {
		switch a.kind {
		case accumulates:
			part[i] += x
		case puts, writesInPlace:
			part[i] = x
		case takesMaximum:
			part[i] = max(part[i], x)
		case swapsIfOld:
			if i == 0 && part[0] == a.old {
				part[0] = x
			}
		}
	}
}

// regions has regions of all ranks, of none of them, and of two communicators at a time.
func regions(r *Rank) {
	region(r, r.Comm, 10007)
	half := must(r.Comm.Split(r.Rank%2, 0))
	region(r, half, 100*(r.Rank%2))
	r.OK(half.Close())
}

// region has the leader fill a region, and then all ranks fill a range each. They read
// what was written, bit for bit.
func region(r *Rank, c *cohort.Comm, n int) {
	f := func(i int) float64 { return math.Sin(float64(i)) / 3 }
	ctx, cancel := context.WithCancel(context.Background())
	g := must(cohort.NewSharedRegion[float64](c.WithContext(ctx), n))
	node := g.Node()
	if g.IsLeader() != (node.Rank() == 0) || c.Rank() == 0 && !g.IsLeader() {
		r.Errorf("rank %d of its node is leader: %v", node.Rank(), g.IsLeader())
	}
	check := func(what string, want func(i int) float64) {
		r.OK(g.Fence())
		all := must(g.Slice())
		if len(all) != n || cap(all) != n {
			r.Errorf("%s: %d of %d elements, want %d", what, len(all), cap(all), n)
			return
		}
		same(r, all, want, "%s", what)
		r.OK(g.Fence())
	}
	check("a new region", func(int) float64 { return 0 })
	all := must(g.MutSlice())
	if want := map[bool]int{true: n}[g.IsLeader()]; len(all) != want || all == nil {
		r.Errorf("MutSlice has %d elements, want %d (leader %v)", len(all), want, g.IsLeader())
	}
	for i := range all {
		all[i] = f(i)
	}
	check("filled by the leader", f)
	begin := func(rank int) int { return n * rank / node.Size() }
	lo, hi := begin(node.Rank()), begin(node.Rank()+1)
	mine := must(g.Range(lo, hi))
	equal(r, [2]int{len(mine), cap(mine)}, [2]int{hi - lo, hi - lo}, "length and capacity of Range(%d, %d)", lo, hi)
	for i := range mine {
		mine[i] = f(2*lo + i)
	}
	check("filled by all", func(i int) float64 {
		owner := 0
		for begin(owner+1) <= i {
			owner++
		}
		return f(begin(owner) + i)
	})
	for _, bad := range [][2]int{{-1, 2}, {2, 1}, {0, n + 1}, {n + 1, n + 1}, {math.MinInt, math.MaxInt}} {
		r.Is(errorOf(g.Range(bad[0], bad[1])), cohort.ErrBuffer, "Range(%d, %d)", bad[0], bad[1])
	}
	equal(r, len(must(g.Range(n, n))), 0, "Range(%d, %d)", n, n)
	cancel()
	r.OK(g.Close())
}
