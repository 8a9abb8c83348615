package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// rankOf is an identity in a job of a size.
func rankOf(rank, size int) *Identity {
	return &Identity{Job: "job", Secret: secret, Rank: rank, Size: size, Coordinator: rank < 1}
}

// member is the description that a rank sends.
func member(rank int) Member {
	return Member{
		Rank: rank, Process: 1000 + rank, Node: Node{1, byte(rank / 2)}, Host: fmt.Sprintf("host%d", rank),
		Addrs: []netip.AddrPort{netip.AddrPortFrom(loopback, uint16(2000+rank)), netip.MustParseAddrPort("[fd00::1]:77")},
		Info:  fmt.Appendf(nil, "info %d", rank),
	}
}

// An outcome is what a rank gets from a meeting.
type outcome struct {
	members []Member
	conn    *Conn
	conns   []*Conn
	err     error
}

// A party is a meeting of which a test starts the ranks one by one.
type party struct {
	t      *testing.T
	l      *Listener
	size   int
	coord  int
	all    sync.WaitGroup
	result chan outcome // of the coordinator
}

// hold opens the meeting of a job at rank 0, or at the Launcher.
func hold(ctx context.Context, t *testing.T, coordinator, size int) *party {
	p := &party{t: t, l: listen(t, rankOf(coordinator, size), 0), size: size, coord: coordinator, result: make(chan outcome, 1)}
	var self *Member
	if m := member(coordinator); coordinator >= 0 {
		self = &m
	}
	p.all.Go(func() {
		var o outcome
		o.members, o.conns, o.err = Coordinate(ctx, p.l, self)
		p.result <- o
	})
	t.Cleanup(p.all.Wait)
	return p
}

// join joins as what an identity and a member say.
func (p *party) join(ctx context.Context, id *Identity, m Member) chan outcome {
	result := make(chan outcome, 1)
	p.all.Go(func() {
		var o outcome
		o.members, o.conn, o.err = Join(ctx, id, p.l.Addrs()[0].String(), p.coord, m)
		result <- o
	})
	return result
}

func (p *party) rank(ctx context.Context, r int) chan outcome {
	return p.join(ctx, rankOf(r, p.size), member(r))
}

func TestRendezvousGivesAllRanksTheTable(t *testing.T) {
	for _, coordinator := range []int{0, Launcher} {
		for _, n := range []int{1, 2, 3, 8, 40} {
			t.Run(fmt.Sprint(coordinator, " ", n), func(t *testing.T) {
				ctx := limit(t)
				p := hold(ctx, t, coordinator, n)
				var ranks []chan outcome
				var want []Member
				for r := range n {
					want = append(want, member(r))
					if r != coordinator {
						ranks = append(ranks, p.rank(ctx, r))
					}
				}
				o := <-p.result
				if o.err != nil || !reflect.DeepEqual(o.members, want) || len(o.conns) != n {
					t.Fatalf("%v, %v", o.members, o.err)
				}
				for i, c := range ranks {
					r := i + coordinator + 1
					if coordinator == Launcher {
						r = i
					}
					got := <-c
					if got.err != nil || !reflect.DeepEqual(got.members, want) {
						t.Fatalf("rank %d: %v, %v", r, got.members, got.err)
					}
					// The connection stays, and its frames go on in both directions.
					if o.conns[r].Rank != r || got.conn.Rank != coordinator {
						t.Errorf("connection of rank %d and %d, want %d", o.conns[r].Rank, got.conn.Rank, r)
					}
					talk(t, got.conn, o.conns[r])
					talk(t, o.conns[r], got.conn)
					got.conn.Close()
					o.conns[r].Close()
				}
				if coordinator == 0 && o.conns[0] != nil {
					t.Error("rank 0 has a connection with itself")
				}
			})
		}
	}
}

