package local

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
)

const postMax = 8 << 10 // longest input, in bytes, that is posted with the call

// Collective implements backend.Native. It does all collectives.
func (c *Comm) Collective(b *backend.Bound, call *backend.Call) (bool, error) {
	if err := c.unusable(); err != nil {
		return true, err
	}
	n := len(c.group.slots)
	if n == 1 {
		if call.Err != nil {
			return true, call.Err
		}
		c.call = call
		err := direct.RunPosted(call, 0, 1, (*alone)(c), &c.scratch)
		c.call = nil
		return true, err
	}
	c.bound = b
	c.turn++
	s := c.slot
	p := &s.posts[c.turn&1]
	p.print, p.bad, p.work, p.call = call.Fingerprint(), nil, nil, nil
	posted := call.Err == nil && direct.Posted(call, n, postMax)
	if posted {
		p.data = append(p.data[:0], direct.Input(call, c.rank)...)
	} else {
		p.call = call
	}
	s.making.Store(2*int64(backend.CheckTag(call.Seq)) + int64(c.turn&1))
	c.call = call
	err := c.arrive((*Comm).open)
	switch {
	case call.Err != nil:
		err = call.Err
	case err != nil:
	case posted:
		err = c.finishPosted()
	default:
		c.began = began(b)
		err = c.finishShared()
	}
	if err != nil {
		c.leaveAlone()
	}
	p.call, p.work, c.call, c.bound = nil, nil, nil, nil
	return true, err
}

// open concludes a collective's first meeting: it compares the calls, and
// combines what is short.
func (c *Comm) open() error {
	g, turn := c.group, c.turn&1
	first := &g.slots[0].posts[turn].print
	for i := range g.slots[1:] {
		if other := &g.slots[i+1].posts[turn].print; *other != *first {
			return backend.Mismatch(0, *first, i+1, *other)
		}
	}
	if c.call.Err == nil && c.combined() {
		n := c.call.Count * c.call.Type.Size
		if cap(g.meet.result) < n {
			g.meet.result = make([]byte, n, max(n, 64))
		}
		g.meet.result = g.meet.result[:n]
		return direct.Combine(c.call, c.rank, len(g.slots), (*posts)(c), &c.scratch, g.meet.result)
	}
	return nil
}

// combined reports whether the last arriver computes the result for all: with
// short vectors it has it before it could have woken the others.
func (c *Comm) combined() bool {
	call := c.call
	return (call.Coll == backend.Allreduce || call.Coll == backend.Reduce) &&
		direct.Posted(call, len(c.group.slots), postMax)
}

// finishPosted computes this rank's result from what the ranks posted.
func (c *Comm) finishPosted() error {
	call := c.call
	if c.combined() {
		if call.Coll == backend.Allreduce || c.rank == call.Root {
			copy(call.Recv, c.group.meet.result)
		}
		return nil
	}
	return direct.RunPosted(call, c.rank, len(c.group.slots), (*posts)(c), &c.scratch)
}

// finishShared computes this rank's result from the other ranks' buffers.
func (c *Comm) finishShared() error {
	c.slot.reading.Store(true)
	defer c.slot.reading.Store(false) // also if the user's operation panics
	err := direct.Run(c.call, c.rank, len(c.group.slots), (*shared)(c), &c.scratch)
	if err != nil {
		c.Break(err)
	}
	return err
}

// alone gives package direct the buffers of a communicator's only rank.
type alone Comm

func (a *alone) View(_ int, from direct.Space, off, n int) []byte {
	return direct.Input(a.call, 0)[off : off+n]
}
func (a *alone) Fetch(int, direct.Space, int, []byte) error { return errNotPosted }
func (a *alone) Len(int, direct.Space) int                  { return len(direct.Input(a.call, 0)) }
func (a *alone) Block(_, to int) (off, n int, err error) {
	off, n = direct.Outgoing(a.call, to)
	return off, n, nil
}
func (a *alone) Over() error          { return nil }
func (a *alone) Share([]byte)         {}
func (a *alone) Meet(bad error) error { return bad }

