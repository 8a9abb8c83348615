package ddp

import (
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"

	"github.com/cohort-hpc/cohort"
)

// batches is a dataset of the rows [lo, hi) of points for each batch.
type batches struct {
	bounds [][2]int
	specs  []any
	next   int
}

func (b *batches) Name() string { return "batches" }
func (b *batches) Reset()       { b.next = 0 }
func (b *batches) Yield() (any, []*tensors.Tensor, []*tensors.Tensor, error) {
	if b.next == len(b.bounds) {
		return nil, nil, nil, io.EOF
	}
	_, inputs, labels, err := points(newBackend(), 96, 96).Yield()
	if err != nil {
		return nil, nil, nil, err
	}
	at := b.bounds[b.next]
	var spec any
	if b.specs != nil {
		spec = b.specs[b.next]
	}
	b.next++
	inputs, labels, err = copyRows(inputs, labels, at[0], at[1])
	return spec, inputs, labels, err
}

// Ranks with 3, 1 and 2 batches train as one process does that has the rows of all ranks in each batch.
func TestLocalJoinsRanksThatEndEarly(t *testing.T) {
	own := [][][2]int{{{0, 8}, {8, 20}, {20, 28}}, {{28, 40}}, {{40, 42}, {42, 48}}}
	whole := &gathered{parts: [][][2]int{{own[0][0], own[1][0], own[2][0]}, {own[0][1], own[2][1]}, {own[0][2]}}}
	backend, ctx := newBackend(), newContext()
	loop := train.NewLoop(train.NewTrainer(backend, ctx, start(dense), losses.MeanSquaredError, adam(), nil, nil))
	if _, err := loop.RunEpochs(whole, 2); err != nil {
		t.Fatal(err)
	}
	want := trained(ctx)
	got := make([]map[string][]float32, 3)
	err := ranks(t, 3, func(world *cohort.Comm) (err error) {
		got[world.Rank()], _, err = training{model: start(dense), epochs: 2, dataset: func(t *Trainer, _ backends.Backend) train.Dataset {
			return t.Local(&batches{bounds: own[world.Rank()]})
		}}.run(world)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range got {
		if err := near(got[rank], want, 2e-5); err != nil {
			t.Errorf("rank %d and one process: %v", rank, err)
		}
	}
}

// gathered is a dataset whose batches are put together from several ranges of points.
type gathered struct {
	parts [][][2]int
	next  int
}

func (g *gathered) Name() string { return "gathered" }
func (g *gathered) Reset()       { g.next = 0 }
func (g *gathered) Yield() (any, []*tensors.Tensor, []*tensors.Tensor, error) {
	if g.next == len(g.parts) {
		return nil, nil, nil, io.EOF
	}
	var x, y []float32
	for _, p := range g.parts[g.next] {
		_, inputs, labels, err := (&batches{bounds: [][2]int{p}}).Yield()
		if err != nil {
			return nil, nil, nil, err
		}
		x = append(x, tensors.MustCopyFlatData[float32](inputs[0])...)
		y = append(y, tensors.MustCopyFlatData[float32](labels[0])...)
	}
	g.next++
	return nil, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(x, len(y), features)}, []*tensors.Tensor{tensors.FromFlatDataAndDimensions(y, len(y), 1)}, nil
}

// GoMLX's InMemoryDataset shuffles in another order on each rank: only rank 0's counts.
func TestScatterTakesRankZerosBatches(t *testing.T) {
	got, err := training{epochs: 4, dataset: func(t *Trainer, b backends.Backend) train.Dataset {
		return t.Scatter(points(b, 91, 24).Shuffle())
	}}.each(t, 3)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range got {
		if err := near(got[rank], got[0], 0); err != nil {
			t.Errorf("ranks %d and 0: %v", rank, err)
		}
	}
	plain := func(t *Trainer, b backends.Backend) train.Dataset { return t.Scatter(points(b, 91, 24)) }
	got, err = training{model: start(dense), dataset: plain}.each(t, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := near(got[2], alone(t, 91, 24, 3, start(dense)), 2e-5); err != nil {
		t.Errorf("rank 2 and one process: %v", err)
	}
}

func TestCutGivesEachRowToOneRank(t *testing.T) {
	for size := 1; size <= 5; size++ {
		for micro := range 4 {
			for rows := 1; rows <= 14; rows++ {
				seen, steps := make([]int, rows), -1
				for rank := range size {
					own := cut(rows, micro, rank, size)
					if steps < 0 {
						steps = len(own)
					}
					if len(own) != steps || !own[0].first || !own[steps-1].last {
						t.Fatalf("cut(%d, %d, %d, %d) = %+v", rows, micro, rank, size, own)
					}
					for _, p := range own {
						if p.hi <= p.lo || p.hi > rows || micro > 0 && p.hi-p.lo > micro || p.rows != 0 && p.rows != p.hi-p.lo {
							t.Fatalf("cut(%d, %d, %d, %d): %+v", rows, micro, rank, size, p)
						}
						for i := p.lo; i < p.lo+p.rows; i++ {
							seen[i]++
						}
					}
				}
				if slices.Min(seen) != 1 || slices.Max(seen) != 1 {
					t.Errorf("cut(%d, %d, …, %d) takes the rows %v times", rows, micro, size, seen)
				}
			}
		}
	}
}

// Eval gives every rank the loss of one process that has the same parameters.
func TestEvalAveragesOverAllRows(t *testing.T) {
	backend, ctx := newBackend(), newContext()
	m, err := train.NewTrainer(backend, ctx, start(dense), losses.MeanSquaredError, adam(), nil, nil).Eval(points(backend, 90, 30))
	if err != nil {
		t.Fatal(err)
	}
	want := scalar(m[0])
	for _, batch := range []int{30, 1} { // of one row, ranks 1 and 2 have nothing
		err = ranks(t, 3, func(world *cohort.Comm) error {
			b := newBackend()
			m, err := NewTrainer(world, nil, b, newContext(), start(dense), losses.MeanSquaredError, adam(), nil, nil).Eval(points(b, 90, batch))
			if err != nil {
				return err
			}
			if got := scalar(m[0]); math.Abs(got-want) > 1e-5 {
				return fmt.Errorf("batches of %d: %v, want %v", batch, got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// torn yields one batch and then an error.
type torn struct{ batches }

func (ds *torn) Yield() (any, []*tensors.Tensor, []*tensors.Tensor, error) {
	if ds.next == 1 {
		return nil, nil, nil, io.ErrUnexpectedEOF
	}
	return ds.batches.Yield()
}

// Rank 0 has no row of the first batch, and its dataset fails before it has one.
func TestEvalReturnsErrorOfRankWithoutRows(t *testing.T) {
	testFailure(t, []string{"rank 0"}, io.ErrUnexpectedEOF, func(world *cohort.Comm) error {
		var ds train.Dataset = &batches{bounds: [][2]int{{0, 1}, {1, 31}}}
		if world.Rank() == 0 {
			ds = &torn{batches{bounds: [][2]int{{0, 1}}}}
		}
		_, err := NewTrainer(world, nil, newBackend(), newContext(), start(dense), losses.MeanSquaredError, adam(), nil, nil).Eval(ds)
		return err
	})
}
