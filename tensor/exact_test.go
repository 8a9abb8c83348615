package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// batch returns the gradients of a batch. Sums of some of them are exact in float64.
func batch(b, step int) [][]float32 {
	rng := rand.New(rand.NewPCG(uint64(b), uint64(step)))
	var all [][]float32
	for _, n := range lengths {
		g := make([]float32, n)
		for i := range g {
			g[i] = float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(24)))
		}
		all = append(all, g)
	}
	return all
}

// Twelve batches have the same average on any number of ranks: the exact one, rounded and divided.
func TestExactReducerDoesNotDependOnRanks(t *testing.T) {
	onRanks(t, []int{1, 2, 3}, func(_ *testing.T, world *cohort.Comm) error { return exactSteps(world) })
}

func exactSteps(world *cohort.Comm) error {
	const batches = 12
	c := must.Get(NewComm(world, nil))
	var tensors []*Tensor[float32]
	for _, n := range lengths {
		tensors = append(tensors, must.Get(New[float32](n)))
	}
	r := must.Get(NewReducer(c, tensors, Average, 2048))
	if err := r.Accumulate(); !errors.Is(err, cohort.ErrRequest) {
		return fmt.Errorf("Accumulate before Exact: %v, want ErrRequest", err)
	}
	must.OK(r.Exact())
	for step := range 2 {
		for b := world.Rank(); b < batches; b += world.Size() {
			for i, g := range slices.Backward(batch(b, step)) {
				copy(tensors[i].Data(), g)
				must.OK(r.Ready(i))
			}
			end := r.Accumulate
			if b+world.Size() >= batches {
				end = r.Wait
			}
			must.OK(end())
		}
		for i, n := range lengths {
			want := make([]float64, n)
			for b := range batches {
				for j, x := range batch(b, step)[i] {
					want[j] += float64(x)
				}
			}
			for j, got := range tensors[i].Data() {
				if w := float32(want[j]) / batches; got != w {
					return fmt.Errorf("step %d, tensor %d: element %d is %v, want %v", step, i, j, got, w)
				}
			}
		}
	}
	if err := r.Wait(); !errors.Is(err, cohort.ErrRequest) {
		return fmt.Errorf("Wait before Ready: %v, want ErrRequest", err)
	}
	return errors.Join(r.Close(), c.Close())
}

func TestExactReducerRefusesWhatItCannotAdd(t *testing.T) {
	onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
		c := must.Get(NewComm(world, nil))
		whole, err := NewReducer(c, []*Tensor[int64]{must.Get(New[int64](1))}, Sum, 0)
		if err == nil {
			if err := whole.Exact(); !errors.Is(err, cohort.ErrType) {
				t.Errorf("integers: %v, want ErrType", err)
			}
			err = whole.Close()
		}
		if err != nil {
			return err
		}
		most, err := NewReducer(c, []*Tensor[float64]{must.Get(New[float64](1))}, Max, 0)
		if err == nil {
			if err := most.Exact(); !errors.Is(err, cohort.ErrOp) {
				t.Errorf("the maximum: %v, want ErrOp", err)
			}
			err = most.Close()
		}
		if err != nil {
			return err
		}
		late, err := NewReducer(c, []*Tensor[float64]{must.Get(New[float64](1))}, Sum, 0)
		if err == nil {
			err = late.Ready(0)
			if err := late.Exact(); !errors.Is(err, cohort.ErrRequest) {
				t.Errorf("in a step: %v, want ErrRequest", err)
			}
			err = errors.Join(err, late.Wait(), late.Close())
		}
		return errors.Join(err, c.Close())
	})
}
