package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// vote is what a rank tells all others after a step.
type vote struct {
	failed   int32 // the step's place in steps plus 1, 0 if all is well
	length   int32 // of what went wrong, as text
	threads  int32
	crowding int32
	partly   int32 // 1: pinned within processors of which others have some
}

// maxText bounds what a rank tells of its error.
const maxText = 4096

// failure is what went wrong on this rank in a step.
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

// ended is the error of a start whose context has ended.
func ended(ctx context.Context) error {
	sentinel := cohort.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		sentinel = cohort.ErrTimeout
	}
	return fmt.Errorf("%w: %w", sentinel, context.Cause(ctx))
}

// agree tells all ranks how the last steps went here and returns what they told, in
// the order of the ranks. If they failed anywhere it is an error on all: a rank's own
// where it has one, else that of the lowest rank that has.
func agree(world *cohort.Comm, mine vote, f failure) ([]vote, error) {
	text := ""
	var own error
	if f.err != nil {
		own = &StepError{Step: f.step, Rank: world.Rank(), Err: f.err}
		text = f.err.Error()
		text = text[:min(len(text), maxText)]
		mine.failed, mine.length = int32(slices.Index(steps, f.step)+1), int32(len(text))
	}
	votes := make([]vote, world.Size())
	// What ends the exchange is nobody's step but that which all are in.
	fail := func(err error) ([]vote, error) {
		if own != nil {
			return nil, own
		}
		return nil, &StepError{Step: f.step, Rank: cohort.Undefined, Err: err}
	}
	if err := cohort.Allgather(world, []vote{mine}, votes); err != nil {
		return fail(err)
	}
	first := slices.IndexFunc(votes, func(v vote) bool { return v.failed != 0 })
	if first < 0 {
		return votes, nil
	}
	said := make([]byte, votes[first].length)
	if first == world.Rank() {
		copy(said, text)
	}
	if err := cohort.Bcast(world, said, first); err != nil {
		return fail(err)
	}
	if own != nil {
		return nil, own
	}
	step := steps[votes[first].failed-1]
	return nil, &StepError{Step: step, Rank: first, Peer: true, Err: &peerError{string(said)}}
}

// peerError is the error of another rank: its text, and ErrInit.
type peerError struct{ text string }

func (e *peerError) Error() string { return e.text }
func (e *peerError) Unwrap() error { return cohort.ErrInit }