// posts gives package direct the inputs that were posted with the calls.
type posts Comm

var errNotPosted = faultf(backend.ErrInternal, "a part of an input that was not posted")

func (p *posts) View(rank int, from direct.Space, off, n int) []byte {
	data := p.group.slots[rank].posts[p.turn&1].data
	if from != direct.In || off+n > len(data) {
		return nil
	}
	return data[off : off+n]
}

func (p *posts) Fetch(int, direct.Space, int, []byte) error { return errNotPosted }

func (p *posts) Len(rank int, _ direct.Space) int {
	return len(p.group.slots[rank].posts[p.turn&1].data)
}
func (p *posts) Block(int, int) (off, n int, err error) { return 0, 0, errNotPosted }
func (p *posts) Over() error                            { return nil }
func (p *posts) Share([]byte)                           {}
func (p *posts) Meet(bad error) error                   { return bad }

// shared gives package direct the ranks' own buffers.
//
// Invariant: a rank looks at another's post only while its slot says reading,
// and only if the communicator had not ended after that was said. Ranks that
// give up wait until nobody is reading, so the post and the buffers stay.
type shared Comm

func (p *shared) post(rank int) *post {
	if p.group.end.Load() != nil {
		return nil
	}
	return &p.group.slots[rank].posts[p.turn&1]
}

func (p *shared) buffer(rank int, from direct.Space) []byte {
	o := p.post(rank)
	switch {
	case o == nil:
		return nil
	case from == direct.In:
		return direct.Input(o.call, rank)
	case from == direct.Out:
		return o.call.Recv
	}
	return o.work
}

func (p *shared) View(rank int, from direct.Space, off, n int) []byte {
	if b := p.buffer(rank, from); off+n <= len(b) {
		return b[off : off+n]
	}
	return nil
}

// Fetch is asked for what View did not give: the communicator has ended, or the
// caller is wrong.
func (p *shared) Fetch(rank int, from direct.Space, off int, dst []byte) error {
	if e := p.group.end.Load(); e != nil {
		return e.cause
	}
	return faultf(backend.ErrInternal, "%d bytes at %d of rank %d's buffer %d of %d bytes",
		len(dst), off, rank, from, len(p.buffer(rank, from)))
}

func (p *shared) Len(rank int, from direct.Space) int { return len(p.buffer(rank, from)) }

func (p *shared) Block(rank, to int) (off, n int, err error) {
	o := p.post(rank)
	if o == nil {
		return 0, 0, p.group.end.Load().cause
	}
	off, n = direct.Outgoing(o.call, to)
	return off, n, nil
}

// Over implements direct.Peers.
func (p *shared) Over() error {
	if e := p.group.end.Load(); e != nil {
		return e.cause
	}
	if err := p.bound.Err(p.began); err != nil {
		return note(err, fmt.Sprintf("rank %d was in the middle of %v", p.rank, p.call.Fingerprint()))
	}
	return nil
}

func (p *shared) Share(b []byte) { p.slot.posts[p.turn&1].work = b }

func (p *shared) Meet(bad error) error {
	c := (*Comm)(p)
	c.slot.posts[c.turn&1].bad = bad
	c.slot.reading.Store(false)
	err := c.arrive((*Comm).judge)
	c.slot.reading.Store(true)
	if err != nil {
		return err
	}
	return c.group.meet.verdict
}

// judge concludes a later meeting: the lowest rank's complaint is everybody's.
func (c *Comm) judge() error {
	c.group.meet.verdict = nil
	for i := range c.group.slots {
		if bad := c.group.slots[i].posts[c.turn&1].bad; bad != nil {
			c.group.meet.verdict = bad
			break
		}
	}
	return nil
}
