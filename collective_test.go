package cohort

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
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
		return func() error { _, err := f(w, float64(me), Sum); return err }
	}
	return map[string]func() error{
		"Barrier":            w.Barrier,
		"Bcast":              func() error { return Bcast(w, one, n-1) },
		"Reduce":             func() error { return Reduce(w, one, out, Sum, 0) },
		"Allreduce":          func() error { return Allreduce(w, one, out, Sum) },
		"Allreduce in place": func() error { return Allreduce(w, one, one, Max) },
		"ReduceScatterBlock": func() error { return ReduceScatterBlock(w, all, out, Sum) },
		"ReduceScatter":      func() error { return ReduceScatter(w, all, out, counts, Sum) },
		"Gather":             func() error { return Gather(w, one, outAll, 0) },
		"Gatherv":            func() error { return Gatherv(w, one, outAll, counts, displs, 0) },
		"Gatherv backwards":  func() error { return Gatherv(w, one, outAll, counts, back, 0) },
		"Allgather":          func() error { return Allgather(w, one, outAll) },
		"Allgatherv":         func() error { return Allgatherv(w, one, outAll, counts, displs) },
		"Scatter":            func() error { return Scatter(w, all, out, 0) },
		"Scatterv":           func() error { return Scatterv(w, all, counts, displs, out, 0) },
		"Alltoall":           func() error { return Alltoall(w, all, outAll) },
		"Alltoallv":          func() error { return Alltoallv(w, all, counts, displs, outAll, counts, back) },
		"Scan":               func() error { return Scan(w, one, out, Sum) },
		"Exscan":             func() error { return Exscan(w, one, out, Sum) },
		"BcastOne":           func() error { _, err := BcastOne(w, 1.5, 0); return err },
		"BcastOne struct":    func() error { _, err := BcastOne(w, [5]int16{1, 2, 3, 4, 5}, 0); return err },
		"ReduceOne":          func() error { _, err := ReduceOne(w, 1.5, Sum, 0); return err },
		"AllreduceOne":       scalar(AllreduceOne[float64]),
		"ScanOne":            scalar(ScanOne[float64]),
		"ExscanOne":          scalar(ExscanOne[float64]),
	}
}

// Blocking collectives do not allocate, whether the backend performs them or a schedule does.
func TestCollectivesMakeNoAllocations(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates and drops pooled objects")
	}
	const runs = 100
	names := slices.Concat(slices.Collect(maps.Keys(everyCollective(discarding(), 1))), slices.Collect(maps.Keys(everyNeighborCollective(nil, 1))))
	for _, env := range []string{"", "COHORT_COLLECTIVES=schedule"} {
		for _, name := range names {
			for _, m := range []int{1, 5000} {
				t.Run(fmt.Sprintf("%s/%s/%d", env, name, m), func(t *testing.T) {
					old := osEnv
					osEnv = envOf(env)
					defer func() { osEnv = old }()
					ranks(t, 3, func(w *Comm) error {
						ring, err := w.CartCreate([]int{3}, []bool{true}, false)
						if err != nil {
							return err
						}
						f := everyCollective(w, m)[name]
						if f == nil {
							f = everyNeighborCollective(ring, m)[name]
						}
						var failed error
						again := func() { failed = errors.Join(failed, f()) }
						for range 30 { // pools and caches fill
							again()
						}
						if w.Rank() > 0 {
							for range runs + 1 {
								again()
							}
							return failed
						}
						if n := testing.AllocsPerRun(runs, again); n > 0.5 {
							t.Errorf("%v allocations by three ranks together", n)
						}
						return failed
					})
				})
			}
		}
	}
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
