package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// islands is a job whose ranks reach each other as a backend promises, step by step.
type islands struct {
	*order
	mu      sync.Mutex  // guards the fields below, and those of groups
	changed chan bool   // closed, and replaced, when one of them has changed
	ranks   []*islander // and those that are started in place of others
	ends    []*end
	joining map[string]*group // by the name of the world
	used    map[int]*group    // by generation
	died    func(*islander)   // called when one is lost
}

// islander is a rank of the first world.
type islander struct {
	*rejoiner
	number  int
	world   *Comm              // that it uses; nil: none yet
	end     context.CancelFunc // of its call of Rejoin
	fails   bool               // to open the next world
	lost    bool
	closing bool // the program closes its world
	over    bool
	err     error // of its program
}

// group is a communicator.
type group struct {
	*islands
	world    *group             // of which it was made; nil: it is a world
	members  []*islander        // by rank; nil: has not come yet
	closed   []bool             // by rank
	uses     []bool             // by rank: as its world
	known    map[*islander]bool // the losses that it has acknowledged
	revoked  bool
	calls    []*agreed
	finished bool // all its ranks use it
}

// agreed is a call of Agree or Shrink.
type agreed struct {
	flags []int // by rank; -1: has not called
	all   int
	made  *group // of those that take part; nil: it goes on
}

// end is a rank's end of a group.
type end struct {
	backend.Comm
	*group
	rank  int
	ended int // calls of Agree and Shrink
}

func (j *islands) group(members []*islander) *group {
	g := &group{islands: j, members: members, closed: make([]bool, len(members)), uses: make([]bool, len(members)), known: map[*islander]bool{}}
	for _, r := range j.ranks {
		g.known[r] = r.lost
	}
	return g
}

func (g *group) end(rank int) *end {
	e := &end{group: g, rank: rank}
	g.ends = append(g.ends, e)
	return e
}

// change changes something, and lets all look again.
func (j *islands) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	close(j.changed)
	j.changed = make(chan bool)
}

func ended(ctx context.Context) error { return (&backend.Bound{Ctx: ctx}).Err(time.Time{}) }

