package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
		Rank: rank, Process: 1000 + rank, Node: fmt.Sprint("node", rank/2), Host: fmt.Sprintf("host%d", rank),
		Addrs: []netip.AddrPort{netip.AddrPortFrom(loopback, uint16(2000+rank)), netip.MustParseAddrPort("[fd00::1]:77")},
		Wake:  fmt.Sprint("@wake/", rank), CPUs: [16]uint64{uint64(rank), 15: 1},
	}
}

// An outcome is what a rank gets from a rendezvous.
type outcome struct {
	*Meeting
	err error
}

// A party is a rendezvous of which a test starts the ranks one by one.
type party struct {
	t     *testing.T
	l     *Listener
	size  int
	coord int
	all   sync.WaitGroup
	g     *coordinator
	there map[int]*Conn // the coordinator's ends of the connections made by enter
	zero  chan outcome  // of rank 0, if it is the coordinator
}

// hold opens the rendezvous of a job at rank 0, or at the Launcher. It ends when ctx does, or the test.
func hold(ctx context.Context, t *testing.T, coordinator, size int) *party {
	return holdWith(ctx, t, rankOf(coordinator, size))
}

func holdWith(ctx context.Context, t *testing.T, id *Identity) *party {
	l := listen(t, id, 0)
	p := &party{t: t, l: l, size: id.Size, coord: id.Rank, g: newCoordinator(l), there: map[int]*Conn{}, zero: make(chan outcome, 1)}
	t.Cleanup(p.all.Wait)
	if id.Rank == Launcher {
		ctx, cancel := context.WithCancel(ctx)
		t.Cleanup(cancel)
		p.all.Go(func() { _ = p.g.run(ctx, nil) })
		return p
	}
	p.all.Go(func() {
		m, err := lead(ctx, p.g, member(0))
		p.zero <- outcome{m, err}
	})
	return p
}

// join joins as what an identity and a member say.
func (p *party) join(ctx context.Context, id *Identity, m Member) chan outcome {
	result := make(chan outcome, 1)
	p.all.Go(func() {
		got, err := Join(ctx, id, p.l.Addrs()[0].String(), p.coord, m)
		result <- outcome{got, err}
	})
	return result
}

func (p *party) rank(ctx context.Context, r int) chan outcome {
	if r == p.coord {
		return p.zero
	}
	return p.join(ctx, rankOf(r, p.size), member(r))
}

// joinAll lets all ranks join, which must succeed.
func (p *party) joinAll(ctx context.Context) []*Meeting {
	p.t.Helper()
	var joining []chan outcome
	for r := range p.size {
		joining = append(joining, p.rank(ctx, r))
	}
	var ranks []*Meeting
	for r, c := range joining {
		got := <-c
		if got.err != nil {
			p.t.Fatalf("rank %d: %v", r, got.err)
		}
		ranks = append(ranks, got.Meeting)
	}
	return ranks
}

// confirmAll is the second round of all ranks. It returns their errors.
func confirmAll(ctx context.Context, ranks []*Meeting, connect func(rank int) func(context.Context) error) []error {
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for r, m := range ranks {
		if f := connect(r); f != nil {
			all.Go(func() { errs[r] = m.Confirm(ctx, f) })
		} else {
			all.Go(m.Close)
		}
	}
	all.Wait()
	return errs
}

func ready(context.Context) error { return nil }

func TestRendezvousGivesAllRanksTheTable(t *testing.T) {
	for _, coordinator := range []int{0, Launcher} {
		for _, n := range []int{1, 2, 3, 8, 40} {
			t.Run(fmt.Sprint(coordinator, " ", n), func(t *testing.T) {
				ctx := limit(t)
				var want []Member
				for r := range n {
					want = append(want, member(r))
				}
				ranks := hold(ctx, t, coordinator, n).joinAll(ctx)
				for r, m := range ranks {
					if !reflect.DeepEqual(m.Members, want) {
						t.Errorf("rank %d: %v", r, m.Members)
					}
				}
				for r, err := range confirmAll(ctx, ranks, func(int) func(context.Context) error { return ready }) {
					next := frame.Header{Kind: frame.Heartbeat}
					ranks[r].conn.Enc.Encode(new([frame.HeaderSize]byte), &next)
					if err != nil || next.Seq != 2 { // however large the job is
						t.Errorf("rank %d: %v, after %d messages of its own, want 2", r, err, next.Seq)
					}
				}
			})
		}
	}
}

