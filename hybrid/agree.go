package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/comm"
)

// failure is the step that failed on this rank, and its error.
type failure struct {
	step string
	err  error
}

// try runs a step that can fail on this rank alone, unless one has failed before.
func (f *failure) try(ctx context.Context, step string, work func() error) {
	if f.err != nil {
		return
	}
	if f.step = step; ctx.Err() != nil {
		f.err = ended(ctx)
		return
	}
	f.err = work()
}

// ended returns the error of a start whose context has ended.
func ended(ctx context.Context) error {
	sentinel := cohort.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		sentinel = cohort.ErrTimeout
	}
	return fmt.Errorf("%w: %w", sentinel, context.Cause(ctx))
}

// agree returns an error on all ranks if one of the last steps failed on any: the rank's own, or else that of the
// lowest rank that has one.
func agree(world *cohort.Comm, f failure) error {
	err := cohort.JoinErrors(world, f.err)
	var one *comm.RankError
	step := int8(slices.Index(steps, f.step))
	if errors.As(err, &one) {
		var failed error
		if step, failed = cohort.BcastOne(world, step, one.Rank); failed != nil {
			err, one = failed, nil
		}
	}
	switch {
	case err == nil:
		return nil
	case f.err != nil:
		return &StepError{Step: f.step, Rank: world.Rank(), Err: f.err}
	case one != nil:
		return &StepError{Step: steps[step], Rank: one.Rank, Peer: true, Err: one.Err}
	}
	return &StepError{Step: f.step, Rank: cohort.Undefined, Err: err} // of the exchange, in which all ranks are
}
