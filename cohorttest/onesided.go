package cohorttest

import (
	"runtime"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// One-sided operations on windows made by NewWindow (MPI-4.1 chapter 12): what ranks write, read and update in each
// other's parts. Locks are in windowlocks.go and onesidedlocks.go, misuse in windowmisuse.go and onesidedmisuse.go.

func onesidedScenarios() []scenario {
	return []scenario{
		{name: "onesided/put-get", turns: true, body: onesidedPutGet},
		{name: "onesided/reductions", body: onesidedReductions},
		{name: "onesided/operations", body: onesidedOperations},
		{name: "onesided/no-rank", body: onesidedNoRank},
		{name: "onesided/own-memory", body: onesidedOwnMemory},
		{name: "onesided/tickets", body: onesidedTickets},
		{name: "onesided/compare-and-swap", body: onesidedCompareAndSwap},
		{name: "onesided/neighbors", body: onesidedNeighbors},
		{name: "onesided/flush", sizes: atLeast(2), body: onesidedFlush},
		{name: "onesided/progress", sizes: atLeast(2), body: onesidedProgress},
		{name: "onesided/requests", body: onesidedRequests},
		{name: "onesided/locks", body: onesidedLocks},
		{name: "onesided/lock-all", body: lockedAll},
		{name: "onesided/lock-deadline", sizes: atLeast(2), body: lockDeadline},
		{name: "onesided/lock-goroutines", turns: true, body: lockGoroutines},
		{name: "onesided/lock-misuse", body: lockMisuse},
		{name: "onesided/deadlines", body: onesidedDeadlines},
		{name: "onesided/random", body: onesidedRandom},
		{name: "onesided/splits", body: onesidedSplits},
		{name: "onesided/arguments", body: onesidedArguments},
		{name: "onesided/close", body: onesidedClose},
		{name: "onesided/close-with-lock", body: closeWithLock},
		{name: "onesided/close-waiting", sizes: atLeast(2), body: closeWaiting},
		{name: "onesided/close-in-use", body: onesidedCloseInUse},
		{name: "onesided/left-open", body: windowsLeftOpen},
		{name: "onesided/allocations", sizes: func(n int) bool { return n <= 2 }, body: onesidedAllocations},
	}
}

// onesided makes a window of n elements on this rank, which is closed at the end.
func onesided[T any](r *Rank, c *cohort.Comm, n int) *cohort.Window[T] {
	w := must(cohort.NewWindow[T](c, n))
	r.atEnd(w.Close)
	return w
}

// onesidedPutGet has each rank write a block into every part, and read all parts.
func onesidedPutGet(r *Rank) {
	putGet(r, float64s)
	putGet(r, uint8s)
	putGet(r, complex128s)
	putGet(r, paddeds)
	putGet(r, triples)
	putGet(r, kind[bool]{name: "bool", elem: func(x int) bool { return x%2 == 1 }})
	putGet(r, kind[cohort.Float16]{name: "Float16", elem: func(x int) cohort.Float16 { return cohort.ToFloat16(float32(x)) }})
}

func putGet[T comparable](r *Rank, k kind[T]) {
	for _, n := range r.lengths() {
		part := func(rank int) int { return n*r.Size + rank } // the last elements are nobody's
		w := onesided[T](r, r.Comm, part(r.Rank))
		for to := range r.Size {
			b := filled(n, func(i int) T { return k.elem(value(r.Rank, to, i)) })
			r.OK(w.Put(b, to, n*r.Rank))
			clear(b) // it can be used again
		}
		r.OK(w.Fence())
		for from := range r.Size {
			got := newBuffer(k, part(from))
			r.OK(w.Get(got.data, from, 0))
			want := newBuffer(k, part(from))
			clear(want.data)
			for i := range n * r.Size {
				want.data[i] = k.elem(value(i/n, from, i%n))
			}
			if i, same := got.diff(want, nil); !same {
				r.Errorf("%s, blocks of %d: element %d of rank %d is wrong", k.name, n, i, from)
			}
		}
		if local := must(w.Local()); len(local) != part(r.Rank) || cap(local) != len(local) || n > 0 && local[0] != k.elem(value(0, r.Rank, 0)) {
			r.Errorf("%s, blocks of %d: Local has %d of %d elements, or others than Get", k.name, n, len(local), cap(local))
		}
		r.OK(w.Put(nil, 0, 0))
		r.OK(w.Get(make([]T, 3), cohort.ProcNull, -7))
	}
}

// lengths are lengths of blocks. The longest do not fit into one message.
func (r *Rank) lengths() []int {
	if r.Short {
		return []int{0, 1, 3, 9001}
	}
	return []int{0, 1, 3, 64, 1000, 70001}
}

// onesidedReductions has all ranks update the same elements at the same time. The results are those of
// integers, which floats represent exactly.
func onesidedReductions(r *Rank) {
	reductionsOf(r, "int8", func(x int) int8 { return int8(x) })
	reductionsOf(r, "uint16", func(x int) uint16 { return uint16(x) })
	reductionsOf(r, "int32", func(x int) int32 { return int32(x) })
	reductionsOf(r, "int64", func(x int) int64 { return int64(x) })
	reductionsOf(r, "float32", func(x int) float32 { return float32(x) })
	reductionsOf(r, "float64", func(x int) float64 { return float64(x) })
	reductionsOf(r, "Float16", func(x int) cohort.Float16 { return cohort.ToFloat16(float32(x)) })
	reductionsOf(r, "complex64", func(x int) complex64 { return complex(float32(x), 0) })
	reductionsOf(r, "complex128", func(x int) complex128 { return complex(float64(x), 0) })

}

func reductionsOf[T cohort.Number](r *Rank, name string, elem func(x int) T) {
	const n, rounds = 1001, 7
	if r.Size*rounds > 100 {
		r.Errorf("int8 holds no sum of %d ranks", r.Size)
	}
	w := onesided[T](r, r.Comm, n)
	ones, was := make([]T, n-2), make([]T, n-2)
	for i := range ones {
		ones[i] = elem(1)
	}
	for i := range rounds {
		for k := range r.Size {
			to := (r.Rank + k) % r.Size
			if i%2 == 0 {
				r.OK(w.Accumulate(ones, to, 1, cohort.Sum))
				continue
			}
			r.OK(w.GetAccumulate(ones, was, to, 1, cohort.Sum))
			if was[0] == elem(r.Size*rounds) {
				r.Errorf("%s: GetAccumulate returned the sum of all ranks", name)
			}
		}
	}
	r.OK(w.Fence())
	all := make([]T, n)
	for from := range r.Size {
		r.OK(w.Get(all, from, 0))
		for i, x := range all {
			want := elem(r.Size * rounds)
			if i == 0 || i == n-1 {
				want = elem(0)
			}
			if x != want {
				r.Errorf("%s: element %d of rank %d is %v, want %v", name, i, from, x, want)
				break
			}
		}
	}
}

// onesidedTickets has goroutines of all ranks draw numbers from one counter: each number is drawn once.
func onesidedTickets(r *Rank) {
	const each, goroutines = 50, 3
	w := onesided[int64](r, r.Comm, 1)
	drawn := onesided[int64](r, r.Comm, each*goroutines*r.Size)
	root := r.Size - 1
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				x, err := w.FetchAndOp(1, root, 0, cohort.Sum)
				if err == nil {
					err = drawn.Accumulate([]int64{1}, 0, int(x), cohort.Sum)
				}
				if err != nil {
					r.Errorf("%v", err)
					return
				}
			}
		})
	}
	all.Wait()
	r.OK(drawn.Fence())
	if r.Rank == 0 {
		times := must(drawn.Local())
		if i := slices.IndexFunc(times, func(n int64) bool { return n != 1 }); i >= 0 {
			r.Errorf("number %d was drawn %d times", i, times[i])
		}
	}
}

