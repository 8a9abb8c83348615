package cohort

import (
	"context"
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// Generation returns how many worlds the job had before c's: 0, and 1 more after every [Rejoin]. It is 0 for nil.
func (c *Comm) Generation() int { return c.base().Worlds().Generation }

// Resized returns a channel that is closed when the job is to have another size, which the ranks give it by calling
// [Rejoin] together when it suits them. It is closed on every rank, at about the same time. Where nobody can ask for
// another size it is nil.
func (c *Comm) Resized() <-chan struct{} { return c.base().Worlds().Resized }

// Rejoin leaves world, and joins the next world of the job: after a loss, or to give the job another size
// ([Comm.Resized]). Under cohort run --restarts, and in the pods of a Kubernetes Job, new processes take the places of
// the lost ones. They call [Init] as always, and get the same world, whose [Comm.Generation] is above 0; ranks that
// were not lost keep their numbers. Otherwise the next world has the ranks that were not lost, in their order; on tcp
// only if they are more than half of world, or half of it with its rank 0, so that the two sides of a network that was
// cut never both go on.
//
// world and all that stands on it end with [ErrClosed] when Rejoin has succeeded. Otherwise world stays as it is, and
// Rejoin can be called again. docs/elastic.md shows how ranks hand their state to those that are new.
//
// Collective over the survivors: the ranks of world that are not lost call it, and the new processes call Init.
//
// Errors: [ErrPeerLost] if the others count this rank as lost, if a rank has finished, or if too many ranks are lost to go
// on; [ErrClosed] on a rank that leaves because the job shrinks, or if world is closed; [ErrComm] if world is not a world;
// [ErrInit] if the ranks cannot join; [ErrBusy]; [ErrNotSupported] on mpi.
//
// Deadline: [ErrTimeout] if ctx ends before all have called it. It names those that have not.
func Rejoin(ctx context.Context, world *Comm) (*Comm, error) {
	c := world.base()
	fail := func(err error) (*Comm, error) {
		return nil, &OpError{Op: "rejoin", Rank: world.Rank(), Peer: Undefined, Tag: Undefined, Err: err}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	next := c.Worlds().Next
	switch {
	case world == nil || !c.IsWorld():
		return fail(fault(ErrComm, "Rejoin is for the communicator that Init, Run or Rejoin returned"))
	case next == nil:
		return fail(fault(ErrNotSupported, fmt.Sprintf("the %s backend has one world for each job; write checkpoints, and start the job again after a loss", world.Backend())))
	}
	d, err := next(ctx, c)
	if err != nil {
		return fail(err)
	}
	c.GoesOn()
	_ = c.Close() // it may have lost ranks
	return (*Comm)(d), nil
}

// succession joins the worlds of a rank one after the other.
type succession struct {
	settings                    // of the first
	ctx      context.Context    // of all worlds
	launch   *generation.Client // gives out the places; nil: the survivors go on by themselves
	open     func(context.Context, settings) (backend.Comm, error)
	entered  func(*Comm) // called before anybody else gets the world
	busy     sync.Mutex  // held by Rejoin
}

// world makes a world of what open has returned.
func (u *succession) world(bc backend.Comm, s settings, resized <-chan struct{}) *Comm {
	s.worlds.Resized, s.worlds.Next = resized, u.next
	w := newWorld(u.ctx, bc, s)
	u.entered(w)
	return w
}

// next joins the world after old.
func (u *succession) next(ctx context.Context, old *comm.Comm) (*comm.Comm, error) {
	if err := old.Usable(); err != nil {
		return nil, err
	}
	if !u.busy.TryLock() {
		return nil, fault(ErrBusy, "another goroutine calls Rejoin")
	}
	defer u.busy.Unlock()
	if u.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, u.Timeout)
		defer cancel()
	}
	var w *Comm
	var err error
	switch {
	case u.launch != nil:
		w, err = u.enter(ctx, old.Dead)
	case u.before != nil:
		w, err = u.meet(ctx, old)
	default:
		w, err = u.shrink(ctx, old)
	}
	return w.base(), err
}

// meet joins a world of all ranks, where those that joined the first one met: the successor of a pod comes there too.
func (u *succession) meet(ctx context.Context, old *comm.Comm) (*Comm, error) {
	s := u.settings
	before := old.Worlds().Generation + 1
	s.before = &before
	bc, err := u.open(ctx, s)
	if err != nil {
		return nil, err
	}
	s.worlds.Generation = before
	return u.world(bc, s, nil), nil
}

// enter joins the next world in which the launcher gives this rank a place.
func (u *succession) enter(ctx context.Context, lost func() []int) (*Comm, error) {
	var bc backend.Comm
	var s settings
	err := u.launch.Enter(ctx, lost, func(ctx context.Context, place generation.Place) (func(), error) {
		s = u.settings
		s.Rank, s.Size, s.Job, s.sized, s.worlds.Generation = place.Rank, place.Size, place.Job, true, place.Generation
		s.share = func(ctx context.Context, text string) (string, error) { return u.launch.Share(ctx, place.Rank, text) }
		made, err := u.open(ctx, s)
		bc = made
		return func() { made.Close() }, err
	})
	if err != nil {
		return nil, err
	}
	return u.world(bc, s, u.launch.Resized()), nil
}

// shrink joins a world of the survivors.
func (u *succession) shrink(ctx context.Context, old *comm.Comm) (*Comm, error) {
	d, err := old.WithContext(ctx).Shrink()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if n := old.Size(); old.Backend().Caps().Backend == "tcp" && 2*d.Size() <= n && (2*d.Size() < n || d.Backend().WorldRank(0) != 0) {
		return nil, fault(ErrPeerLost, fmt.Sprintf("%d of %d ranks are left, so the others may be alive and go on: a network may have been cut; with cohort run --restarts, the launcher decides", d.Size(), n))
	}
	s := u.settings
	s.Rank, s.Size, s.sized, s.worlds.Generation = d.Rank(), d.Size(), true, old.Worlds().Generation+1
	s.Job, s.TCP.Coordinator = fmt.Sprintf("%s.%d", s.Job, s.worlds.Generation), ""
	c := (*Comm)(d.WithContext(ctx))
	s.share = func(_ context.Context, text string) (string, error) { return shareText(c, text) }
	bc, err := u.open(ctx, s)
	if err != nil {
		return nil, err
	}
	return u.world(bc, s, nil), nil
}

// shareText returns on every rank the text that rank 0 has.
func shareText(c *Comm, text string) (string, error) {
	n, err := BcastOne(c, len(text), 0)
	if err != nil {
		return "", err
	}
	b := make([]byte, n)
	copy(b, text)
	err = Bcast(c, b, 0)
	return string(b), err
}
