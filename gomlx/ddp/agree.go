package ddp

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train/metrics"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tensor"
	"github.com/cohort-hpc/cohort/values"
)

// connect makes the Trainer's communicators, compares what the ranks are about to train, and gives all ranks the
// random state of rank 0.
func (t *Trainer) connect() error {
	if t.comm != nil {
		return nil
	}
	comm, err := t.world.Dup()
	if err != nil {
		return err
	}
	t.comm = comm
	if err := t.same(t.program()); err != nil {
		return err
	}
	if t.tcomm, err = tensor.NewComm(comm, nil); err != nil {
		return err
	}
	ctx := t.Context()
	if v := randomState(ctx); v == nil || !v.HasValue() {
		err = ctx.ResetRNGState()
	}
	if err := cohort.JoinErrors(comm, err); err != nil {
		return err
	}
	state := randomState(ctx)
	if err := t.bcast(state); err != nil {
		return err
	}
	return tensors.ConstFlatData(state.MustValue(), func(flat []uint64) { copy(t.rng[:], flat) })
}

// program describes what a rank is about to train, in lines.
func (t *Trainer) program() []string {
	lines := []string{"GoMLX " + t.version, "backend " + t.backend.Name(), fmt.Sprintf("optimizer %T", t.optimizer), fmt.Sprintf("ddp.Config %+v", t.cfg)}
	for _, m := range t.TrainMetrics() {
		lines = append(lines, "train metric "+m.Name())
	}
	for _, m := range t.EvalMetrics() {
		lines = append(lines, "eval metric "+m.Name())
	}
	var params []string
	t.Context().EnumerateParams(func(scope, key string, value any) {
		if k := reflect.ValueOf(value).Kind(); k >= reflect.Bool && k <= reflect.Complex128 || k == reflect.String {
			params = append(params, fmt.Sprintf("hyperparameter %s = %v", context.JoinScope(scope, key), value))
		}
	})
	slices.Sort(params)
	return append(lines, params...)
}

// gomlxVersion returns the release of GoMLX that this program was built with.
func gomlxVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown release"
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/gomlx/gomlx" {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Version + " " + m.Sum
		}
	}
	return "of unknown release"
}

// same returns an error on every rank if the lines of one differ from rank 0's.
func (t *Trainer) same(lines []string) error {
	theirs, err := values.Bcast(t.comm, lines, 0)
	if err != nil {
		return err
	}
	if slices.Equal(lines, theirs) {
		return cohort.JoinErrors(t.comm, nil)
	}
	i := 0
	for i < len(lines) && i < len(theirs) && lines[i] == theirs[i] {
		i++
	}
	at := func(s []string) string {
		if i < len(s) {
			return s[i]
		}
		return "nothing more"
	}
	return cohort.JoinErrors(t.comm, fmt.Errorf("ddp: the ranks train different models: this rank has %q, rank 0 has %q: %w", at(lines), at(theirs), cohort.ErrMismatch))
}

// share gives all ranks rank 0's values of the variables that all have made since the last call. Those without a value
// are initialized first.
func (t *Trainer) share(ctx *context.Context) error {
	if err := ctx.InitializeVariables(t.backend, nil); err != nil {
		return err
	}
	var vars []*context.Variable
	for v := range ctx.IterVariables() {
		// Metrics begin anew in each run, and their names differ between ranks.
		if t.shared[v] || isOwn(v) || v == randomState(ctx) || strings.Contains(v.Scope()+"/", "/"+metrics.Scope+"/") {
			continue
		}
		t.shared[v] = true
		vars = append(vars, v)
	}
	slices.SortFunc(vars, func(a, b *context.Variable) int { return strings.Compare(a.ScopeAndName(), b.ScopeAndName()) })
	lines := make([]string, len(vars))
	for i, v := range vars {
		lines[i] = fmt.Sprintf("variable %s %s trainable %t", v.ScopeAndName(), v.Shape(), v.Trainable)
	}
	if err := t.same(lines); err != nil {
		return err
	}
	for _, v := range vars {
		if err := t.bcast(v); err != nil {
			return err
		}
	}
	return nil
}

// randomState returns the variable from which graphs draw random numbers.
func randomState(ctx *context.Context) *context.Variable {
	v := ctx.GetVariableByScopeAndName(context.RootScope, context.RNGStateVariableName)
	if v != nil {
		v.SetTrainable(false) // it is trainable when it comes from a checkpoint
	}
	return v
}

// bcast gives all ranks rank 0's value of a variable.
func (t *Trainer) bcast(v *context.Variable) error {
	value, err := v.Value()
	if err != nil {
		return err
	}
	if value.Size() == 0 {
		return nil
	}
	var sent error
	err = value.MutableBytes(func(data []byte) { sent = cohort.Bcast(t.comm, data, 0) })
	if sent != nil {
		return sent
	}
	return err
}

// setRandomState sets the state from which the next graph draws its random numbers.
func (t *Trainer) setRandomState(state [3]uint64) error {
	return randomState(t.Context()).SetValue(tensors.FromFlatDataAndDimensions(state[:], len(state)))
}

// derive returns the i-th random state after state, by SplitMix64 (Steele, Lea and Flood, 2014).
func derive(state [3]uint64, i uint64) (d [3]uint64) {
	x := state[0]
	for k := range d {
		x ^= state[k]
		for _, y := range [2]uint64{i, uint64(k)} {
			x += 0x9e3779b97f4a7c15 * (y + 1)
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			x ^= x >> 31
		}
		d[k] = x
	}
	return d
}
