package meet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// replaced is the identity of a rank that is started again if it ends too early.
func replaced(rank, size int) *Identity {
	id := rankOf(rank, size)
	id.Replaced = true
	return id
}

// TestReplacementJoinsInPlaceOfRank has a rank that ends before all have joined, and one that is replaced before the
// coordinator knows of its end.
func TestReplacementJoinsInPlaceOfRank(t *testing.T) {
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

// been is a rank that has been in a world.
func been(rank int) Member {
	m := member(rank)
	m.Worlds = 1
	return m
}

// TestOldProcessDoesNotDisplaceReplacement has processes that have been in a world come after their replacements, in both
// rounds. A replacement that comes while the ranks connect ends the rendezvous, and waits for the next one.
func TestOldProcessDoesNotDisplaceReplacement(t *testing.T) {
	ctx := limit(t)
	p := holdWith(ctx, t, replaced(0, 3))
	displaced := func(c *Conn) {
		t.Helper()
		_, err := (&Meeting{conn: c}).answer(ctx, frame.Table, 4*maxMember)
		has(t, err, backend.ErrPeerLost, "another process has joined as rank 2")
	}
	first := p.enterAs(been(2), 0)
	fresh := p.enter(2, 0)
	displaced(first)
	there := p.there[2]
	displaced(p.enterAs(been(2), 0))
	one := p.enterAs(been(1), 0)
	zero := <-p.zero
	if zero.err != nil {
		t.Fatal(zero.err)
	}
	for _, c := range []*Conn{one, fresh} {
		if _, err := (&Meeting{conn: c}).answer(ctx, frame.Table, 4*maxMember); err != nil {
			t.Fatal(err)
		}
	}
	displaced(p.enterAs(been(2), 0))
	p.happens(event{conn: there, kind: frame.Connected})
	a, b := sockets(t)
	p.happens(event{conn: &Conn{Conn: b, Rank: 2}, kind: frame.Join, payload: encode(&joining{Size: 3, Member: member(2)})})
	if _, err := (&Meeting{conn: &Conn{Conn: a}}).answer(ctx, frame.Table, maxRefusal); err != io.EOF {
		t.Errorf("the next replacement gets %v", err)
	}
	displaced(one)
	displaced(fresh)
	has(t, zero.Confirm(ctx, ready), backend.ErrPeerLost, "another process has joined as rank 2")
}

// TestDeadlineOfRankIsItsOwn has a rank give up that has been in a world, and one end that would have given up before: the
// others wait for both.
func TestDeadlineOfRankIsItsOwn(t *testing.T) {
	ctx := limit(t)
	p := holdWith(ctx, t, replaced(0, 4))
	p.enterAs(been(2), 40*time.Millisecond)
	p.happens(event{conn: p.there[2], err: io.EOF})
	_, err := (&Meeting{conn: p.enterAs(been(1), 200*time.Millisecond)}).answer(ctx, frame.Table, maxRefusal)
	has(t, err, backend.ErrTimeout, "2 of 4 ranks did not join", ": ranks 2, 3")
	p.enterAs(been(1), 0)
	p.enter(2, 0)
	p.enter(3, 0)
	if zero := <-p.zero; zero.err != nil {
		t.Error(zero.err)
	} else {
		p.happens(event{conn: p.there[3], err: io.EOF})
		zero.Close()
	}
}

// TestRanksLearnNothingOfCoordinatorThatEnds cancels rank 0, and lets it give up before a next world: the others then wait
// for its replacement, or until it comes again.
func TestRanksLearnNothingOfCoordinatorThatEnds(t *testing.T) {
	for _, want := range []error{backend.ErrCanceled, backend.ErrTimeout} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		until, one := ctx, member(1)
		if want == backend.ErrTimeout {
			until, one = late{ctx}, been(1)
		}
		p := holdWith(until, t, replaced(0, 3))
		in := p.enterAs(one, 0)
		cancel()
		zero := <-p.zero
		has(t, zero.err, want, "1 of 3 ranks did not join", ": rank 2")
		p.there[1].Close()
		if _, err := (&Meeting{conn: in}).answer(t.Context(), frame.Table, maxRefusal); err != io.EOF {
			t.Errorf("rank 1 gets %v", err)
		}
	}
}

// TestRankJoinsAtReplacementOfCoordinator lets the address of rank 0 be that of another job at first, and then that of a
// rank 0 which ends before all have joined. The refusal of its replacement is final.
func TestRankJoinsAtReplacementOfCoordinator(t *testing.T) {
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

// TestSilentCoordinatorIsLost has a rank wait for another one for half an hour. It waits while it hears from the
// coordinator, whose machine then stops without a word.
func TestSilentCoordinatorIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &Listener{id: replaced(0, 3), queue: make(chan *Conn), ctx: ctx, cancel: cancel}
		g := newCoordinator(l)
		zero := make(chan error, 1)
		go func() {
			_, err := lead(ctx, g, member(0))
			zero <- err
		}()
		a, b := net.Pipe()
		c, d := net.Pipe() // what b receives goes to d, until the machine stops
		stopped := make(chan struct{})
		go func() {
			for buf := make([]byte, maxJoin); ; {
				n, err := b.Read(buf)
				if err != nil {
					return
				}
				select {
				case <-stopped:
				default:
					d.Write(buf[:n])
				}
			}
		}()
		l.queue <- &Conn{Conn: a, Rank: 1}
		m := &Meeting{conn: &Conn{Conn: c}, beats: true}
		_ = (&Conn{Conn: b}).send(frame.Join, encode(&joining{Size: 3, Member: member(1)}), tableTimeout)
		one := make(chan error, 1)
		go func() {
			_, err := m.answer(ctx, frame.Table, maxRefusal)
			one <- m.failed(ctx, err, "had joined")
		}()
		time.Sleep(30 * time.Minute) // on purpose: heartbeats come for half an hour of made-up time
		select {
		case err := <-one:
			t.Fatalf("a rank gives up early: %v", err)
		default:
		}
		close(stopped)
		begin := time.Now()
		has(t, <-one, backend.ErrPeerLost, "lost the coordinator, rank 0")
		if d := time.Since(begin); d < silence-beat || d > silence || !m.lost {
			t.Errorf("a rank finds the coordinator lost after %v: %v", d, m.lost)
		}
		for _, c := range []net.Conn{a, b, c, d} {
			c.Close()
		}
		cancel()
		<-zero
	})
}
