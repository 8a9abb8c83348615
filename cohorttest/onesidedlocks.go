package cohorttest

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// One-sided operations: under locks, on windows of several communicators, random ones, and allocations.

// onesidedLocks increments counters under exclusive locks, and reads them under shared ones.
func onesidedLocks(r *Rank) {
	const each = 40
	w := onesided[int64](r, r.Comm, 2)
	pair := make([]int64, 2)
	for i := range each {
		to := (r.Rank + i) % r.Size
		g := must(w.Lock(cohort.LockExclusive, to))
		r.OK(w.Get(pair, to, 0))
		if pair[0] != pair[1] {
			r.Errorf("another rank is in rank %d's part: %v", to, pair)
		}
		r.OK(w.Put([]int64{pair[0] + 1}, to, 0))
		r.OK(w.Put([]int64{pair[1] + 1}, to, 1))
		r.OK(g.Unlock())
		g = must(w.Lock(cohort.LockShared, to))
		r.OK(w.Get(pair, to, 0))
		if pair[0] != pair[1] {
			r.Errorf("a rank writes rank %d's part beside shared locks: %v", to, pair)
		}
		r.OK(g.Unlock())
	}
	r.OK(w.Fence())
	sum := int64(0)
	for from := range r.Size {
		r.OK(w.Get(pair, from, 0))
		sum += pair[0]
	}
	equal(r, sum, int64(each*r.Size), "the counters' sum")
}

// onesidedSplits has windows of several communicators at once.
func onesidedSplits(r *Rank) {
	half := must(r.Comm.Split(r.Rank%2, r.Rank))
	a, b := onesided[int32](r, r.Comm, 1), onesided[int32](r, half, 2)
	next := (half.Rank() + 1) % half.Size()
	r.OK(b.Put([]int32{int32(r.Rank), -1}, next, 0))
	r.OK(a.Accumulate([]int32{1}, 0, 0, cohort.Sum))
	r.OK(b.Fence())
	r.OK(a.Fence())
	mine := must(b.Local())
	prev := (half.Rank() + half.Size() - 1) % half.Size()
	if want := int32(2*prev + r.Rank%2); mine[0] != want || mine[1] != -1 {
		r.Errorf("%v, want %d, -1", mine, want)
	}
	if r.Rank == 0 {
		if count := must(a.Local()); int(count[0]) != r.Size {
			r.Errorf("%d of %d ranks", count[0], r.Size)
		}
	}
	r.OK(b.Close())
	r.OK(a.Close())
	r.OK(half.Close())
}

// onesidedRandom makes random accesses and compares them with a model that makes them one after the other.
// In a round, each rank accesses blocks that belong to it for this round, in every part, and all ranks
// update the others by operations that commute. All ranks know all accesses.
func onesidedRandom(r *Rank) {
	const blocks, length = 24, 5
	rounds := r.pick(8, 30)
	w := onesided[int64](r, r.Comm, blocks*length)
	model := filled(r.Size, func(i int) []int64 { return make([]int64, blocks*length) })
	rng := seeded("onesided/random", r.Size)
	for round := range rounds {
		var owner [blocks]int // r.Size: all
		for b := range owner {
			owner[b] = rng.IntN(r.Size + 1)
		}
		for range 40 * r.Size {
			rank, to, b, at := rng.IntN(r.Size), rng.IntN(r.Size), rng.IntN(blocks), rng.IntN(length)
			a := oneAccess{kind: rng.IntN(accessKinds), buf: make([]int64, 1+rng.IntN(length-at))}
			for i := range a.buf {
				a.buf[i] = rng.Int64()
			}
			at += b * length
			part := model[to][at : at+len(a.buf)]
			a.old = part[0] + a.buf[0]&1 // every other one is wrong
			if owner[b] == r.Size {
				a.kind = accumulates
			} else {
				rank = owner[b]
			}
			if rank == r.Rank {
				if got := must(a.make(w, to, at, part)); !slices.Equal(got, part) {
					r.Errorf("round %d: access %d of rank %d's elements from %d returned %v, want %v", round, a.kind, to, at, got, part)
				}
			}
			a.model(part)
		}
		r.OK(w.Fence())
		all := make([]int64, blocks*length)
		for from := range model {
			r.OK(w.Get(all, from, 0))
			if !slices.Equal(all, model[from]) {
				r.Errorf("round %d: rank %d's part is %v, want %v", round, from, all, model[from])
			}
		}
		r.OK(w.Fence())
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
	}
	return got, err
}

// model makes the access to the elements of a part.
func (a *oneAccess) model(part []int64) {
	for i, x := range a.buf {
		switch a.kind {
		case accumulates:
			part[i] += x
		case puts:
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
