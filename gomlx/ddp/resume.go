package ddp

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train/metrics"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// Resume lets a training continue in the next world of a job ([cohort.Rejoin]). It gives ctx, which is new, the variables of
// the rank whose training has got furthest, and returns how many steps that had made: none if there was no training.
// before is this rank's Trainer of the world before, nil on a new rank. A Trainer for world and ctx then continues. Resume comes
// after [Checkpoint], whose variables count if there was no training.
//
// Collective.
func Resume(world *cohort.Comm, before *Trainer, ctx *context.Context) (steps int64, err error) {
	mine := cohort.Loc[int64]{Val: -1, Idx: int64(world.Rank())}
	if before != nil {
		if r, ok := before.Context().Loader().(*resumed); before.entries != nil {
			mine.Val = before.GlobalStep()
		} else if ok {
			mine.Val = r.steps
		}
	}
	furthest, err := cohort.AllreduceOne(world, mine, cohort.MaxLoc)
	if err != nil || furthest.Val < 0 {
		return 0, err
	}
	var state []byte
	if furthest.Idx == mine.Idx {
		state, err = before.state()
	}
	if err := cohort.JoinErrors(world, err); err != nil {
		return 0, err
	}
	if state, err = values.Bcast(world, state, int(furthest.Idx)); err != nil {
		return 0, err
	}
	r := &resumed{state: state, steps: furthest.Val, values: make(map[string]*tensors.Tensor), next: ctx.Loader()}
	if err := cohort.JoinErrors(world, r.decode()); err != nil {
		return 0, err
	}
	ctx.SetLoader(r)
	return furthest.Val, nil
}

// state returns the variables that a training continues from.
func (t *Trainer) state() ([]byte, error) {
	if r, ok := t.Context().Loader().(*resumed); ok && t.entries == nil { // it has made no step
		return r.state, nil
	}
	if err := t.setRandomState(t.rng); err != nil { // the last batch may not have been completed
		return nil, err
	}
	var b bytes.Buffer
	to := gob.NewEncoder(&b)
	for v := range t.Context().IterVariables() {
		if isOwn(v) || !v.HasValue() || strings.Contains(v.Scope()+"/", "/"+metrics.Scope+"/") {
			continue
		}
		value, err := v.Value()
		if err == nil {
			err = to.Encode(v.ScopeAndName())
		}
		if err == nil {
			err = value.GobSerialize(to)
		}
		if err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// resumed is a [context.Loader] of the variables of another context.
type resumed struct {
	state  []byte
	steps  int64
	values map[string]*tensors.Tensor // by scope and name
	next   context.Loader             // of other variables; may be nil
}

func (r *resumed) decode() error {
	from := gob.NewDecoder(bytes.NewReader(r.state))
	for {
		var name string
		if err := from.Decode(&name); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		value, err := tensors.GobDeserialize(from)
		if err != nil {
			return err
		}
		r.values[name] = value
	}
}

// LoadVariable implements [context.Loader].
func (r *resumed) LoadVariable(ctx *context.Context, scope, name string) (value *tensors.Tensor, found bool) {
	at := context.JoinScope(scope, name)
	if value, found = r.values[at]; found {
		delete(r.values, at)
		return value, true
	}
	if r.next == nil {
		return nil, false
	}
	return r.next.LoadVariable(ctx, scope, name)
}

// DeleteVariable implements [context.Loader].
func (r *resumed) DeleteVariable(ctx *context.Context, scope, name string) error {
	delete(r.values, context.JoinScope(scope, name))
	if r.next == nil {
		return nil
	}
	return r.next.DeleteVariable(ctx, scope, name)
}
