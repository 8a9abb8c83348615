package cohorttest

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// User-defined operations.

// affine is the function x → a*x + b modulo 2^64. Composition is associative
// and does not commute.
type affine struct{ A, B uint64 }

func (f affine) then(g affine) affine { return affine{g.A * f.A, g.A*f.B + g.B} }

// userOps checks user-defined operations that do not commute, on structs and on numbers:
// the result is that of the ranks in their order, for every collective, form and length.
func userOps(r *Rank) {
	compose := cohort.NewOp(false, func(in, inout []affine) {
		for i := range in {
			inout[i] = in[i].then(inout[i])
		}
	})
	composeAll(r, compose)

	// first op last = first: associative, does not commute.
	first := cohort.NewOp(false, func(in, inout []int32) { copy(inout, in) })
	reduceAll(r, int32s, first, func(a, _ int32) int32 { return a })
	last := cohort.NewOp(false, func(in, inout []int32) {})
	reduceAll(r, int32s, last, func(_, b int32) int32 { return b })

	absMax := cohort.NewOp(true, func(in, inout []float64) {
		for i, x := range in {
			if math.Abs(x) > math.Abs(inout[i]) {
				inout[i] = x
			}
		}
	})
	spread := kind[float64]{"float64", func(x int) float64 { return float64(x*x+x+1) * float64(1-x%2*2) }, -1e300}
	reduceAll(r, spread, absMax, func(a, b float64) float64 {
		if math.Abs(b) > math.Abs(a) {
			return b
		}
		return a
	})
}

// composeAll reduces structs, which reduceAll cannot.
func composeAll(r *Rank, op cohort.Op) {
	elem := func(rank, i int) affine { return affine{uint64(2*value(1, rank, i) + 3), uint64(value(2, rank, i))} }
	fold := func(lo, hi, i int) affine {
		x := elem(lo, i)
		for rank := lo + 1; rank < hi; rank++ {
			x = x.then(elem(rank, i))
		}
		return x
	}
	for _, m := range []int{0, 1, 3, 1000, long / 16} {
		send, recv := make([]affine, m), make([]affine, m)
		for i := range send {
			send[i] = elem(r.Rank, i)
		}
		check := func(what string, lo, hi int) {
			for i := range recv {
				if want := fold(lo, hi, i); recv[i] != want {
					r.Errorf("%s of %d: element %d is %v, want %v", what, m, i, recv[i], want)
					break
				}
			}
			clear(recv)
		}
		r.OK(cohort.Allreduce(r.Comm, send, recv, op))
		check("Allreduce", 0, r.Size)
		for root := range r.Size {
			r.OK(cohort.Reduce(r.Comm, send, recv, op, root))
			if r.Rank == root {
				check(fmt.Sprintf("Reduce to %d", root), 0, r.Size)
			}
		}
		r.OK(cohort.Scan(r.Comm, send, recv, op))
		check("Scan", 0, r.Rank+1)
		r.OK(cohort.Exscan(r.Comm, send, recv, op))
		if r.Rank > 0 {
			check("Exscan", 0, r.Rank)
		}
		req := must(cohort.Iallreduce(r.Comm, send, recv, op))
		must(req.Wait())
		check("Iallreduce", 0, r.Size)
		for i := range recv {
			send[i], recv[i] = elem(0, i), elem(1, i)
		}
		r.OK(cohort.ReduceLocal(send, recv, op))
		check("ReduceLocal", 0, 2)
	}
}

// failingOps reduces with functions that panic, or end their goroutines. Each rank calls the function.
func failingOps(r *Rank) {
	if r.Size == 1 || r.Comm.Backend() == "mpi" { // the library decides which ranks call the function
		return
	}
	for i, fail := range []func(){func() { panic("on purpose") }, runtime.Goexit} {
		for _, n := range []int{1, 100_000} {
			c := must(r.Comm.Dup())
			err := errors.New("the goroutine has ended")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err = cohort.Allreduce(c, make([]int64, n), make([]int64, n), cohort.NewOp(true, func(_, _ []int64) { fail() }))
			}()
			<-ended
			if err == nil {
				r.Errorf("no error from a function that fails (%d), with %d elements", i, n)
			}
			r.Is(errorOf(cohort.AllreduceOne(c, 1, cohort.Sum)), cohort.ErrBroken, "the reduction after one that has failed")
			r.OK(c.Close())
		}
	}
}