func TestRendezvousWithTLS(t *testing.T) {
	ctx, certs := limit(t), testTLS(t, "job.example")
	id := func(rank int) *Identity {
		id := rankOf(rank, 3)
		id.TLS = certs
		return id
	}
	p := holdWith(ctx, t, id(0))
	second, third := p.join(ctx, id(1), member(1)), p.join(ctx, id(2), member(2))
	var ranks []*Meeting
	for _, c := range []chan outcome{p.zero, second, third} {
		got := <-c
		if got.err != nil {
			t.Fatal(got.err)
		}
		ranks = append(ranks, got.Meeting)
	}
	if err := errors.Join(confirmAll(ctx, ranks, func(int) func(context.Context) error { return ready })...); err != nil {
		t.Error(err)
	}
}

// TestRendezvousWhenCoordinatorIsLate starts the ranks before the coordinator.
func TestRendezvousWhenCoordinatorIsLate(t *testing.T) {
	ctx := limit(t)
	l := listen(t, rankOf(0, 2), 0)
	address := l.Addrs()[0].String()
	l.Close()
	result := make(chan outcome, 1)
	go func() {
		m, err := Join(ctx, rankOf(1, 2), address, 0, member(1))
		result <- outcome{m, err}
	}()
	zero, err := Join(ctx, rankOf(0, 2), address, 0, member(0))
	if err != nil {
		t.Fatal(err)
	}
	one := <-result
	if one.err != nil {
		t.Fatal(one.err)
	}
	if err := errors.Join(confirmAll(ctx, []*Meeting{zero, one.Meeting}, func(int) func(context.Context) error { return ready })...); err != nil {
		t.Error(err)
	}
}

// TestRendezvousFailsOnAllRanks runs rendezvous that fail: every rank gets the same error.
func TestRendezvousFailsOnAllRanks(t *testing.T) {
	other := member(2)
	other.Process, other.Host = 7, "elsewhere"
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
		{"no address", backend.ErrInit, []string{"rank 3, from 127.0.0.1:", "join: 0 addresses"},
			func(ctx context.Context, p *party) chan outcome {
				return p.join(ctx, rankOf(3, p.size), Member{Rank: 3})
			}},
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

func (p *party) dial(rank int) *Conn {
	p.t.Helper()
	c, err := Dial(limit(p.t), rankOf(rank, p.size), p.l.Addrs(), p.coord, Rendezvous)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return c
}

func (p *party) send(c *Conn, j *joining) {
	p.t.Helper()
	if err := c.send(frame.Join, encode(j), tableTimeout); err != nil {
		p.t.Fatal(err)
	}
}

// enter joins as a rank that will wait for a time, over a connection that the coordinator does not read. It
// returns when the rank is in.
func (p *party) enter(rank int, patience time.Duration) *Conn {
	p.t.Helper()
	return p.enterAs(member(rank), patience)
}

func (p *party) enterAs(m Member, patience time.Duration) *Conn {
	p.t.Helper()
	rank := m.Rank
	a, b := sockets(p.t)
	here := &Conn{Conn: a, Dialed: true}
	there := &Conn{Conn: b, Rank: rank}
	p.there[rank] = there
	p.happens(event{conn: there, kind: frame.Join, payload: encode(&joining{Size: p.size, Patience: patience, Member: m})})
	p.happens(event{conn: &Conn{Rank: rank}, err: io.EOF}) // it does nothing, and is looked at after the first
	return here
}

// happens passes an event to the coordinator.
func (p *party) happens(e event) {
	p.t.Helper()
	select {
	case p.g.events <- e:
	case <-limit(p.t).Done():
		p.t.Fatal("the coordinator has ended")
	}
}

// fails checks the error of the coordinator, which is rank 0, and that those who are in get the same.
func (p *party) fails(in []*Conn, sentinel error, want ...string) {
	p.t.Helper()
	o := <-p.zero
	has(p.t, o.err, sentinel, want...)
	for _, c := range in {
		_, err := (&Meeting{conn: c}).answer(limit(p.t), frame.Table, maxRefusal)
		if has(p.t, err, sentinel); err.Error() != o.err.Error() {
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
		ends     bool          // the coordinator's context
		patience time.Duration // of rank 3
	}{
		{"at the coordinator's end", backend.ErrTimeout, true, 0},
		{"at a rank's end", backend.ErrTimeout, false, 100 * time.Millisecond},
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
			want := []string{"6 of 9 ranks did not join within", ": ranks 1, 2, 4-6, 8; 1 connection refused: 1 × not a rank"}
			in := []*Conn{p.enter(7, 0), p.enter(3, c.patience)}
			if c.ends {
				cancel()
			}
			p.fails(in, c.sentinel, want...)
		})
	}
}