// onesidedCompareAndSwap has all ranks increment an element by CompareAndSwap.
func onesidedCompareAndSwap(r *Rank) {
	swaps(r, func(x int) uint8 { return uint8(x) })
	swaps(r, func(x int) int16 { return int16(x) })
	swaps(r, func(x int) float64 { return float64(x) })
	swaps(r, func(x int) complex128 { return complex(1, float64(x)) })
}

func swaps[T cohort.Number](r *Rank, elem func(x int) T) {
	const each = 25
	w := onesided[T](r, r.Comm, 3)
	r.OK(w.Put([]T{elem(0), elem(0), elem(0)}, r.Rank, 0))
	r.OK(w.Fence())
	for range each {
		for x := 0; ; {
			was := must(w.CompareAndSwap(elem(x), elem(x+1), 0, 1))
			if was == elem(x) {
				break
			}
			for x = 0; elem(x) != was && x < each*r.Size; x++ {
			}
			if elem(x) != was {
				r.Errorf("CompareAndSwap returned %v", was)
				break
			}
		}
	}
	r.OK(w.Fence())
	got := make([]T, 3)
	r.OK(w.Get(got, 0, 0))
	if want := elem(each * r.Size); got[1] != want || got[0] != elem(0) || got[2] != elem(0) {
		r.Errorf("%T: %v after all ranks, want %v between two of %v", want, got, want, elem(0))
	}
}

