package cohorttest

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// The order of messages, and many of them at once.

// p2pOrder checks that messages of one sender, communicator and tag are received in
// the order sent, whatever their lengths, and whether the receives are posted before
// or after.
func p2pOrder(r *Rank) {
	lens := []int{1, 20000, 0, 3, 5000, 1, 1, 9000, 2, 64}
	for _, before := range []bool{true, false} {
		var reqs []*cohort.Request
		bufs := make([][]int32, len(lens))
		post := func() {
			for i := range lens {
				bufs[i] = make([]int32, 20000)
				source := r.prev
				if i%3 == 1 {
					source = cohort.AnySource
				}
				reqs = append(reqs, must(cohort.Irecv(r.Comm, bufs[i], source, 9)))
			}
		}
		if before {
			post()
			r.OK(r.Comm.Barrier())
		}
		var sends []*cohort.Request
		for i, n := range lens {
			msg := filled(n, func(j int) int32 { return int32(i*100000 + j) })
			sends = append(sends, must(cohort.Isend(r.Comm, msg, r.next, 9)))
		}
		if !before {
			r.OK(r.Comm.Barrier())
			post()
		}
		for i, req := range reqs {
			st := must(req.Wait())
			n := cohort.Count[int32](st)
			if n != lens[i] || n > 0 && (bufs[i][0] != int32(i*100000) || bufs[i][n-1] != int32(i*100000+n-1)) {
				r.Errorf("message %d has %d elements, want %d; it begins with %d", i, n, lens[i], bufs[i][0])
			}
		}
		r.OK(cohort.WaitAll(sends...))
	}
}

// goroutines has several goroutines of every rank exchange messages at once, each with
// its own tag, as MPI_THREAD_MULTIPLE allows.
func goroutines(r *Rank) {
	sends := slices.DeleteFunc(sendWays[int32](), func(w way[int32]) bool { return !w.posted })
	recvs := slices.DeleteFunc(recvWays[int32](), func(w way[int32]) bool { return w.any }) // it would take another goroutine's message
	together(r, 4, r.pick(18, 60), func(g, k int) error {
		m := []int{1, 901, 1801, 8 << 10, 40000}[k%5]
		return exchange(r, int32s, sends[(g+k)%len(sends)], recvs[k%len(recvs)], m, m, g)
	})
}

// together calls step for a number of rounds on each of n goroutines.
func together(r *Rank, n, rounds int, step func(g, round int) error) {
	errs := make(chan error, n)
	for g := range n {
		go func() {
			var err error
			for k := 0; k < rounds && err == nil; k++ {
				err = step(g, k)
			}
			errs <- err
		}()
	}
	for range n {
		r.OK(<-errs)
	}
}
