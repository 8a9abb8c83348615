package meet

import (
	"context"
	"io"
	"net/netip"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// replaced is the identity of a rank that is started again if it ends too early.
func replaced(rank, size int) *Identity {
	id := rankOf(rank, size)
	id.Replaced = true
	return id
}

// TestSuccessorJoinsInPlaceOfRank has a rank that ends before all have joined, and one that is replaced before the
// coordinator knows of its end.
func TestSuccessorJoinsInPlaceOfRank(t *testing.T) {
	ctx := limit(t)
	p := holdWith(ctx, t, replaced(0, 4))
	p.enter(1, 0)
	p.happens(event{conn: p.there[1], err: io.EOF})
	silent := p.enter(2, 0)
	in := []*Conn{p.enter(1, 0), p.enter(2, 0)}
	_, err := (&Meeting{conn: silent}).answer(ctx, frame.Table, maxRefusal)
	has(t, err, backend.ErrPeerLost, "another process has joined as rank 2")
	p.enter(3, 0)
	zero := <-p.zero
	if zero.err != nil {
		t.Fatal(zero.err)
	}
	for _, c := range in {
		if _, err := (&Meeting{conn: c}).answer(ctx, frame.Table, 4*maxMember); err != nil {
			t.Error(err)
		}
	}
	p.happens(event{conn: p.there[2], err: io.EOF}) // all have joined
	has(t, zero.Confirm(ctx, ready), backend.ErrPeerLost, "rank 2 (process 1002 on host2) ended before all ranks of the job were connected")
}

// TestRanksLearnNothingOfCanceledCoordinator cancels rank 0: the others then wait for its successor.
func TestRanksLearnNothingOfCanceledCoordinator(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := holdWith(ctx, t, replaced(0, 3))
	in := p.enter(1, 0)
	cancel()
	zero := <-p.zero
	has(t, zero.err, backend.ErrCanceled, "1 of 3 ranks did not join", ": rank 2")
	p.there[1].Close()
	if kind, _, err := in.receive(maxRefusal); err != io.EOF {
		t.Errorf("rank 1 gets %q, %v", kind, err)
	}
}

// TestRankJoinsAtSuccessorOfCoordinator lets the address of rank 0 be that of another job at first, and then that of a
// rank 0 which ends before all have joined. The refusal of its successor is final.
func TestRankJoinsAtSuccessorOfCoordinator(t *testing.T) {
	ctx := limit(t)
	other := rankOf(0, 2)
	other.Job = "another"
	at := []*Listener{listen(t, other, 0), listen(t, replaced(0, 2), 0), listen(t, replaced(0, 2), 0)}
	find := func(context.Context) ([]netip.AddrPort, error) {
		l := at[0]
		at = at[min(1, len(at)-1):]
		return l.Addrs(), nil
	}
	first, second := at[1], at[2]
	end := make(chan error, 1)
	go func() {
		_, err := joinAt(ctx, replaced(1, 2), "rank 0", 0, member(1), find)
		end <- err
	}()
	for _, l := range []*Listener{first, second} {
		c, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if kind, _, err := c.receive(maxJoin); kind != frame.Join || err != nil {
			t.Error(kind, err)
		}
		if l == second {
			_ = c.send(frame.Refused, backend.AsFault(backend.Faultf(backend.ErrPeerLost, "too late")).Encode(maxRefusal), tellTimeout)
		}
		c.Close()
	}
	has(t, <-end, backend.ErrPeerLost, "too late")
}
