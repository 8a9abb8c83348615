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

// survivors is the protocol of ranks that nobody replaces. An attempt to join the next world has these steps:
//
//  1. The survivors of the old world shrink it (package agree). On tcp they are enough of it that no others can do the same.
//  2. They join a world of their own. Rank 0 tells where it listens over the shrunk communicator. A rank that fails revokes
//     that, so that the others do not wait for it.
//  3. They agree whether all have joined. If so, all of them use the new world, and otherwise none: they begin again.
//
// A rank whose time is over in step 3 does not know the outcome. It keeps the attempt, and its next call goes on there.
type survivors struct {
	// What a call has left in step 3, nil if nothing. The next call takes it from here. So does abandon, after which none does:
	// a call puts it back and then looks whether the world is closed.
	attempt atomic.Pointer[attempt]

	attempts int   // since the present world was entered
	ranks    []int // which rank of the first world each rank of the present one is; nil: the same
}

// An attempt is one to join a world of the survivors.
type attempt struct {
	survivors *comm.Comm
	settings  settings
	joined    backend.Comm // nil: this rank has failed to join
	failed    error        // why
	blamed    bool         // this rank's own error ended the attempt, not another rank or the end of its time
}

func (v *survivors) abandon(generation int) {
	a := v.attempt.Load()
	if a != nil && a.settings.worlds.Generation == generation && v.attempt.CompareAndSwap(a, nil) && a.joined != nil {
		_ = a.joined.Close()
	}
}

func (v *survivors) join(ctx context.Context, old *comm.Comm, r *rejoiner) (backend.Comm, settings, error) {
	for failures := 0; ; {
		a, flag := v.attempt.Swap(nil), 1
		if a == nil {
			var err error
			if a, err = v.try(ctx, old, r); err != nil {
				return nil, settings{}, err
			}
		}
		if a.failed != nil {
			flag = 0
		}
		all, err := a.survivors.WithContext(ctx).Agree(flag)
		if errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) {
			if v.attempt.Store(a); old.Usable() != nil {
				v.abandon(a.settings.worlds.Generation)
			}
			return nil, settings{}, err
		}
		_ = a.survivors.Close()
		switch {
		case err == nil && all == 1:
			v.attempts, v.ranks = 0, a.settings.first.ranks
			return a.joined, a.settings, nil
		case a.joined != nil:
			go a.joined.Close() // without waiting: some of the ranks do not answer
		case a.blamed:
			failures++
		}
		if err != nil || ctx.Err() != nil || failures == generation.MostFailures {
			return nil, settings{}, cmp.Or(err, (&backend.Bound{Ctx: ctx}).Err(time.Now()), a.failed)
		}
	}
}

// try does steps 1 and 2. It fails on all ranks or on none, but for those that are out of time, lost, or closing old.
func (v *survivors) try(ctx context.Context, old *comm.Comm, r *rejoiner) (*attempt, error) {
	d, err := old.WithContext(ctx).Shrink()
	if err != nil {
		return nil, err
	}
	if n := old.Size(); old.Backend().Caps().Backend == "tcp" && 2*d.Size() <= n && (2*d.Size() < n || d.Backend().WorldRank(0) != 0) {
		_ = d.Close()
		return nil, fault(ErrPeerLost, fmt.Sprintf("%d of %d ranks are left, so the others may be alive and go on: a network may have been cut; "+
			"with cohort run --restarts, the launcher decides", d.Size(), n))
	}
	v.attempts++
	a := &attempt{survivors: d, settings: r.first}
	s := &a.settings
	s.Rank, s.Size, s.worlds.Generation = d.Rank(), d.Size(), old.Worlds().Generation+1
	s.Job = fmt.Sprintf("%s.%d", s.Job, s.worlds.Generation)
	if v.attempts > 1 { // the same number on all ranks
		s.Job = fmt.Sprintf("%s.%d", s.Job, v.attempts)
	}
	s.first, s.TCP.Coordinator = firstWorld{job: r.first.Job, coordinator: s.TCP.Coordinator}, ""
	for rank := range d.Size() {
		first := d.Backend().WorldRank(rank)
		if v.ranks != nil {
			first = v.ranks[first]
		}
		s.first.ranks = append(s.first.ranks, first)
	}
	c := (*Comm)(d.WithContext(ctx))
	s.share = func(_ context.Context, text string) (string, error) { return shareText(c, text) }
	joining, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	for other := range d.Size() {
		watch.Go(func() { // it ends when a rank is lost or has failed, or the other one has closed old: nobody sends
			_, _ = Recv((*Comm)(d.WithContext(joining)), make([]byte, 1), other, 0)
			cancel()
		})
	}
	a.joined, a.failed = r.open(joining, *s)
	if a.failed != nil {
		a.joined, a.blamed = nil, joining.Err() == nil && !errors.Is(a.failed, ErrPeerLost)
		_ = d.Revoke()
	}
	cancel()
	watch.Wait()
	return a, nil
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
