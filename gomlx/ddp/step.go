package ddp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
)

// begin agrees with the other ranks on the variables of the model, gives all ranks the values of rank 0, and assigns to
// buckets what is averaged: the gradients of all parameters, and the variables that the model changes. Collective.
func (t *Trainer) begin(ctx *context.Context, changed []*context.Variable) error {
	if t.comm == nil {
		return errors.New("ddp: a train step comes before NewLoop")
	}
	var entries []*entry
	for v := range ctx.IterVariables() {
		if v.Trainable {
			entries = append(entries, &entry{variable: v})
		}
	}
	for _, e := range entries {
		e.gradient = hold(ctx, e.variable)
	}
	for _, v := range changed {
		entries = append(entries, &entry{variable: v})
	}
	t.number = ctx.InAbsPath(scope).Checked(false).VariableWithValue("graph", int64(0)).SetTrainable(false)
	exclude(ctx)
	if err := t.share(ctx); err != nil {
		return err
	}
	// Initializers have drawn random numbers. This step draws those that it draws on any number of ranks.
	if err := t.setRandomState(derive(t.rng, uint64(t.piece.index))); err != nil {
		return err
	}

	slices.SortFunc(entries, func(a, b *entry) int {
		return strings.Compare(a.variable.ScopeAndName(), b.variable.ScopeAndName())
	})
	lines := make([]string, len(entries))
	var narrow, wide []*entry
	t.entries = make(map[*context.Variable]*entry, len(entries))
	for i, e := range entries {
		e.index = i
		t.entries[e.variable] = e
		lines[i] = fmt.Sprintf("%v, averaged", e)
		switch d := e.variable.DType(); d {
		case dtypes.Float32, dtypes.Float16, dtypes.BFloat16:
			narrow = append(narrow, e)
		case dtypes.Float64:
			wide = append(wide, e)
		default:
			return fmt.Errorf("ddp: average %v: its elements are of type %v: %w", e, d, cohort.ErrNotSupported)
		}
	}
	if err := t.same(lines); err != nil {
		return err
	}
	most := t.cfg.BucketBytes
	if most == 0 {
		most = bucketDefault
	}
	s32, err32 := newSums[float32](t, narrow, most/4)
	s64, err64 := newSums[float64](t, wide, most/8)
	t.sums = []summer{s32, s64}
	t.used = make([]float64, len(entries))
	t.values, t.exact = make([]float64, len(t.TrainMetrics())), exact.New[float64](len(t.TrainMetrics()))
	return errors.Join(err32, err64)
}

// step adds up the gradients and metrics of a train step. If the step is the last of its batch:
//
//  1. agree with the other ranks: how many rows all have, which gradients there are, and the metrics;
//  2. add up the gradients of all ranks, bucket by bucket, while the next bucket is filled;
//  3. make the optimizer's step with the average, if it is finite.
func (t *Trainer) step(metrics []*tensors.Tensor) error {
	p := &t.piece
	if !p.yielded {
		return errors.New("ddp: the batch is not from the trainer's Shard, Scatter or Local")
	}
	t.updated = false
	graph := t.graphs[tensors.ToScalar[int64](t.number.MustValue())]
	if p.first {
		for _, s := range t.sums {
			s.clear()
		}
		clear(t.used)
		clear(t.values)
		t.exact.Reset()
		t.rows, t.bad = 0, nil
	}
	if p.rows > 0 {
		t.rows += p.rows
		for k, u := range graph.uses {
			t.used[k] = max(t.used[k], u)
		}
		now := make([]float64, len(t.values))
		for i, m := range metrics {
			now[i] = float64(p.rows) * scalar(m)
			t.values[i] += now[i]
		}
		if err := t.exact.Add(now); err != nil {
			return err
		}
	}
	fill := func(s summer) func(k int) error {
		return func(k int) error {
			if p.rows == 0 {
				return nil
			}
			bad, err := s.add(k, p.rows, graph.uses)
			if t.bad == nil {
				t.bad = bad
			}
			return err
		}
	}
	if !p.last {
		return errors.Join(t.sums[0].all(fill(t.sums[0])), t.sums[1].all(fill(t.sums[1])))
	}

	total, err := t.agree(false)
	if err != nil {
		return err
	}
	copy(t.used, total[hWords+len(t.values):])
	if t.cfg.Exact {
		if err := t.exact.Allreduce(t.comm, total[hWords:hWords+len(t.values)]); err != nil {
			return err
		}
	}
	for i, m := range metrics {
		setScalar(m, total[hWords+i]/total[hRows])
	}
	var bad *entry
	for _, s := range t.sums {
		if err := s.reduce(fill(s)); err != nil {
			return err
		}
		b, err := s.store(total[hRows], t.used)
		if err != nil {
			return err
		}
		if bad == nil {
			bad = b
		}
	}
	if bad != nil && !context.GetParamOr(t.Context(), optimizers.ParamClipNaN, false) {
		return t.notFinite(bad)
	}
	if err := t.optimize(graph); err != nil {
		return err
	}
	t.updated = true
	t.rng = derive(t.rng, ^uint64(0))
	return t.setRandomState(t.rng)
}

