package cohorttest

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// One-sided windows: every operation that updates elements, accesses of no rank, and of the own memory.

// onesidedOperations has each rank update the next one's part by every operation. ReduceLocal says what it becomes.
func onesidedOperations(r *Rank) {
	updates(r, []int8{0, 1, -3, 127, -128}, []int8{0, 0, 5, 1, -1}, arithmetic...)
	updates(r, []uint64{0, 1, 3, 127, 1 << 63}, []uint64{0, 0, 5, 1, 1 << 63}, arithmetic...)
	updates(r, []float32{0, 1, -3, 1e30}, []float32{0, 0, 5, 1e30}, arithmetic[:4]...)
	updates(r, []cohort.BFloat16{0, cohort.ToBFloat16(-3)}, []cohort.BFloat16{0, cohort.ToBFloat16(5)}, arithmetic[:4]...)
	updates(r, []complex128{0, 2i, 1}, []complex128{0, 3i, 1 + 1i}, arithmetic[:2]...)
	updates(r, []bool{false, false, true, true}, []bool{false, true, false, true}, arithmetic[4:7]...)
	loc := func(val int16, idx int64) cohort.Loc[int16] { return cohort.Loc[int16]{Val: val, Idx: idx} }
	updates(r, []cohort.Loc[int16]{loc(1, 5), loc(2, 4), loc(3, 3)}, []cohort.Loc[int16]{loc(1, 2), loc(3, 9), loc(2, 1)}, cohort.MinLoc, cohort.MaxLoc)
}

var arithmetic = []cohort.Op{cohort.Sum, cohort.Prod, cohort.Min, cohort.Max, cohort.Land, cohort.Lor, cohort.Lxor, cohort.Band, cohort.Bor, cohort.Bxor}

func updates[T comparable](r *Rank, a, b []T, ops ...cohort.Op) {
	w := onesided[T](r, r.Comm, len(a))
	was, got := make([]T, len(a)), make([]T, len(a))
	for _, op := range ops {
		want := slices.Clone(a)
		r.OK(cohort.ReduceLocal(b, want, op))
		for way, update := range []func() error{
			func() error { copy(was, a); return w.Accumulate(b, r.next, 0, op) },
			func() error { return w.GetAccumulate(b, was, r.next, 0, op) },
			func() (err error) {
				for i := 0; i < len(a) && err == nil; i++ {
					was[i], err = w.FetchAndOp(b[i], r.next, i, op)
				}
				return err
			},
		} {
			r.OK(w.Put(a, r.next, 0))
			r.OK(update())
			r.OK(w.Get(got, r.next, 0))
			if !slices.Equal(was, a) || !slices.Equal(got, want) {
				r.Errorf("%v of %T, way %d: %v became %v, want %v became %v", op, a, way, was, got, a, want)
			}
		}
	}
}

// onesidedNoRank accesses the part of ProcNull, after accesses of a part that have left something in their memory.
func onesidedNoRank(r *Rank) {
	const none, nowhere = cohort.ProcNull, -7
	w := onesided[int64](r, r.Comm, 1)
	must(w.CompareAndSwap(0, 5, r.Rank, 0))
	must(w.CompareAndSwap(5, 6, r.Rank, 0))
	swapped := must(w.CompareAndSwap(1, 2, none, nowhere))
	fetched := must(w.FetchAndOp(3, none, nowhere, cohort.Sum))
	result := []int64{4}
	r.OK(w.GetAccumulate([]int64{8}, result, none, nowhere, cohort.Sum))
	r.OK(w.Get(result, none, nowhere))
	if swapped != 0 || fetched != 0 || result[0] != 4 {
		r.Errorf("accesses of ProcNull return %d, %d and %v, want 0, 0 and what was there", swapped, fetched, result)
	}
	r.OK(w.Put(result, none, nowhere))
	r.OK(w.Accumulate(result, none, nowhere, cohort.Sum))
	for _, access := range []func([]int64, int, int) (*cohort.Request, error){w.Rput, w.Rget} {
		r.OK(wait(access(result, none, nowhere)))
	}
	r.OK(w.Flush(none))
}

// onesidedOwnMemory has each rank put from its own part, and get into it, as in an exchange of halos; and move elements
// within it.
func onesidedOwnMemory(r *Rank) {
	const n = 20000
	w := onesided[int32](r, r.Comm, 3*n)
	mine := must(w.Local())
	want := make([]int32, 3*n)
	for i := range n {
		mine[i] = int32(r.Rank*n + i)
		want[i], want[n+i], want[2*n+i] = mine[i], int32(r.prev*n+i), int32(r.next*n+i)
	}
	r.OK(w.Fence())
	r.OK(w.Put(mine[:n], r.next, n))
	r.OK(w.Get(mine[2*n:], r.next, 0))
	r.OK(w.Fence())
	if !slices.Equal(mine, want) {
		r.Errorf("elements between the own part and that of rank %d are wrong", r.next)
	}
	r.OK(w.Put(mine[:n], r.Rank, 1))
	r.OK(w.Get(mine[n:2*n], r.Rank, n+1))
	copy(want[1:], want[:n])
	copy(want[n:], want[n+1:2*n+1])
	if !slices.Equal(mine, want) {
		r.Errorf("elements moved within the own part are wrong")
	}
}
