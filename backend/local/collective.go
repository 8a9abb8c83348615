package local

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
)

const inlineMax = 8 << 10 // longest input, in bytes, that is copied and published with the call

// Collective implements backend.Collectives. It does all blocking collectives.
func (c *Comm) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	return backend.PlanDone, c.do(b, call)
}

// StartCollective implements backend.Collectives.
func (c *Comm) StartCollective(*backend.Call) (backend.Operation, error) { return nil, nil }

// Exchange implements backend.Collectives.
func (c *Comm) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	c.Irecv(recv, in, source, tag)
	c.Isend(send, out, dest, tag, backend.Standard)
}

// Flush implements backend.Collectives.
func (c *Comm) Flush() {}

func (c *Comm) do(b *backend.Bound, call *backend.Call) error {
	if err := c.unusable(); err != nil {
		return err
	}
	n := len(c.group.slots)
	if n == 1 {
		if call.Err != nil {
			return call.Err
		}
		c.call = call
		err := direct.RunSlots(call, 0, 1, (*alone)(c), &c.scratch)
		c.call = nil
		return err
	}
	c.bound = b
	c.round++
	s := c.slot
	p := &s.calls[c.round&1]
	p.print, p.bad, p.work, p.call = call.Fingerprint(), nil, nil, nil
	inline := call.Err == nil && direct.FitsSlot(call, n, inlineMax)
	if inline {
		p.data = append(p.data[:0], direct.Input(call, c.rank)...)
	} else {
		p.call = call
	}
	s.making.Store(2*int64(backend.CheckTag(call.Seq)) + int64(c.round&1))
	c.call = call
	err := c.arrive((*Comm).compare)
	switch {
	case call.Err != nil:
		err = call.Err
	case err != nil:
	case inline:
		err = c.finishInline()
	default:
		c.began = began(b)
		err = c.finishShared()
	}
	if err != nil {
		c.waitUnread()
	}
	p.call, p.work, c.call, c.bound = nil, nil, nil, nil
	return err
}

// compare concludes a collective's first round: it compares the calls, and combines
// short inputs.
func (c *Comm) compare() error {
	g, round := c.group, c.round&1
	first := &g.slots[0].calls[round].print
	for i := range g.slots[1:] {
		if other := &g.slots[i+1].calls[round].print; *other != *first {
			return backend.Mismatch(0, *first, i+1, *other)
		}
	}
	if c.call.Err == nil && c.combined() {
		n := c.call.Count * c.call.Type.Size
		if cap(g.arrivals.result) < n {
			g.arrivals.result = make([]byte, n, max(n, 64))
		}
		g.arrivals.result = g.arrivals.result[:n]
		return direct.Combine(c.call, c.rank, len(g.slots), (*inlineInputs)(c), &c.scratch, g.arrivals.result)
	}
	return nil
}

// combined reports whether the last rank to arrive computes the result for all: with
// short vectors that takes less time than waking the others.
func (c *Comm) combined() bool {
	call := c.call
	return (call.Coll == backend.Allreduce || call.Coll == backend.Reduce) &&
		direct.FitsSlot(call, len(c.group.slots), inlineMax)
}

// finishInline computes this rank's result from the published copies of the inputs.
func (c *Comm) finishInline() error {
	call := c.call
	if c.combined() {
		if call.Coll == backend.Allreduce || c.rank == call.Root {
			copy(call.Recv, c.group.arrivals.result)
		}
		return nil
	}
	return direct.RunSlots(call, c.rank, len(c.group.slots), (*inlineInputs)(c), &c.scratch)
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
func (a *alone) Fetch(int, direct.Space, int, []byte) error { return errNotInline }
func (a *alone) Len(int, direct.Space) int                  { return len(direct.Input(a.call, 0)) }
func (a *alone) Block(_, to int) (off, n int, err error) {
	off, n = direct.Outgoing(a.call, to)
	return off, n, nil
}
func (a *alone) Over() error          { return nil }
func (a *alone) Share([]byte)         {}
func (a *alone) Sync(bad error) error { return bad }

// inlineInputs gives package direct the inputs that were published with the calls.
type inlineInputs Comm

var errNotInline = faultf(backend.ErrInternal, "a part of an input that was not published")

func (p *inlineInputs) View(rank int, from direct.Space, off, n int) []byte {
	data := p.group.slots[rank].calls[p.round&1].data
	if from != direct.In || off+n > len(data) {
		return nil
	}
	return data[off : off+n]
}

func (p *inlineInputs) Fetch(int, direct.Space, int, []byte) error { return errNotInline }

func (p *inlineInputs) Len(rank int, _ direct.Space) int {
	return len(p.group.slots[rank].calls[p.round&1].data)
}
func (p *inlineInputs) Block(int, int) (off, n int, err error) { return 0, 0, errNotInline }
func (p *inlineInputs) Over() error                            { return nil }
func (p *inlineInputs) Share([]byte)                           {}
func (p *inlineInputs) Sync(bad error) error                   { return bad }

// shared gives package direct the ranks' own buffers.
//
// Invariant: a rank reads another's published call only while reading is set in its
// slot, and only if the communicator had not ended after reading was set. Ranks that
// give up wait until no rank is reading, so the call and its buffers stay valid.
type shared Comm

func (p *shared) published(rank int) *publishedCall {
	if p.group.end.Load() != nil {
		return nil
	}
	return &p.group.slots[rank].calls[p.round&1]
}

func (p *shared) buffer(rank int, from direct.Space) []byte {
	o := p.published(rank)
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

// Fetch is called when View returned nothing: the communicator has ended, or the
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
	o := p.published(rank)
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

func (p *shared) Share(b []byte) { p.slot.calls[p.round&1].work = b }

func (p *shared) Sync(bad error) error {
	c := (*Comm)(p)
	c.slot.calls[c.round&1].bad = bad
	c.slot.reading.Store(false)
	err := c.arrive((*Comm).judge)
	c.slot.reading.Store(true)
	if err != nil {
		return err
	}
	return c.group.arrivals.verdict
}

// judge concludes a later round: the error of the lowest rank that has one is the
// verdict for all.
func (c *Comm) judge() error {
	c.group.arrivals.verdict = nil
	for i := range c.group.slots {
		if bad := c.group.slots[i].calls[c.round&1].bad; bad != nil {
			c.group.arrivals.verdict = bad
			break
		}
	}
	return nil
}
