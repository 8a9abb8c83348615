package sddp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Recovery makes what is done with it go on when ranks are lost: those that are left shrink the
// communicator, go back to what all of them have, and go on from there. The outcome is the same, bit for
// bit. The zero value is ready; each rank has one of its own, for one thing after the other. A nil one
// does not recover: the loss of a rank is then an error on all others.
//
// The backend has to be one of which jobs go on after losses (local, shm, tcp, and mpi with a library that
// has ULFM), and so has the launcher
// (cohort.Config.Resilient).
type Recovery struct {
	// Lost, if not nil, is called after every loss, when there is a new communicator.
	Lost func(Loss)

	losses []Loss
	made   []*cohort.Comm // communicators of those that were left, the last one for now
	me     int64          // this rank, and those of the last communicator, as they were numbered at first
	ids    []int64
	gone   []int // lost since the last one of losses
}

// Loss says what has been lost.
type Loss struct {
	Ranks     []int // as they were numbered at first, in ascending order
	Left      int   // how many ranks go on
	Iteration int   // that was begun again, from 1; 0 outside of a training
}

// Error says who is lost and who is left, so that a Loss can be warned of.
func (l Loss) Error() string {
	who := "rank " + fmt.Sprint(l.Ranks[0])
	if len(l.Ranks) > 1 {
		who = "ranks " + strings.Trim(strings.ReplaceAll(fmt.Sprint(l.Ranks), " ", ", "), "[]")
	}
	text := fmt.Sprintf("lost %s; going on with %s", who, plural(l.Left, "rank"))
	if l.Iteration > 0 {
		text += fmt.Sprintf(" from the start of iteration %d", l.Iteration)
	}
	return text
}

// Losses returns what has been lost so far.
func (r *Recovery) Losses() []Loss {
	if r == nil {
		return nil
	}
	return r.losses
}

// World returns the communicator of the ranks that are left, which is world if none are lost.
func (r *Recovery) World(world *cohort.Comm) *cohort.Comm {
	if r == nil || len(r.made) == 0 {
		return world
	}
	return r.made[len(r.made)-1]
}

// Close closes the communicators that were made.
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

// The flags by which the ranks agree on how something went.
const (
	unbroken = 1 << iota // no loss was seen
	unfailed             // nothing failed that begins again in vain
	agreed   = unbroken | unfailed
)

// Do calls f with the communicator of the ranks that are left, and again as long as ranks are lost in it: it
// returns when f has ended without a loss on all of them, or has failed on one. What f does has to be
// collective, and such that it can be begun again, whatever was done of it.
//
// Collective: all ranks of world that are not lost call it.
//
// Errors: that of f; [ErrPeer] if f failed on another rank alone; [cohort.ErrNotSupported] on a backend
// without recovery.
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
		case err == nil || errors.Is(err, ErrStopped): // all ranks alike, or some have seen a loss
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

// prepare finds out whether the backend can recover.
func (r *Recovery) prepare(world *cohort.Comm) error {
	if r.ids == nil {
		r.me = int64(world.Rank())
		for i := range world.Size() {
			r.ids = append(r.ids, int64(i))
		}
	}
	_, err := r.World(world).Agree(agreed)
	return err
}

// shrink makes the communicator of those that are left. Its error is that of a further loss, or ends all.
func (r *Recovery) shrink(old *cohort.Comm) error {
	next, err := old.Shrink()
	if err != nil {
		return err
	}
	if next.Size() == old.Size() {
		return errors.Join(fmt.Errorf("%w: the communicator is broken, and no rank is lost", cohort.ErrInternal), next.Close())
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

// note notes the losses since the last one, after which an iteration begins again.
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

// isLoss reports whether an error is that of a communicator which a loss, or another rank that saw one, has
// ended.
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

// agreeOnIterations gives all ranks that are left the iterations that any of them has done. Who has done one
// has the sums of all ranks, which they sent when the cuts of all stages were in the memory of all nodes; so
// nobody lacks more than the sums, and no iteration that was done is lost.
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
	packed := make([]byte, 8*iterationRecord*most)
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
	if tr.pool == nil || !tr.pool.holds(most*tr.opt.Passes) {
		whole = 0
	}
	if whole, err = cohort.AllreduceOne(tr.world, whole, cohort.Min); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if whole == 0 {
		return fmt.Errorf("recovery: %w: a rank lacks cuts of iteration %d, which another one has done", cohort.ErrInternal, most)
	}
	tr.resumed = int(resumed[0])
	of := origin{passes: tr.opt.Passes, stages: tr.c.Stages}
	for _, it := range unpackIterations(packed, of)[len(tr.its):] {
		tr.done(it)
	}
	return nil
}
