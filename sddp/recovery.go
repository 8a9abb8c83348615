package sddp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp/internal/text"
)

// Recovery lets work continue when ranks die: the other ranks join the next world of the job with [cohort.Rejoin],
// return to a common state, and continue from there. Processes that take the places of the lost ones get that state. The
// result has the same bits. They join the next world also when the job is to have another size ([cohort.Comm.Resized]), after
// an iteration of a training. The zero value is ready to use. Each rank has its own Recovery and uses it for one Do at a time.
// A nil Recovery does not recover: the loss of a rank is an error on all others.
//
// The backend must be local, shm or tcp, because mpi does not continue after a loss, and the job must be started with
// restarts or be resilient (cohort.Config.Resilient).
type Recovery struct {
	// Lost, if not nil, is called after every loss, once there is a new world.
	Lost func(Loss)

	known common
	world *cohort.Comm // the present one; nil before Do
	id    int          // of this rank
	moved bool         // the next world, or this one before enter, follows one that was to have another size
	kept  *trainer     // of the training so far, after its end on this rank; nil: none has completed an iteration
}

// common is what all ranks of a world know of losses.
type common struct {
	World  int    // the number of the world, from 1; 0: this rank knows nothing yet
	Losses []Loss // so far
	Gone   []int  // ids of the ranks lost since the last of them
	IDs    []int  // by rank: the rank that it had in its first world
}

// Loss describes a loss of ranks.
type Loss struct {
	Ranks     []int // the lost ranks, ascending; each by the number that it had in its first world
	Left      int   // how many ranks continue, with those that are new
	Iteration int   // the iteration that is repeated, from 1; 0 outside of a training
}

// Error describes the loss, so that a Loss can be printed as a warning.
func (l Loss) Error() string {
	lost := "rank " + fmt.Sprint(l.Ranks[0])
	if len(l.Ranks) > 1 {
		lost = "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(l.Ranks), " ", ", "), "[]")
	}
	what := fmt.Sprintf("lost %s; continuing with %s", lost, text.Plural(l.Left, "rank"))
	if l.Iteration > 0 {
		what += fmt.Sprintf(" and repeating iteration %d", l.Iteration)
	}
	return what
}

// Losses returns the losses so far. Of a job whose ranks were all lost, they are those after that.
//
// Not collective.
func (r *Recovery) Losses() []Loss {
	if r == nil {
		return nil
	}
	return r.known.Losses
}

// World returns the present world of the job: world itself if none followed it. The caller closes it.
//
// Not collective.
func (r *Recovery) World(world *cohort.Comm) *cohort.Comm {
	if r == nil || r.world == nil {
		return world
	}
	return r.world
}

// The flags with which the ranks agree on an outcome.
const (
	unbroken = 1 << iota // this rank saw no loss
	unfailed             // this rank had no error that would occur again
	agreed   = unbroken | unfailed
)

// Do calls f with the world, and calls it again with the next one as long as ranks are lost in it. It returns once f has
// ended without a loss on all ranks, or has failed on one. f must be collective and repeatable, however far an earlier
// call has come: a process that takes the place of a lost one calls f for the first time. A [Train] in f continues after
// the completed iterations.
//
// Collective: all ranks of world that are alive call it, and those that are new.
//
// Errors: that of f; [ErrPeer] if f failed on another rank only; those of [cohort.Rejoin], of which [cohort.ErrClosed] means
// that this rank leaves a job that shrinks; [cohort.ErrNotSupported] on a
// backend without recovery.
//
// Deadlines: ctx, and those of the world. A deadline that ends f is an error, not a loss.
func (r *Recovery) Do(ctx context.Context, world *cohort.Comm, f func(world *cohort.Comm) error) error {
	if r == nil {
		return f(world)
	}
	if r.world == nil {
		r.world, r.id = world, world.Rank()
	}
	for {
		if _, err := r.world.Agree(agreed); err != nil {
			return err // the backend cannot recover
		}
		err := r.enter(r.world)
		if err == nil {
			err = f(r.world)
		}
		if err == nil {
			err = r.world.Barrier() // a rank that dies at the end of f may have had something to do there
		}
		mine := agreed
		r.moved = r.moved || errors.Is(err, errResize)
		switch {
		case err == nil || errors.Is(err, ErrStopped): // the same on all ranks, unless some saw a loss
		case isLoss(err):
			mine &^= unbroken
		default:
			mine &^= unfailed
		}
		if mine != agreed { // the others may wait for this rank
			if e := r.world.Revoke(); e != nil {
				return r.ended(errors.Join(err, e))
			}
		}
		all, e := r.world.Agree(mine)
		switch {
		case e != nil:
			return r.ended(errors.Join(err, e))
		case all&unfailed == 0 && mine&unfailed != 0:
			return r.ended(errors.Join(ErrPeer, err))
		case all&unfailed == 0:
			return r.ended(err)
		case all == agreed:
			r.note(0)
			return err
		}
		next, err := cohort.Rejoin(ctx, r.world)
		if errors.Is(err, cohort.ErrClosed) {
			return err // the others have the training
		}
		if err != nil {
			return r.ended(err)
		}
		r.world = next
	}
}

// enter tells all ranks of a world what those know that have been in most worlds, and who is lost since.
//
// Collective: all ranks call it.
func (r *Recovery) enter(world *cohort.Comm) error {
	now, root, all := common{World: world.Generation() + 1}, 0, make([][2]int, world.Size())
	if err := cohort.Allgather(world, [][2]int{{r.id, r.known.World}}, all); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	for rank, its := range all {
		now.IDs = append(now.IDs, its[0])
		if its[1] > all[root][1] {
			root = rank
		}
	}
	text, err := newTeam(world).from(root, "recovery", func() ([]byte, error) {
		gone := slices.Clone(r.known.IDs)
		if r.moved {
			gone = gone[:min(len(gone), len(all))] // the last ones have left
		}
		for _, its := range all {
			if at := slices.Index(gone, its[0]); at >= 0 && its[1] > 0 { // else it is new
				gone = slices.Delete(gone, at, at+1)
			}
		}
		now.Losses, now.Gone = r.known.Losses, append(r.known.Gone, gone...)
		return json.Marshal(now)
	})
	if err != nil {
		return err
	}
	r.known, r.moved = common{}, false
	return json.Unmarshal(text, &r.known)
}

// ended returns the error of a Do that ends in a loss. Rank 0 saves the training first, as after any other error.
func (r *Recovery) ended(err error) error {
	if r.kept == nil {
		return err
	}
	return r.kept.ended(err)
}

// note records the losses since the last call, after which an iteration is repeated.
func (r *Recovery) note(iteration int) {
	if r == nil || len(r.known.Gone) == 0 {
		return
	}
	loss := Loss{Ranks: slices.Sorted(slices.Values(r.known.Gone)), Left: len(r.known.IDs), Iteration: iteration}
	r.known.Losses, r.known.Gone = append(r.known.Losses, loss), nil
	if r.Lost != nil {
		r.Lost(loss)
	}
}

// errResize ends a training on all ranks because the job is to have another size.
var errResize = errors.New("the job is to have another size")

// isLoss reports whether the ranks go on in another world after an error: a rank was lost, which this rank or another one
// noticed, and the communicator is broken; or the job is to have another size.
func isLoss(err error) bool {
	if errors.Is(err, cohort.ErrPeerLost) || errors.Is(err, errResize) {
		return true
	}
	for _, other := range []error{ErrPeer, cohort.ErrMismatch, cohort.ErrCanceled, cohort.ErrTimeout, cohort.ErrInternal, cohort.ErrNotSupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, cohort.ErrBroken)
}
