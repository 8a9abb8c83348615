package sddp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Recovery lets work continue when ranks die: the other ranks shrink the communicator, return to a
// common state, and continue from there. The result has the same bits. The zero value is ready to use.
// Each rank has its own Recovery and uses it for one operation at a time. A nil Recovery does not
// recover: the loss of a rank is an error on all others.
//
// The backend must be local, shm or tcp, because mpi does not continue after a loss, and the job must be
// resilient (cohort.Config.Resilient).
type Recovery struct {
	// Lost, if not nil, is called after every loss, once there is a new communicator.
	Lost func(Loss)

	losses []Loss
	made   []*cohort.Comm // shrunk communicators; the last one is current
	me     int64          // this rank in the first communicator
	ids    []int64        // ranks of the current communicator, in the first one
	gone   []int          // ranks lost since the last entry of losses
	size   int            // of the first communicator
	same   int            // how often no member of a communicator was lost that a loss has ended
}

// Loss describes a loss of ranks.
type Loss struct {
	Ranks     []int // the lost ranks of the first communicator, ascending
	Left      int   // how many ranks continue
	Iteration int   // the iteration that is repeated, from 1; 0 outside of a training
}

// Error describes the loss, so that a Loss can be printed as a warning.
func (l Loss) Error() string {
	lost := "rank " + fmt.Sprint(l.Ranks[0])
	if len(l.Ranks) > 1 {
		lost = "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(l.Ranks), " ", ", "), "[]")
	}
	text := fmt.Sprintf("lost %s; continuing with %s", lost, plural(l.Left, "rank"))
	if l.Iteration > 0 {
		text += fmt.Sprintf(" and repeating iteration %d", l.Iteration)
	}
	return text
}

// Losses returns the losses so far.
//
// Not collective.
func (r *Recovery) Losses() []Loss {
	if r == nil {
		return nil
	}
	return r.losses
}

// World returns the communicator of the ranks that are left: world itself if none are lost.
//
// Not collective.
func (r *Recovery) World(world *cohort.Comm) *cohort.Comm {
	if r == nil || len(r.made) == 0 {
		return world
	}
	return r.made[len(r.made)-1]
}

// Close closes the communicators that the Recovery created.
//
// Not collective: it does not wait for other ranks.
func (r *Recovery) Close() error {
	if r == nil {
		return nil
	}
	var err error
	for _, c := range r.made {
		err = errors.Join(err, c.Close())
	}
	r.made = nil
	return err
}

// The flags with which the ranks agree on an outcome.
const (
	unbroken = 1 << iota // this rank saw no loss
	unfailed             // this rank had no error that would occur again
	agreed   = unbroken | unfailed
)

// Do calls f with the communicator of the ranks that are left, and calls it again as long as ranks are
// lost in it. It returns once f has ended without a loss on all ranks, or has failed on one. f must be
// collective and repeatable, however far an earlier call has come.
//
// Collective: all ranks of world that are alive call it.
//
// Errors: that of f; [ErrPeer] if f failed on another rank only; [cohort.ErrNotSupported] on a backend
// without recovery.
//
// Deadlines: those of the communicator. A deadline that ends f is an error, not a loss.
func (r *Recovery) Do(world *cohort.Comm, f func(world *cohort.Comm) error) error {
	if r == nil {
		return f(world)
	}
	if err := r.prepare(world); err != nil {
		return err
	}
	var err error
	for {
		if err == nil {
			err = f(r.World(world))
		}
		now := r.World(world)
		mine := agreed
		switch {
		case err == nil || errors.Is(err, ErrStopped): // the same on all ranks, unless some saw a loss
		case isLoss(err):
			mine &^= unbroken
		default:
			mine &^= unfailed
		}
		if mine != agreed { // the others may wait for this rank
			if e := now.Revoke(); e != nil {
				return errors.Join(err, e)
			}
		}
		all, e := now.Agree(mine)
		switch {
		case e != nil:
			return errors.Join(err, e)
		case all&unfailed == 0 && mine&unfailed != 0:
			return errors.Join(ErrPeer, err)
		case all&unfailed == 0 || all == agreed:
			r.note(0)
			return err
		}
		err = r.shrink(now)
	}
}