// onesidedNeighbors has every rank write bytes that lie between those of other ranks, by all operations.
func onesidedNeighbors(r *Rank) {
	const rounds = 100
	w := onesided[uint8](r, r.Comm, r.Size+5)
	for i := 1; i <= rounds; i++ {
		was := uint8(i - 1)
		switch i % 3 {
		case 0:
			r.OK(w.Put([]uint8{uint8(i)}, 0, 3+r.Rank))
		case 1:
			r.OK(w.Accumulate([]uint8{1}, 0, 3+r.Rank, cohort.Sum))
		case 2:
			if got := must(w.CompareAndSwap(was, uint8(i), 0, 3+r.Rank)); got != was {
				r.Errorf("round %d: another rank changed this rank's byte to %d", i, got)
			}
		}
	}
	r.OK(w.Fence())
	if r.Rank == 0 {
		mine := must(w.Local())
		for i, x := range mine {
			want := uint8(rounds)
			if i < 3 || i >= 3+r.Size {
				want = 0
			}
			equal(r, x, want, "byte %d", i)
		}
	}
}

// onesidedFlush passes data with a message after Flush, which has completed them.
func onesidedFlush(r *Rank) {
	const n = 20000
	w := onesided[int64](r, r.Comm, n)
	for round := range 5 {
		buf := filled(n, func(i int) int64 { return int64(round*n + i) })
		r.OK(w.Put(buf, r.next, 0))
		r.OK(w.Accumulate([]int64{1, 2}, r.next, 7, cohort.Sum))
		if round%2 == 0 {
			r.OK(w.Flush(r.next))
		} else {
			r.OK(w.FlushAll())
		}
		r.OK(cohort.Send(r.Comm, []int8{1}, r.next, round))
		must(cohort.Recv(r.Comm, make([]int8, 1), r.prev, round))
		mine := must(w.Local())
		for i, x := range mine {
			want := int64(round*n + i)
			if i == 7 || i == 8 {
				want += int64(i - 6)
			}
			if x != want {
				r.Errorf("round %d: element %d is %d, want %d", round, i, x, want)
				break
			}
		}
		r.OK(r.Comm.Barrier()) // all have read
	}
}

// onesidedProgress has a target compute until the others have done what they want with its part. It calls
// nothing.
func onesidedProgress(r *Rank) {
	w := onesided[int64](r, r.Comm, 1)
	if r.Rank == 0 {
		mine := must(w.Local())
		x := 0
		for i := 0; mine[0] < int64(r.Size-1); i++ {
			x += i % 7
			if i%1000 == 0 {
				runtime.Gosched() // where ranks share a processor
			}
		}
		if x < 0 {
			r.Errorf("%d", x)
		}
	} else {
		must(w.FetchAndOp(1, 0, 0, cohort.Sum))
	}
}

// onesidedRequests checks Rput and Rget.
func onesidedRequests(r *Rank) {
	const n = 30000
	w := onesided[int32](r, r.Comm, n*r.Size)
	out := make([][]int32, r.Size)
	var reqs []*cohort.Request
	for to := range r.Size {
		out[to] = filled(n, func(i int) int32 { return int32(value(r.Rank, to, i)) })
		reqs = append(reqs, must(w.Rput(out[to], to, n*r.Rank)))
	}
	r.OK(w.Fence()) // completes them at the target, too
	r.OK(cohort.WaitAll(reqs...))
	in := make([][]int32, r.Size)
	reqs = reqs[:0]
	for from := range r.Size {
		in[from] = make([]int32, n)
		reqs = append(reqs, must(w.Rget(in[from], from, n*r.Rank)))
	}
	r.OK(cohort.WaitAll(reqs...))
	for from := range r.Size {
		if !slices.Equal(in[from], out[from]) {
			r.Errorf("Rget from rank %d differs from what Rput wrote", from)
		}
	}
	r.OK(w.Fence()) // all have read
	// So many that a rank waits in between until those before are done.
	for i := range 300 {
		r.OK(wait(w.Rput(out[0][:1], (r.Rank+1)%r.Size, i)))
	}
	r.Is(errorOf(w.Rget(in[0], 0, n*r.Size-n+1)), cohort.ErrWin, "Rget of more than there is")
}
