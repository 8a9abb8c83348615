package cohorttest

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Windows: every operation, many of them at a time, and their deadlines.

// windowReductions has all ranks update the same elements at the same time. The results are those of
// integers, which floats represent exactly.
func windowReductions(r *Rank) {
	reductionsOf(r, func(x int) int8 { return int8(x) })
	reductionsOf(r, func(x int) uint16 { return uint16(x) })
	reductionsOf(r, func(x int) int32 { return int32(x) })
	reductionsOf(r, func(x int) float64 { return float64(x) })
	reductionsOf(r, func(x int) cohort.Float16 { return cohort.ToFloat16(float32(x)) })
	reductionsOf(r, func(x int) complex128 { return complex(float64(x), 0) })
}

func reductionsOf[T cohort.Number](r *Rank, elem func(x int) T) {
	const n, rounds = 1001, 7
	if r.Size*rounds > 100 {
		r.Errorf("int8 holds no sum of %d ranks", r.Size)
	}
	w := onesided[T](r, r.Comm, n)
	ones, was := filled(n-2, func(int) T { return elem(1) }), make([]T, n-2)
	for i := range rounds {
		for k := range r.Size {
			to := (r.Rank + k) % r.Size
			if i%2 == 0 {
				r.OK(w.Accumulate(ones, to, 1, cohort.Sum))
				continue
			}
			r.OK(w.GetAccumulate(ones, was, to, 1, cohort.Sum))
			if was[0] == elem(r.Size*rounds) {
				r.Errorf("%T: GetAccumulate returned the sum of all ranks", was)
			}
		}
	}
	r.OK(w.Fence())
	all := make([]T, n)
	for from := range r.Size {
		r.OK(w.Get(all, from, 0))
		equal(r, [2]T{all[0], all[n-1]}, [2]T{}, "%T: the ends of rank %d's part", all, from)
		same(r, all[1:n-1], func(int) T { return elem(r.Size * rounds) }, "%T of rank %d", all, from)
	}
}

// windowOperations has each rank update the next one's part by every operation. ReduceLocal says what it becomes.
func windowOperations(r *Rank) {
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

// windowNoRank accesses the part of ProcNull, after accesses of a part that have left something in their memory.
func windowNoRank(r *Rank) {
	const none, nowhere = cohort.ProcNull, -7
	w := onesided[int64](r, r.Comm, 1)
	must(w.CompareAndSwap(0, 5, r.Rank, 0))
	must(w.CompareAndSwap(5, 6, r.Rank, 0))
	swapped := must(w.CompareAndSwap(1, 2, none, nowhere))
	fetched := must(w.FetchAndOp(3, none, nowhere, cohort.Sum))
	result := []int64{4}
	r.OK(w.GetAccumulate([]int64{8}, result, none, nowhere, cohort.Sum))
	r.OK(w.Get(result, none, nowhere))
	equal(r, [3]int64{swapped, fetched, result[0]}, [3]int64{0, 0, 4}, "accesses of ProcNull return nothing, and leave what was there")
	r.OK(w.Put(result, none, nowhere))
	r.OK(w.Accumulate(result, none, nowhere, cohort.Sum))
	for _, access := range []func([]int64, int, int) (*cohort.Request, error){w.Rput, w.Rget} {
		r.OK(wait(access(result, none, nowhere)))
	}
	r.OK(w.Flush(none))
}

// windowOwnMemory has each rank put from its own part, and get into it, as in an exchange of halos; and move elements
// within it.
func windowOwnMemory(r *Rank) {
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
	equalSlices(r, mine, want, "elements from and to the part of rank %d", r.next)
	r.OK(w.Put(mine[:n], r.Rank, 1))
	r.OK(w.Get(mine[n:2*n], r.Rank, n+1))
	copy(want[1:], want[:n])
	copy(want[n:], want[n+1:2*n+1])
	equalSlices(r, mine, want, "elements moved within the own part")
}

// windowTickets has goroutines of all ranks draw numbers from one counter: each number is drawn once.
func windowTickets(r *Rank) {
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
		same(r, times, func(int) int64 { return 1 }, "how often each number was drawn")
	}
}

// windowCompareAndSwap has all ranks increment an element by CompareAndSwap.
func windowCompareAndSwap(r *Rank) {
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
	equal(r, [3]T(got), [3]T{elem(0), elem(each * r.Size), elem(0)}, "%T after all ranks", got)
}