// prepare checks that the backend can recover.
func (r *Recovery) prepare(world *cohort.Comm) error {
	if r.ids == nil {
		r.me, r.size = int64(world.Rank()), world.Size()
		for i := range world.Size() {
			r.ids = append(r.ids, int64(i))
		}
	}
	_, err := r.World(world).Agree(agreed)
	return err
}

// shrink creates the communicator of the ranks that are left. Its error is a further loss, or final.
func (r *Recovery) shrink(old *cohort.Comm) error {
	next, err := old.Shrink()
	if err != nil {
		return err
	}
	if next.Size() == old.Size() {
		// A rank that closed its communicators before it was lost is no member of either, and its loss ends
		// both all the same. Every rank is lost once.
		if r.same++; r.same > r.size {
			return errors.Join(fmt.Errorf("%w: the communicator is broken although no rank is lost", cohort.ErrInternal), next.Close())
		}
	}
	r.made = append(r.made, next)
	ids := make([]int64, next.Size())
	if err := cohort.Allgather(next, []int64{r.me}, ids); err != nil {
		return err
	}
	for _, id := range r.ids {
		if !slices.Contains(ids, id) {
			r.gone = append(r.gone, int(id))
		}
	}
	r.ids = ids
	return nil
}

// note records the losses since the last call, after which an iteration is repeated.
func (r *Recovery) note(iteration int) {
	if r == nil || len(r.gone) == 0 {
		return
	}
	loss := Loss{Ranks: r.gone, Left: len(r.ids), Iteration: iteration}
	r.gone = nil
	r.losses = append(r.losses, loss)
	if r.Lost != nil {
		r.Lost(loss)
	}
}

// isLoss reports whether an error means that a rank was lost: this rank or another one noticed it, and
// the communicator is broken.
func isLoss(err error) bool {
	if errors.Is(err, cohort.ErrPeerLost) {
		return true
	}
	for _, other := range []error{ErrPeer, cohort.ErrMismatch, cohort.ErrCanceled, cohort.ErrTimeout, cohort.ErrInternal, cohort.ErrNotSupported} {
		if errors.Is(err, other) {
			return false
		}
	}
	return errors.Is(err, cohort.ErrBroken)
}

// agreeOnIterations sends the iterations that any rank has completed to all ranks that are left. A rank
// completes an iteration with the sums of all ranks, which they send after the cuts of all stages are in
// the memory of all nodes. Another rank can thus lack the sums only, and no completed iteration is lost.
//
// Collective: all ranks call it.
func (tr *trainer) agreeOnIterations() error {
	if tr.opt.Recovery == nil {
		return nil
	}
	most, err := cohort.AllreduceOne(tr.world, len(tr.its), cohort.Max)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	tr.opt.Recovery.note(most + 1)
	if most == 0 {
		return nil
	}
	root, whole := tr.size, 1
	if len(tr.its) == most {
		root = tr.rank
	}
	if root, err = cohort.AllreduceOne(tr.world, root, cohort.Min); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	of := origin{passes: tr.opt.Passes, lists: tr.opt.futures(tr.c).total()}
	packed := make([]byte, of.recordBytes()*most)
	if tr.rank == root {
		copy(packed, packIterations(tr.its))
	}
	resumed := []int64{int64(tr.resumed)}
	if err := cohort.Bcast(tr.world, resumed, root); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if err := cohort.Bcast(tr.world, packed, root); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	its := unpackIterations(packed, of)
	if tr.pool == nil || !tr.pool.holds(its[most-1].ListCuts) {
		whole = 0
	}
	if whole, err = cohort.AllreduceOne(tr.world, whole, cohort.Min); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if whole == 0 {
		return fmt.Errorf("recovery: %w: a rank lacks cuts of iteration %d, which another rank has completed", cohort.ErrInternal, most)
	}
	tr.resumed = int(resumed[0])
	for _, it := range its[len(tr.its):] {
		tr.done(it)
	}
	return nil
}