// notFinite returns the error of a sum that is not finite, which all ranks have. It names the rank that is the cause.
func (t *Trainer) notFinite(sum *entry) error {
	step := t.GlobalStep() + 1
	var own error
	if t.bad != nil {
		own = fmt.Errorf("ddp: %v is infinite or not a number in step %d", t.bad, step)
	}
	if err := cohort.JoinErrors(t.comm, own); err != nil {
		return err
	}
	return fmt.Errorf("ddp: %v is finite on every rank in step %d, but their sum is not", sum, step)
}

// end tells the other ranks that this one has ended. Collective.
func (t *Trainer) end() error {
	if t.entries == nil {
		return nil
	}
	_, err := t.agree(true)
	return err
}

// The words of the header that ranks add up at the end of a batch. Sums of metrics and the uses of entries follow.
const (
	hEnded   = iota // 1 if this rank has ended
	hDigest         // of the batch that the dataset has yielded
	hDigest2        // its square
	hRows           // of this rank
	hWords
)

// agree adds up the headers of all ranks. It fails on every rank if some have ended and others have not, or if their
// datasets have yielded different batches. Collective.
func (t *Trainer) agree(ended bool) ([]float64, error) {
	h := make([]float64, hWords, hWords+len(t.values)+len(t.used))
	if ended {
		h[hEnded] = 1
	}
	d := float64(t.piece.digest)
	h[hDigest], h[hDigest2], h[hRows] = d, d*d, float64(t.rows)
	h = append(append(h, t.values...), t.used...)
	if err := cohort.Allreduce(t.comm, h, h, cohort.Sum); err != nil {
		return nil, err
	}
	n := float64(t.comm.Size())
	if e := h[hEnded]; e != 0 && e != n {
		var own error
		if ended {
			own = fmt.Errorf("ddp: training has ended after step %d, and other ranks go on; give all the same number of steps: %w", t.GlobalStep(), cohort.ErrMismatch)
		}
		return nil, cohort.JoinErrors(t.comm, own)
	}
	if !ended && n*h[hDigest2] != h[hDigest]*h[hDigest] { // the digests vary
		return nil, fmt.Errorf("ddp: the datasets of the ranks have yielded different batches; give them the same seed, or use Scatter in place of Shard: %w", cohort.ErrMismatch)
	}
	return h, nil
}

// scalar returns the value of a metric.
func scalar(m *tensors.Tensor) float64 { return shapes.ConvertTo[float64](m.Value()) }

// setScalar sets the value of a metric, unless it is an integer.
func setScalar(m *tensors.Tensor, x float64) {
	if m.DType().IsFloat() {
		m.MustMutableFlatData(func(flat any) { assign(flat, []float64{x}) })
	}
}
