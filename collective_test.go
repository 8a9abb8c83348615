package cohort

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// everyNeighborCollective returns a repeatable blocking call of each collective of a ring, with m elements per
// block.
func everyNeighborCollective(n Neighborhood, m int) map[string]func() error {
	one, two, out := make([]float64, m), make([]float64, 2*m), make([]float64, 2*m)
	counts, displs := []int{m, m}, []int{0, m}
	return map[string]func() error{
		"NeighborAllgather":  func() error { return NeighborAllgather(n, one, out) },
		"NeighborAllgatherv": func() error { return NeighborAllgatherv(n, one, out, counts, displs) },
		"NeighborAlltoall":   func() error { return NeighborAlltoall(n, two, out) },
		"NeighborAlltoallv":  func() error { return NeighborAlltoallv(n, two, counts, displs, out, counts, displs) },
	}
}

// everyCollective returns a repeatable blocking call of each collective and scalar form, with m
// elements per block.
func everyCollective(w *Comm, m int) map[string]func() error {
	n, me := w.Size(), w.Rank()
	one, all := make([]float64, m), make([]float64, n*m)
	out, outAll := make([]float64, m), make([]float64, n*m)
	counts, displs := make([]int, n), make([]int, n)
	back := make([]int, n)
	for i := range n {
		counts[i], displs[i], back[i] = m, i*m, (n-1-i)*m
	}
	scalar := func(f func(*Comm, float64, Op) (float64, error)) func() error {
		return func() error { return second(f(w, float64(me), Sum)) }
	}
	return map[string]func() error{
		"Barrier":              w.Barrier,
		"Bcast":                func() error { return Bcast(w, one, n-1) },
		"Reduce":               func() error { return Reduce(w, one, out, Sum, 0) },
		"Allreduce":            func() error { return Allreduce(w, one, out, Sum) },
		"Allreduce in place":   func() error { return Allreduce(w, one, one, Max) },
		"ReduceScatterBlock":   func() error { return ReduceScatterBlock(w, all, out, Sum) },
		"ReduceScatter":        func() error { return ReduceScatter(w, all, out, counts, Sum) },
		"Gather":               func() error { return Gather(w, one, outAll, 0) },
		"Gatherv":              func() error { return Gatherv(w, one, outAll, counts, displs, 0) },
		"Gatherv backwards":    func() error { return Gatherv(w, one, outAll, counts, back, 0) },
		"Allgather":            func() error { return Allgather(w, one, outAll) },
		"Allgatherv":           func() error { return Allgatherv(w, one, outAll, counts, displs) },
		"Scatter":              func() error { return Scatter(w, all, out, 0) },
		"Scatterv":             func() error { return Scatterv(w, all, counts, displs, out, 0) },
		"Alltoall":             func() error { return Alltoall(w, all, outAll) },
		"Alltoallv, no displs": func() error { return Alltoallv(w, all, counts, nil, outAll, counts, nil) },
		"Alltoallv":            func() error { return Alltoallv(w, all, counts, displs, outAll, counts, back) },
		"Scan":                 func() error { return Scan(w, one, out, Sum) },
		"Exscan":               func() error { return Exscan(w, one, out, Sum) },
		"BcastOne":             func() error { return second(BcastOne(w, 1.5, 0)) },
		"BcastOne struct":      func() error { return second(BcastOne(w, [5]int16{1, 2, 3, 4, 5}, 0)) },
		"ReduceOne":            func() error { return second(ReduceOne(w, 1.5, Sum, 0)) },
		"AllreduceOne":         scalar(AllreduceOne[float64]),
		"ScanOne":              scalar(ScanOne[float64]),
		"ExscanOne":            scalar(ExscanOne[float64]),
	}
}

// Blocking collectives do not allocate, whether the backend performs them or a schedule does, and with a context that can
// end.
func TestCollectivesMakeNoAllocations(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates and drops pooled objects")
	}
	names := slices.Concat(slices.Collect(maps.Keys(everyCollective(discarding(), 1))), slices.Collect(maps.Keys(everyNeighborCollective(nil, 1))))
	for _, how := range []string{"", "COHORT_COLLECTIVES=schedule", "context"} {
		for _, name := range names {
			for _, m := range []int{1, 5000} {
				t.Run(fmt.Sprintf("%s/%s/%d", how, name, m), func(t *testing.T) {
					withEnv(t, how)
					ranks(t, 3, func(w *Comm) error {
						if how == "context" {
							ctx, cancel := context.WithCancel(context.Background())
							defer cancel()
							w = w.WithContext(ctx)
						}
						ring := must.Get(w.CartCreate([]int{3}, []bool{true}, false))
						f := everyCollective(w, m)[name]
						if f == nil {
							f = everyNeighborCollective(ring, m)[name]
						}
						allocates(t, w, 0, name, f)
						return nil
					})
				})
			}
		}
	}
}

