package hybrid

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// vote is the message that a rank sends to all others after a step.
type vote struct {
	failed   int32 // the index in steps of the step that failed plus 1; 0 if none did
	length   int32 // of the error's text
	threads  int32
	crowding int32
	partly   int32 // 1: pinned to processors of which other ranks may use some
}

// maxText limits the length of an error's text that a rank sends.
const maxText = 4096

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

// agree exchanges the votes of all ranks on the last steps and returns them. If a step failed
// anywhere, agree returns an error on all ranks: the rank's own, or else that of the lowest rank that
// has one.
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
	// An error of the exchange belongs to the step that all ranks are in.
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
	cause := make([]byte, votes[first].length)
	if first == world.Rank() {
		copy(cause, text)
	}
	if err := cohort.Bcast(world, cause, first); err != nil {
		return fail(err)
	}
	if own != nil {
		return nil, own
	}
	step := steps[votes[first].failed-1]
	return nil, &StepError{Step: step, Rank: first, Peer: true, Err: &peerError{string(cause)}}
}

// peerError has the text of another rank's error. It wraps ErrInit.
type peerError struct{ text string }

func (e *peerError) Error() string { return e.text }
func (e *peerError) Unwrap() error { return cohort.ErrInit }
