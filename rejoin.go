package cohort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/generation"
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

	calling atomic.Bool // in Rejoin
	mu      sync.Mutex  // guards the fields below
	trial   *trial      // of shrink, which has not ended; nil: none
	trials  int         // of the present world
	ranks   []int       // which rank of the first world each rank of the present one is; nil: the same
}

// world makes a world of what open has returned.
func (u *succession) world(bc backend.Comm, s settings, resized <-chan struct{}) *Comm {
	closed, end := context.WithCancel(context.Background())
	s.worlds.Resized = resized
	s.worlds.Next = func(ctx context.Context, old *comm.Comm) (*comm.Comm, error) { return u.next(ctx, old, closed) }
	u.trials, u.ranks = 0, s.origins
	w := newWorld(u.ctx, bc, s)
	w.base().OnClose(end)
	context.AfterFunc(closed, func() { u.giveUp(s.worlds.Generation + 1) })
	u.entered(w)
	return w
}

// giveUp ends the trial of a world that no call of Rejoin goes on with: the others do without this rank.
func (u *succession) giveUp(generation int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t := u.trial; t != nil && t.settings.worlds.Generation == generation {
		u.trial = nil
		if t.joined != nil {
			_ = t.joined.Close()
		}
	}
}

// next joins the world after old. closed ends when old is closed.
func (u *succession) next(ctx context.Context, old *comm.Comm, closed context.Context) (_ *comm.Comm, err error) {
	if !u.calling.CompareAndSwap(false, true) {
		return nil, fault(ErrBusy, "another goroutine calls Rejoin")
	}
	defer u.calling.Store(false)
	u.mu.Lock()
	defer u.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(closed, cancel)()
	defer func() {
		if err != nil && old.Usable() != nil {
			err = fault(ErrClosed, "the world is closed")
		}
	}()
	if err := old.Usable(); err != nil {
		return nil, err
	}
	if u.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, u.Timeout)
		defer cancel()
	}
	var w *Comm
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
	err := u.launch.Enter(ctx, lost, func(ctx context.Context, place generation.Place) (*generation.Attempt, error) {
		s = u.settings
		s.firstJob = s.Job
		s.Rank, s.Size, s.Job, s.sized, s.worlds.Generation = place.Rank, place.Size, place.Job, true, place.Generation
		s.share = func(ctx context.Context, text string) (string, error) { return u.launch.Share(ctx, place.Rank, text) }
		made, err := u.open(ctx, s)
		if err != nil {
			return nil, err
		}
		bc = made
		return &generation.Attempt{Leave: func() { made.Close() }, Lost: func() []int { return comm.Failed(made) }}, nil
	})
	if err != nil {
		return nil, err
	}
	return u.world(bc, s, u.launch.Resized()), nil
}

// A trial is an attempt of the survivors to join a world of their own.
type trial struct {
	survivors *comm.Comm
	settings  settings
	joined    backend.Comm // nil: this rank has failed to join
	failed    error        // why
	blamed    bool         // and no other rank before it, nor the end of its time
}

// shrink joins a world of the survivors. They agree on whether all have joined, so all of them use it or none. If the time is
// over before they know, the next call goes on there.
func (u *succession) shrink(ctx context.Context, old *comm.Comm) (*Comm, error) {
	for failures := 0; ; {
		if u.trial == nil {
			var err error
			if u.trial, err = u.try(ctx, old); err != nil {
				return nil, err
			}
		}
		t, flag := u.trial, 1
		if t.failed != nil {
			flag = 0
		}
		all, err := t.survivors.WithContext(ctx).Agree(flag)
		if errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) {
			return nil, err
		}
		u.trial = nil
		_ = t.survivors.Close()
		switch {
		case err == nil && all == 1:
			return u.world(t.joined, t.settings, nil), nil
		case t.joined != nil:
			go t.joined.Close() // without waiting: some of the ranks do not answer
		case t.blamed:
			failures++
		}
		if err != nil || ctx.Err() != nil || failures == generation.MostFailures {
			return nil, cmp.Or(err, (&backend.Bound{Ctx: ctx}).Err(time.Now()), t.failed)
		}
	}
}

// try begins a trial. It fails on all ranks or on none, but for those that are out of time, lost, or closing old.
func (u *succession) try(ctx context.Context, old *comm.Comm) (*trial, error) {
	d, err := old.WithContext(ctx).Shrink()
	if err != nil {
		return nil, err
	}
	if n := old.Size(); old.Backend().Caps().Backend == "tcp" && 2*d.Size() <= n && (2*d.Size() < n || d.Backend().WorldRank(0) != 0) {
		_ = d.Close()
		return nil, fault(ErrPeerLost, fmt.Sprintf("%d of %d ranks are left, so the others may be alive and go on: a network may have been cut; "+
			"with cohort run --restarts, the launcher decides", d.Size(), n))
	}
	u.trials++
	t := &trial{survivors: d, settings: u.settings}
	s := &t.settings
	s.Rank, s.Size, s.sized, s.worlds.Generation = d.Rank(), d.Size(), true, old.Worlds().Generation+1
	s.Job = fmt.Sprintf("%s.%d", s.Job, s.worlds.Generation)
	s.met, s.TCP.Coordinator, s.firstJob = s.TCP.Coordinator, "", u.settings.Job
	for r := range d.Size() {
		first := d.Backend().WorldRank(r)
		if u.ranks != nil {
			first = u.ranks[first]
		}
		s.origins = append(s.origins, first)
	}
	if u.trials > 1 { // the same number on all ranks
		s.Job = fmt.Sprintf("%s.%d", s.Job, u.trials)
	}
	c := (*Comm)(d.WithContext(ctx))
	s.share = func(_ context.Context, text string) (string, error) { return shareText(c, text) }
	joining, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { // it ends when a rank is lost, or has failed: nobody sends
		_, _ = Recv((*Comm)(d.WithContext(joining)), make([]byte, 1), AnySource, 0)
		cancel()
	})
	t.joined, t.failed = u.open(joining, *s)
	if t.failed != nil {
		t.joined, t.blamed = nil, joining.Err() == nil && !errors.Is(t.failed, ErrPeerLost)
		_ = d.Revoke()
	}
	cancel()
	watch.Wait()
	return t, nil
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