// Where dst has room, the collectives that find the counts allocate nothing but the counts that they return. They leave
// dst's elements as they are, and do not take send from the room that they write.
func TestAppendUsesRoomOfDst(t *testing.T) {
	const n = 3
	ranks(t, n, func(w *Comm) error {
		m := w.Rank()
		send, scounts := []int{m, m}, []int{m, m, m}
		to := slices.Repeat([]int{m}, 3*m)
		for _, c := range []struct {
			name string
			f    func(dst []int) ([]int, []int, error)
			want []int
			most float64 // allocations of all ranks: a slice of counts each
		}{
			{"GathervAppend", func(dst []int) ([]int, []int, error) { return GathervAppend(w, dst, send, 0) }, []int{0, 0, 1, 1, 2, 2}, 1},
			{"AllgathervAppend", func(dst []int) ([]int, []int, error) { return AllgathervAppend(w, dst, send) }, []int{0, 0, 1, 1, 2, 2}, n},
			{"AlltoallvAppend", func(dst []int) ([]int, []int, error) { return AlltoallvAppend(w, dst, to, scounts) }, []int{1, 2, 2}, n},
		} {
			dst, want := append(make([]int, 0, 8), 7, 8), append([]int{7, 8}, c.want...)
			if c.name == "GathervAppend" && m > 0 {
				want = want[:2]
			}
			allocates(t, w, c.most, c.name, func() error {
				got, _, err := c.f(dst)
				if err == nil && (!slices.Equal(got, want) || &got[0] != &dst[0]) {
					err = fmt.Errorf("%s: got %v in other memory or other elements, want %v", c.name, got, want)
				}
				return err
			})
		}
		room := make([]int, 8)
		got, counts, err := AllgathervAppend(w, room[:1], room[2:4])
		if len(got) != 1 || counts != nil {
			t.Errorf("after an error AllgathervAppend returns %v with counts %v, want dst and nil", got, counts)
		}
		return wantErr("send in the room of dst", err, ErrBuffer)
	})
}

func BenchmarkCollectives(b *testing.B) {
	for name := range everyCollective(discarding(), 1) {
		for _, m := range []int{1, 10000} {
			b.Run(fmt.Sprintf("%s/%d", name, m), func(b *testing.B) {
				b.ReportAllocs()
				err := Run(b.Context(), 2, func(w *Comm) error {
					f := everyCollective(w, m)[name]
					for range b.N {
						if err := f(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// The blocks of all ranks follow each other, are all of the n elements, and differ in length by 1 at most.
func TestBlocksDivideElements(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 64, 1000, math.MaxInt - 1, math.MaxInt} {
		for size := 1; size <= 33; size++ {
			end := 0
			for r := range size {
				lo, hi := Block(n, size, r)
				if lo != end || hi-lo < n/size || hi-lo > (n-1)/size+1 {
					t.Fatalf("Block(%d, %d, %d) is %d to %d after %d", n, size, r, lo, hi, end)
				}
				end = hi
			}
			if end != n {
				t.Fatalf("%d blocks of %d end at %d", size, n, end)
			}
		}
	}
	for _, wrong := range [][3]int{{5, 0, 0}, {5, 2, 2}, {5, 2, -1}, {-5, 2, 1}} {
		if lo, hi := Block(wrong[0], wrong[1], wrong[2]); lo != hi {
			t.Errorf("Block%v is %d to %d, want none", wrong, lo, hi)
		}
	}
}

// Close reserves the communicator while it frees windows. A collective called then is ErrClosed,
// not ErrBusy.
func TestCollectiveDuringCloseIsClosed(t *testing.T) {
	err := Run(t.Context(), 1, func(w *Comm) error {
		c, err := w.Dup()
		if err != nil {
			return err
		}
		c.begin(backend.Barrier, -1) // as another goroutine would
		if err := c.Barrier(); !errors.Is(err, ErrBusy) {
			t.Errorf("beside another collective: %v, want ErrBusy", err)
		}
		if err := c.Close(); err != nil {
			return err
		}
		if err := c.Barrier(); !errors.Is(err, ErrClosed) {
			t.Errorf("beside Close: %v, want ErrClosed", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
