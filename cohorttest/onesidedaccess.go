package cohorttest

import "github.com/cohort-hpc/cohort"

// One-sided windows: accesses of no rank.

// onesidedNoRank accesses the part of ProcNull, after accesses of a part that have left something in their memory.
func onesidedNoRank(r *Rank) {
	const none, nowhere = cohort.ProcNull, -7
	w := onesided[int64](r, r.Comm, 1)
	_, err := w.CompareAndSwap(0, 5, r.Rank, 0)
	r.OK(err)
	_, err = w.CompareAndSwap(5, 6, r.Rank, 0)
	r.OK(err)
	swapped, err := w.CompareAndSwap(1, 2, none, nowhere)
	r.OK(err)
	fetched, err := w.FetchAndOp(3, none, nowhere, cohort.Sum)
	r.OK(err)
	result := []int64{4}
	r.OK(w.GetAccumulate([]int64{8}, result, none, nowhere, cohort.Sum))
	r.OK(w.Get(result, none, nowhere))
	if swapped != 0 || fetched != 0 || result[0] != 4 {
		r.Errorf("accesses of ProcNull return %d, %d and %v, want 0, 0 and what was there", swapped, fetched, result)
	}
	r.OK(w.Put(result, none, nowhere))
	r.OK(w.Accumulate(result, none, nowhere, cohort.Sum))
	for _, access := range []func([]int64, int, int) (*cohort.Request, error){w.Rput, w.Rget} {
		q, err := access(result, none, nowhere)
		r.OK(err)
		_, err = q.Wait()
		r.OK(err)
	}
	r.OK(w.Flush(none))
	r.OK(w.Close())
}
