package cohort

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
)

// Generation returns the number of c's world in the job: 0 at first, and larger after every
// [Rejoin]. An attempt to form a world that has failed may use up a number. It is 0 for nil.
func (c *Comm) Generation() int { return c.base().Worlds().Generation }

// Resized returns a channel that is closed when somebody has asked for another size of the job. The
// job takes it when all ranks call [Rejoin]. The channel is closed on every rank, at about the same
// time. Where nobody can ask for another size it is nil, or never closed.
func (c *Comm) Resized() <-chan struct{} { return c.base().Worlds().Resized }

// Rejoin leaves world, and joins the next world of the job: after a loss, or to give the job
// another size ([Comm.Resized]). Under cohort run --restarts, and in the pods of a Kubernetes Job,
// new processes take the places of the lost ones. They call [Init] as always, and get the same
// world, whose [Comm.Generation] is above 0; ranks that were not lost keep their numbers. Otherwise
// the next world has the ranks that were not lost, in their order. On tcp there is one only if they
// are more than half of world, or half of it with its rank 0. So the two sides of a network that
// was cut never both go on.
//
// When Rejoin has succeeded, or when this rank leaves because the job shrinks, world and all that
// belongs to it are closed. Otherwise world stays as it is, and Rejoin can be called again. After
// an [ErrTimeout] it must be called again before Agree or Shrink of world, except where a launcher
// replaces ranks, and in pods. docs/elastic.md shows how ranks hand their state to new ones.
//
// Collective over the survivors: the ranks of world that are not lost call it, and the new processes call Init.
//
// Errors: [ErrPeerLost] if the others count this rank as lost, if a rank has finished where a
// launcher replaces ranks, or if too many ranks are lost to go on; [ErrClosed] on a rank that
// leaves because the job shrinks, or if world is closed before or during the call; [ErrComm] if
// world is not a world; [ErrInit] if the ranks cannot join; [ErrBusy]; [ErrNotSupported] on mpi.
//
// Deadline: [ErrTimeout], or [ErrCanceled], if ctx ends before all have called it. The error names
// those that have not.
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
	if errors.Is(err, ErrClosed) {
		_ = c.Close() // the job goes on without this rank
	}
	if err != nil {
		return fail(err)
	}
	c.Continue()
	_ = c.Close() // it may have lost ranks
	return (*Comm)(d), nil
}

// A protocol joins the next world of a rank with the other processes of its job. Each has a file:
//
//	protocol    where the ranks run                        who is in the next world        who decides that
//	launcher    cohort run --restarts or --elastic         all, with replacements          generation.Machine in cohort run
//	goroutines  Run and RunWith                            the same                        generation.Machine in this process
//	pods        pods of a Kubernetes Job                   all, with replacements          package meet at rank 0
//	survivors   elsewhere on shm and tcp                   the ranks that are not lost     they agree
//
// Other ranks have one world. Goroutines use the launcher's type, because a Run is the launcher of its ranks.
type protocol interface {
	// join joins the world after old, which is nil for a process that is in no world. The settings are those of the new one.
	join(ctx context.Context, old *comm.Comm, r *rejoiner) (backend.Comm, settings, error)

	// abandon gives up a generation that no call of join goes on to join, because the world before it is closed.
	abandon(generation int)
}

// A rejoiner takes a rank from one world of its job to the next.
type rejoiner struct {
	protocol protocol        // nil: there is no next world
	ctx      context.Context // of all worlds
	first    settings        // of the first world
	open     func(context.Context, settings) (backend.Comm, error)
	entered  func(*Comm) // called before anybody else gets a world
	calling  sync.Mutex  // held by Rejoin
}

// next joins and enters the world after old.
func (r *rejoiner) next(ctx context.Context, old *comm.Comm) (*Comm, error) {
	bc, s, err := r.protocol.join(ctx, old, r)
	if err != nil {
		return nil, err
	}
	return r.enter(bc, s), nil
}

// enter makes the rank's world of what has been joined.
func (r *rejoiner) enter(bc backend.Comm, s settings) *Comm {
	closed, end := context.WithCancel(context.Background())
	if r.protocol != nil {
		s.worlds.Next = func(ctx context.Context, old *comm.Comm) (*comm.Comm, error) { return r.rejoin(ctx, old, closed) }
		context.AfterFunc(closed, func() { r.protocol.abandon(s.worlds.Generation + 1) })
	}
	w := newWorld(r.ctx, bc, s)
	w.base().OnClose(end)
	r.entered(w)
	return w
}

// rejoin is next for Rejoin. closed ends when old is closed.
func (r *rejoiner) rejoin(ctx context.Context, old *comm.Comm, closed context.Context) (*comm.Comm, error) {
	if !r.calling.TryLock() {
		return nil, fault(ErrBusy, "another goroutine calls Rejoin")
	}
	defer r.calling.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closed, cancel)()
	if r.first.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, r.first.Timeout)
		defer cancel()
	}
	err := old.Usable()
	var w *Comm
	if err == nil {
		w, err = r.next(ctx, old)
	}
	if err != nil && old.Usable() != nil {
		err = fault(ErrClosed, "the world is closed")
	}
	return w.base(), err
}