// await waits until something holds, which is looked at with the mutex held.
func (j *islands) await(ctx context.Context, me *islander, holds func() (bool, error)) error {
	for {
		j.mu.Lock()
		ok, err := holds()
		if me.lost {
			err = fault(ErrPeerLost, "this rank is lost")
		}
		changed := j.changed
		j.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
}

// turn waits for the turn of a rank to do something.
func (j *islands) turn(ctx context.Context, me *islander, what string) error {
	if !j.step(ctx, fmt.Sprint("rank ", me.number, " ", what)) {
		return ended(ctx)
	}
	return nil
}

func contextOf(b *backend.Bound) context.Context {
	if b == nil || b.Ctx == nil {
		return context.Background()
	}
	return b.Ctx
}

func (e *end) me() *islander                               { return e.members[e.rank] }
func (e *end) Rank() int                                   { return e.rank }
func (e *end) Size() int                                   { return len(e.members) }
func (e *end) Caps() backend.Caps                          { return backend.Caps{Backend: "islands", MaxTag: 1 << 20} }
func (e *end) OnWait(_, _ func())                          {}
func (e *end) Wake()                                       {}
func (e *end) Settled(uint32)                              {}
func (e *end) Broken() error                               { return nil }
func (e *end) Await(*backend.Bound, backend.Pending) error { return nil }
func (e *end) UnderWay(func(*backend.Request, bool))       {}

// Failed returns the ranks of a world that are lost.
func (e *end) Failed() (lost []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for rank, r := range e.members {
		if r.lost {
			lost = append(lost, rank)
		}
	}
	return lost
}

func (e *end) Lost() []int { return e.Failed() }

func (e *end) WorldRank(rank int) int {
	if e.world == nil {
		return rank
	}
	return slices.Index(e.world.members, e.members[rank])
}

// breaks returns why no more messages come.
func (g *group) breaks() error {
	for _, r := range g.members {
		if r.lost && !g.known[r] {
			return fault(ErrPeerLost, fmt.Sprint("rank ", r.number))
		}
	}
	if g.revoked {
		return fault(ErrBroken, "revoked")
	}
	return nil
}

// Recv waits for a message that nobody sends.
func (e *end) Recv(b *backend.Bound, _ []byte, source, _ int) (backend.Status, error) {
	return backend.Status{}, e.await(contextOf(b), e.me(), func() (bool, error) {
		gone := 0
		for rank, closed := range e.closed {
			if closed && (source == rank || source == AnySource && rank != e.rank) {
				gone++
			}
		}
		switch {
		case e.closed[e.rank]:
			return false, fault(ErrClosed, "by this rank")
		case gone > 0 && (source != AnySource || gone == len(e.closed)-1):
			return false, backend.PeerLeft("rank %d has closed this communicator", source)
		}
		return false, e.breaks()
	})
}

func (e *end) Revoke(error) error {
	e.change(func() { e.revoked = e.revoked || !e.me().lost })
	return nil
}

func (e *end) Close() error {
	e.change(func() {
		e.closed[e.rank] = true
		for _, c := range e.calls[min(e.ended, len(e.calls)):] { // the other ranks have ended it
			if c.made != nil && !e.me().lost {
				c.made.closed[slices.Index(c.made.members, e.me())] = true
			}
		}
	})
	return nil
}

// call makes a call of Agree or Shrink, or continues it.
func (e *end) call(b *backend.Bound, name string, flag int) (*agreed, error) {
	ctx := contextOf(b)
	if err := e.turn(ctx, e.me(), name); err != nil {
		return nil, err
	}
	var c *agreed
	e.change(func() {
		if e.ended == len(e.calls) {
			e.calls = append(e.calls, &agreed{flags: slices.Repeat([]int{-1}, len(e.members))})
		}
		c = e.calls[e.ended]
		c.flags[e.rank] = flag
	})
	err := e.await(ctx, e.me(), func() (bool, error) {
		if e.closed[e.rank] {
			return false, fault(ErrClosed, "by this rank")
		}
		e.decide(c)
		return c.made != nil, nil
	})
	if err == nil {
		err = e.turn(ctx, e.me(), "learns")
	}
	if err == nil {
		e.change(func() { e.ended++ })
	}
	return c, err
}

// decide ends a call if all have called that are not lost and have not closed the communicator.
func (g *group) decide(c *agreed) {
	var members []*islander
	all := 1
	for rank, r := range g.members {
		switch {
		case r.lost || g.closed[rank]:
		case c.flags[rank] < 0:
			return
		default:
			members = append(members, r)
			all &= c.flags[rank]
		}
	}
	if c.made == nil {
		c.all, c.made = all, g.islands.group(members)
		if c.made.world = g.world; g.world == nil {
			c.made.world = g
		}
	}
}

func (e *end) Agree(b *backend.Bound, flag int) (int, error) {
	c, err := e.call(b, "agrees", flag)
	if err != nil {
		return 0, err
	}
	return c.all, nil
}

func (e *end) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	c, err := e.call(b, "shrinks", 1)
	if err != nil {
		return nil, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id := ids.Propose(0, 0)
	_, err = ids.Claim(id)
	return c.made.end(slices.Index(c.made.members, e.me())), id, err
}

// join opens the world with a name. It fails on some ranks, and not on others, if one of them does not come.
func (j *islands) join(ctx context.Context, me *islander, s settings) (backend.Comm, error) {
	if err := j.turn(ctx, me, "opens"); err != nil {
		return nil, err
	}
	if me.fails {
		me.fails = false
		return nil, errors.New("no memory")
	}
	var g *group
	j.change(func() {
		if g = j.joining[s.Job]; g == nil {
			g = j.group(make([]*islander, s.Size))
			j.joining[s.Job] = g
		}
		g.members[s.Rank] = me
	})
	err := j.await(ctx, me, func() (bool, error) { return !slices.Contains(g.members, nil), nil })
	if err == nil {
		err = j.turn(ctx, me, "has opened")
	}
	var made *end
	j.change(func() {
		if g.closed[s.Rank] = err != nil; err == nil {
			made = g.end(s.Rank)
		}
	})
	return made, err
}

func newIslands(o *orders) *islands {
	return &islands{order: &order{orders: o, steps: map[string]chan bool{}, quiet: func() {}}, changed: make(chan bool),
		joining: map[string]*group{}, used: map[int]*group{}, died: func(*islander) {}}
}

// rank adds a rank with a protocol.
func (j *islands) rank(p protocol) *islander {
	me := &islander{number: len(j.ranks), end: func() {}}
	me.rejoiner = &rejoiner{protocol: p, ctx: context.Background(), first: settings{Config: Config{Job: "j"}}, entered: func(*Comm) {},
		open: func(ctx context.Context, s settings) (backend.Comm, error) { return j.join(ctx, me, s) }}
	j.ranks = append(j.ranks, me)
	return me
}
