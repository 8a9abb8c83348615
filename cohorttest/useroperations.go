package cohorttest

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"

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
	affines := kind[affine]{"affine", func(x int) affine { return affine{uint64(2*x + 3), uint64(x * x)} }, affine{B: 1 << 60}}
	reduceAll(r, affines, compose, affine.then)
	for _, m := range []int{0, 1000, long / 16} {
		runCase(r, allreduces[affine](), affines, shape{m, -1, apart, m}, blocking, compose, affine.then)
	}

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

// failingOps reduces with functions that panic, or end their goroutines. Each rank calls the function.
func failingOps(r *Rank) {
	if r.Size == 1 || r.Comm.Backend() == "mpi" { // the library decides which ranks call the function
		return
	}
	for i, fail := range []func(){func() { panic("on purpose") }, runtime.Goexit} {
		for _, n := range []int{1, 100_000} {
			c := r.dup()
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
		}
	}
}

// lateOps reduces with a function that still runs when the deadline has passed. The program has its buffer back then, and
// nothing of the reduction is written to it.
func lateOps(r *Rank) {
	for _, how := range []form{nonblocking, persistent} {
		c := r.dup()
		timed, begun, cancel := deadline(c)
		var running atomic.Int32
		gone := make(chan struct{})
		stop := time.AfterFunc(5*short, func() { close(gone) }) // below serialized, Wait waits for the function
		op := cohort.NewOp(true, func(in, inout []int64) {
			running.Add(1)
			defer running.Add(-1)
			<-gone
			for i := range in {
				inout[i] += in[i]
			}
		})
		send, recv := []int64{1, 1}, []int64{-7, -7}
		var err error
		if how == persistent {
			err = runOnce(cohort.AllreduceInit(timed, send, recv, op))
		} else {
			err = wait(cohort.Iallreduce(timed, send, recv, op))
		}
		kept(r, begun, "a reduction whose function runs past the deadline")
		if err != nil {
			r.Is(err, cohort.ErrTimeout, "a reduction whose function runs past the deadline")
			recv[0], recv[1] = -8, -8
		}
		for <-gone; running.Load() > 0; {
			time.Sleep(time.Millisecond) // poll
		}
		time.Sleep(5 * time.Millisecond) // on purpose: what would be written now is written
		if err != nil && (recv[0] != -8 || recv[1] != -8) {
			r.Errorf("after Wait had returned %v, the reduction wrote %v", err, recv)
		}
		stop.Stop()
		cancel()
		r.OK(r.Comm.Barrier())
	}
}

// lateOnOneRank reduces with a function during which the deadline of one rank passes. The others' calls end too, and the
// communicator is broken on all ranks or on none.
func lateOnOneRank(r *Rank) {
	slow := cohort.NewOp(true, func(in, inout []int64) {
		time.Sleep(2 * short) // on purpose: the deadline passes
		for i := range in {
			inout[i] += in[i]
		}
	})
	send, recv := make([]int64, 3*r.Size), make([]int64, 3*r.Size)
	late := r.Size - 1 // which has the most operands in a Scan
	for _, call := range []func(c *cohort.Comm) error{
		func(c *cohort.Comm) error { return cohort.Allreduce(c, send, recv, slow) },
		func(c *cohort.Comm) error { return cohort.ReduceScatterBlock(c, send, recv[:3], slow) },
		func(c *cohort.Comm) error { return cohort.Scan(c, send, recv, slow) },
	} {
		c := r.dup()
		limited, cancel := c, func() {}
		if r.Rank == late {
			limited, _, cancel = deadline(c)
		}
		err := call(limited)
		cancel()
		failed := []bool{err != nil}
		r.OK(cohort.Bcast(r.Comm, failed, late))
		if r.Rank == late {
			r.only(err, "a reduction whose function runs past the deadline", cohort.ErrTimeout)
		} else if !failed[0] {
			r.OK(err)
		}
		if failed[0] {
			broken(r, c, "a reduction whose function has run past the deadline")
		} else {
			r.OK(c.Barrier())
		}
	}
}