// TestRendezvousWithTLS runs a rendezvous over TLS, where the end of a watch interrupts reads.
func TestRendezvousWithTLS(t *testing.T) {
	ctx, c := limit(t), testTLS(t, "job.example")
	id := func(rank int) *Identity {
		id := rankOf(rank, 3)
		id.TLS = c
		return id
	}
	l := listen(t, id(0), 0)
	p := &party{t: t, l: l, size: 3}
	ranks := []chan outcome{p.join(ctx, id(1), member(1)), p.join(ctx, id(2), member(2))}
	self := member(0)
	_, conns, err := Coordinate(ctx, l, &self)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range ranks {
		o := <-r
		if o.err != nil {
			t.Fatal(o.err)
		}
		talk(t, o.conn, conns[i+1])
		talk(t, conns[i+1], o.conn)
		o.conn.Close()
		conns[i+1].Close()
	}
	p.all.Wait()
}

// TestRendezvousWhenCoordinatorIsLate starts the ranks before the coordinator.
func TestRendezvousWhenCoordinatorIsLate(t *testing.T) {
	ctx := limit(t)
	l := listen(t, rankOf(0, 2), 0)
	addr := l.Addrs()[0]
	l.Close()
	result := make(chan outcome, 1)
	go func() {
		var o outcome
		o.members, o.conn, o.err = Join(ctx, rankOf(1, 2), addr.String(), 0, member(1))
		result <- o
	}()
	l, err := Listen(ListenConfig{Addrs: []netip.Addr{addr.Addr()}, PortMin: int(addr.Port()), Identity: rankOf(0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	self := member(0)
	_, conns, err := Coordinate(ctx, l, &self)
	if err != nil {
		t.Fatal(err)
	}
	if o := <-result; o.err != nil {
		t.Error(o.err)
	} else {
		o.conn.Close()
	}
	conns[1].Close()
}

// TestRendezvousFailsOnAllRanks runs rendezvous that fail: every rank gets the same error.
func TestRendezvousFailsOnAllRanks(t *testing.T) {
	other := member(2)
	other.Process, other.Host = 7, "elsewhere"
	false_ := member(3)
	for _, c := range []struct {
		name     string
		sentinel error
		want     []string
		extra    func(ctx context.Context, p *party) chan outcome
	}{
		{"twice", backend.ErrInit, []string{"two processes claim to be rank 2", "1002 on host2", "7 on elsewhere"},
			func(ctx context.Context, p *party) chan outcome { return p.join(ctx, rankOf(2, p.size), other) }},
		{"another size", backend.ErrInit, []string{"rank 3 (process 1003 on host3)", "of 9 ranks", "of 5"},
			func(ctx context.Context, p *party) chan outcome { return p.join(ctx, rankOf(3, 9), member(3)) }},
		{"another's name", backend.ErrInit, []string{"authenticated as rank 4", "joins as rank 3"},
			func(ctx context.Context, p *party) chan outcome { return p.forge(ctx, 4, false_) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // late ranks get the error for two seconds
			ctx := limit(t)
			p := hold(ctx, t, 0, 5)
			in := []*Conn{p.enter(1, 0), p.enter(2, 0)}
			o := <-c.extra(ctx, p)
			has(t, o.err, c.sentinel, c.want...)
			p.fails(in, c.sentinel, c.want...)
		})
	}
}

// forge joins as a rank that claims the number of another.
func (p *party) forge(ctx context.Context, rank int, m Member) chan outcome {
	result := make(chan outcome, 1)
	p.all.Go(func() {
		c, err := Dial(ctx, rankOf(rank, p.size), p.l.Addrs(), 0, Rendezvous, 0)
		if err != nil {
			result <- outcome{err: err}
			return
		}
		defer c.Close()
		_, _, err = join1(ctx, c, rankOf(rank, p.size), m)
		result <- outcome{err: err}
	})
	return result
}

// enter joins as a rank that will wait so many milliseconds, by its word, and returns when it is in.
func (p *party) enter(rank int, patience uint32) *Conn {
	p.t.Helper()
	c, err := Dial(limit(p.t), rankOf(rank, p.size), p.l.Addrs(), 0, Rendezvous, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	j := joining{size: p.size, patience: patience, member: member(rank)}
	if err := c.send(frame.Join, j.append(nil), time.Time{}); err != nil {
		p.t.Fatal(err)
	}
	if kind, _, err := c.receive(0); kind != frame.Joined || err != nil {
		p.t.Fatal(kind, err)
	}
	return c
}

// fails checks the error of the coordinator, and that those who are in get the same.
func (p *party) fails(in []*Conn, sentinel error, want ...string) {
	p.t.Helper()
	o := <-p.result
	has(p.t, o.err, sentinel, want...)
	for _, c := range in {
		kind, payload, err := c.receive(1 + maxText)
		if kind != frame.Refused || err != nil {
			p.t.Fatal(kind, err)
		}
		if err := decodeRefused(payload); err.Error() != o.err.Error() {
			p.t.Errorf("rank 0 gets %v, another %v", o.err, err)
		}
	}
}

// late is a context that ends with DeadlineExceeded when the test wants it.
type late struct{ context.Context }

func (l late) Err() error {
	if l.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// TestMissingRanksAreNamed has ranks that do not come: until the coordinator's deadline, until one of the ranks
// is about to give up, and until the coordinator is canceled. Unauthenticated peers connect instead.
func TestMissingRanksAreNamed(t *testing.T) {
	for _, c := range []struct {
		name     string
		sentinel error
		ends     bool   // the coordinator's context
		patience uint32 // of rank 3
	}{
		{"at the coordinator's end", backend.ErrTimeout, true, 0},
		{"at a rank's end", backend.ErrTimeout, false, 100},
		{"called off", backend.ErrCanceled, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if c.sentinel == backend.ErrTimeout {
				ctx = late{ctx}
			}
			p := hold(ctx, t, 0, 9)
			noise := connect(t, p.l)
			fmt.Fprint(noise, "GET /\r\n")
			gone(t, noise)
			refusedAtLeast(t, p.l, 1)
			want := []string{"6 of 9 ranks did not join within", ": 1, 2, 4-6, 8; 1 connection refused: 1 × not a rank"}
			in := []*Conn{p.enter(7, 0), p.enter(3, c.patience)}
			if c.ends {
				cancel()
			}
			p.fails(in, c.sentinel, want...)
		})
	}
}

// TestCoordinatorEndsBeforeFirstRankGivesUp has a rank whose time ends before that of the others: before that,
// the coordinator sends it the error that names the missing ranks.
func TestCoordinatorEndsBeforeFirstRankGivesUp(t *testing.T) {
	p := hold(limit(t), t, 0, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := <-p.rank(ctx, 1)
	has(t, o.err, backend.ErrTimeout)
	got := <-p.result
	has(t, got.err, nil, "rank") // on a slow machine, that rank 1 ended before all ranks
	if ctx.Err() == nil {
		has(t, o.err, nil, "1 of 3 ranks did not join", ": 2")
	}
}

// TestRankLostDuringRendezvous has a rank that joins and ends before the others have joined.
func TestRankLostDuringRendezvous(t *testing.T) {
	// All may have come before the coordinator sees that one has gone again: then they learn of it when they connect.
	for range 100 {
		if lost(t) {
			return
		}
	}
	t.Error("the coordinator has seen it in none of 100 meetings")
}

// lost reports whether the coordinator saw that a rank ended before all ranks before another came.
func lost(t *testing.T) bool {
	ctx := limit(t)
	p := hold(ctx, t, 0, 4)
	in := []*Conn{p.enter(1, 0)}
	p.enter(2, 0).Close()
	const want = "rank 2 (process 1002 on host2) ended before all ranks"
	// A rank that comes later learns of it too, unless the coordinator has ended by then.
	switch o := <-p.rank(ctx, 3); {
	case o.err == nil:
		o.conn.Close()
		all := <-p.result
		for _, c := range all.conns {
			if c != nil {
				c.Close()
			}
		}
		if all.err != nil {
			t.Error(all.err)
		}
		return false
	case errors.Is(o.err, backend.ErrInit):
		has(t, o.err, nil, "the job has started already")
	default:
		has(t, o.err, backend.ErrPeerLost, want)
	}
	p.fails(in, backend.ErrPeerLost, want)
	return true
}

// TestCoordinatorLostDuringRendezvous has a coordinator that ends without a message.
func TestCoordinatorLostDuringRendezvous(t *testing.T) {
	l := listen(t, rankOf(0, 3), 0)
	p := &party{t: t, l: l, size: 3}
	rank := p.rank(limit(t), 1)
	c, err := l.Accept(limit(t), Rendezvous)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.receive(maxJoin); err != nil {
		t.Fatal(err)
	}
	if err := c.send(frame.Joined, nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	o := <-rank
	has(t, o.err, backend.ErrPeerLost, "the coordinator, rank 0 at 127.0.0.1:")
	p.all.Wait()
}

// TestJoinAfterRendezvousIsRefused joins after the rendezvous is over.
func TestJoinAfterRendezvousIsRefused(t *testing.T) {
	ctx := limit(t)
	p := hold(ctx, t, Launcher, 1)
	r := <-p.rank(ctx, 0)
	o := <-p.result
	if r.err != nil || o.err != nil {
		t.Fatal(r.err, o.err)
	}
	defer r.conn.Close()
	defer o.conns[0].Close()
	again := <-p.rank(ctx, 0)
	has(t, again.err, backend.ErrInit, "the coordinator at 127.0.0.1:", "the job has started already")
}

// TestJoinIsRefused joins as a rank of another job, without the secret, and by wrong calls.
func TestJoinIsRefused(t *testing.T) {
	ctx := limit(t)
	l := listen(t, rankOf(0, 2), 0)
	job, imposter := rankOf(1, 2), rankOf(1, 2)
	job.Job, imposter.Secret = "another", NewSecret()
	for _, c := range []struct {
		id      *Identity
		address string
		m       Member
		want    string
	}{
		{job, l.Addrs()[0].String(), member(1), `another job than "another"`},
		{imposter, l.Addrs()[0].String(), member(1), "has the same name and another secret"},
		{rankOf(1, 2), "127.0.0.1", member(1), "want HOST:PORT"},
		{rankOf(1, 2), "127.0.0.1:0", member(1), "from 1 to 65535"},
		{rankOf(1, 2), "127.0.0.1:http", member(1), "from 1 to 65535"},
		{rankOf(1, 2), ":5000", member(1), "name the host"},
		{rankOf(1, 2), "[::]:5000", member(1), "name the host"},
		{rankOf(1, 2), l.Addrs()[0].String(), member(0), "rank 1 joins as rank 0"},
		{rankOf(1, 2), l.Addrs()[0].String(), Member{Rank: 1}, "0 addresses"},
	} {
		_, _, err := Join(ctx, c.id, c.address, 0, c.m)
		has(t, err, backend.ErrInit, c.want)
	}
	self := member(1)
	_, _, err := Coordinate(ctx, l, &self)
	has(t, err, backend.ErrInit, "joins as another")
	_, _, err = Coordinate(ctx, listen(t, identity(0), 0), &self)
	has(t, err, backend.ErrInit, "not the coordinator's")
}

func TestRankList(t *testing.T) {
	many := make([]int, 100)
	for i := range many {
		many[i] = 3 * i
	}
	for _, c := range []struct {
		list []int
		want string
	}{
		{nil, ""}, {[]int{4}, "4"}, {[]int{1, 2}, "1, 2"}, {[]int{1, 2, 3}, "1-3"}, {[]int{0, 2, 3, 4, 9}, "0, 2-4, 9"},
		{many, "0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, 54, 57 and 80 more"},
	} {
		if got := ranks(c.list); got != c.want {
			t.Errorf("%v: %q, want %q", c.list, got, c.want)
		}
	}
}