// windowNeighbors has every rank write bytes that lie between those of other ranks, by all operations.
func windowNeighbors(r *Rank) {
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
			equal(r, must(w.CompareAndSwap(was, uint8(i), 0, 3+r.Rank)), was, "round %d: this rank's byte, which no other rank changes", i)
		}
	}
	r.OK(w.Fence())
	if r.Rank == 0 {
		same(r, must(w.Local()), func(i int) uint8 {
			if i < 3 || i >= 3+r.Size {
				return 0
			}
			return rounds
		}, "bytes of all ranks")
	}
}

// windowProgress has a target compute until the others have done what they want with its part. It calls
// nothing.
func windowProgress(r *Rank) {
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

// windowRequests checks Rput and Rget.
func windowRequests(r *Rank) {
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
		equalSlices(r, in[from], out[from], "Rget from rank %d of what Rput wrote", from)
	}
	r.OK(w.Fence()) // all have read
	// So many that a rank waits in between until those before are done.
	for i := range 300 {
		r.OK(wait(w.Rput(out[0][:1], (r.Rank+1)%r.Size, i)))
	}
	r.Is(errorOf(w.Rget(in[0], 0, n*r.Size-n+1)), cohort.ErrWin, "Rget of more than there is")
}

// windowDeadlines makes accesses whose deadlines are near or have passed. Answers that come too late are not taken
// for those of later accesses.
func windowDeadlines(r *Rank) {
	const n = 1000
	w := onesided[int64](r, r.Comm, 2*n)
	mine := must(w.Local())
	for i := range mine {
		mine[i] = int64(r.Rank)<<32 + int64(i)
	}
	r.OK(w.Fence())
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			got := make([]int64, n)
			for i := range 150 {
				to, at := (r.Rank+i)%r.Size, (i*37+g)%n
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%10-1)*10*time.Microsecond)
				timed := w.WithContext(ctx)
				length := []int{1, 1, 7, n}[i%4]
				err := timed.Get(got[:length], to, at)
				if err == nil && (got[0] != int64(to)<<32+int64(at) || got[length-1] != int64(to)<<32+int64(at+length-1)) {
					r.Errorf("Get from rank %d at %d: %#x … %#x", to, at, got[0], got[length-1])
				}
				was, err2 := timed.FetchAndOp(0, to, at, cohort.Sum)
				if err2 == nil && was != int64(to)<<32+int64(at) {
					r.Errorf("FetchAndOp at rank %d, %d: %#x", to, at, was)
				}
				if i%20 == 0 {
					r.only(timed.FlushAll(), "FlushAll with a deadline", cohort.ErrTimeout)
				}
				cancel()
				r.only(err, "Get with a deadline", cohort.ErrTimeout)
				r.only(err2, "FetchAndOp with a deadline", cohort.ErrTimeout)
				// One without a deadline takes the tag of an answer that may still come.
				if was, err := w.FetchAndOp(0, to, n-1, cohort.Sum); err != nil || was != int64(to)<<32+n-1 {
					r.Errorf("FetchAndOp at rank %d after deadlines: %#x, %v", to, was, err)
				}
			}
		})
	}
	all.Wait()
	r.OK(w.Fence())
	for from := range r.Size {
		got := make([]int64, 2*n)
		r.OK(w.Get(got, from, 0))
		same(r, got, func(i int) int64 { return int64(from)<<32 + int64(i) }, "rank %d's part after accesses that change nothing", from)
	}
}

// deadOrigin has a rank die whose requests nobody has answered, while other ranks use the same part.
func deadOrigin(r *Rank) {
	w := onesided[int64](r, r.World, 1<<16)
	r.OK(w.Fence())
	lose(r, lastRank, loss{func(r *Rank) {
		buf := make([]int64, 1<<16)
		for range 10 {
			must(w.Rput(buf, 0, 0))
			must(w.Rget(buf, 0, 0))
		}
		for i := range 255 {
			r.OK(w.Put(buf[:1], 0, i))
		}
		perish(r)
	}, died}, func() error {
		return untilFails(func() error { return cmp.Or(errorOf(w.FetchAndOp(1, 0, 0, cohort.Sum)), w.FlushAll()) })
	})
	r.Is(w.Put([]int64{1}, 0, 0), cohort.ErrPeerLost, "Put to rank 0 after the loss")
	r.Is(w.Fence(), cohort.ErrPeerLost, "Fence after the loss")
	// Between nodes the ranks wait for each other.
	r.only(w.Close(), "Close after the loss", cohort.ErrPeerLost, cohort.ErrBroken)
	closed(r, "Close after a loss", w)
}