// TestCoordinatorDoesNotMissItself has the coordinator called off before it reads the message of its own rank.
func TestCoordinatorDoesNotMissItself(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	hold(ctx, t, 0, 9).fails(nil, backend.ErrCanceled, "8 of 9 ranks did not join within", ": ranks 1-8")
}

// TestCoordinatorEndsBeforeFirstRankGivesUp has a rank whose time ends before that of the others: before that,
// the coordinator sends it the error that names the missing ranks.
func TestCoordinatorEndsBeforeFirstRankGivesUp(t *testing.T) {
	p := hold(limit(t), t, 0, 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	o := <-p.rank(ctx, 1)
	has(t, o.err, backend.ErrTimeout)
	got := <-p.zero
	has(t, got.err, nil, "rank") // on a slow machine, that rank 1 ended before all ranks
	if ctx.Err() == nil {
		has(t, o.err, nil, "1 of 3 ranks did not join", ": rank 2")
	}
}

// TestRankLostDuringRendezvous has a rank that joins and ends before the others have joined. A rank that comes
// later learns of it too.
func TestRankLostDuringRendezvous(t *testing.T) {
	ctx := limit(t)
	p := hold(ctx, t, 0, 4)
	in := []*Conn{p.enter(1, 0)}
	p.enter(2, 0)
	late := p.dial(3)
	p.happens(event{conn: p.there[2], err: io.EOF})
	const want = "rank 2 (process 1002 on host2) ended before all ranks"
	p.send(late, &joining{Size: p.size, Member: member(3)})
	p.fails(append(in, late), backend.ErrPeerLost, want)
}

// TestCoordinatorLostDuringRendezvous has a coordinator that ends without a message.
func TestCoordinatorLostDuringRendezvous(t *testing.T) {
	l := listen(t, rankOf(0, 3), 0)
	p := &party{t: t, l: l, size: 3}
	rank := p.rank(limit(t), 1)
	c, err := l.Accept(limit(t))
	if err != nil {
		t.Fatal(err)
	}
	if kind, _, err := c.receive(maxJoin); kind != frame.Join || err != nil {
		t.Fatal(kind, err)
	}
	c.Close()
	o := <-rank
	has(t, o.err, backend.ErrPeerLost, "the coordinator, rank 0 at 127.0.0.1:")
	p.all.Wait()
}

// TestJoinAfterRendezvousIsRefused joins after the job has started.
func TestJoinAfterRendezvousIsRefused(t *testing.T) {
	ctx := limit(t)
	p := hold(ctx, t, Launcher, 2)
	ranks := p.joinAll(ctx)
	if err := errors.Join(confirmAll(ctx, ranks, func(int) func(context.Context) error { return ready })...); err != nil {
		t.Fatal(err)
	}
	again := <-p.rank(ctx, 0)
	has(t, again.err, backend.ErrInit, "the job has started already")
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
	} {
		_, err := Join(ctx, c.id, c.address, 0, c.m)
		has(t, err, backend.ErrInit, c.want)
	}
}

// The launcher listens before it starts ranks, so a rank does not wait until it does.
func TestLauncherIsNotWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // no process listens there now
	ctx := limit(t)
	_, err = Join(ctx, rankOf(1, 2), l.Addr().String(), Launcher, member(1))
	has(t, err, backend.ErrInit, "no process listens", "network namespace")
	if ctx.Err() != nil {
		t.Error("the rank waited for the launcher")
	}
}
