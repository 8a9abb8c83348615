package local

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The longest inputs, in bytes, that are copied and published with the call: where the last rank to arrive concludes for
// all, and where every rank does. There another round takes less time than a copy.
const (
	inlineMax = 8 << 10
	inlineFew = 2 << 10
)

// Collective implements backend.Collectives. It does all blocking collectives except those of neighborhoods.
func (c *Comm) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	if call.Coll.Neighbor() {
		return backend.PlanChecked, nil
	}
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
	c.call, c.bound = call, b
	c.made++
	l, p, n := c.group.arrivals.line(c.rank, c.round+1), c.published(c.rank), len(c.group.ends)
	l.print = call.Fingerprint()
	limit := inlineMax
	if c.group.arrivals.each {
		limit = inlineFew
	}
	c.inline = call.Err == nil && direct.FitsSlot(call, n, limit)
	c.small = c.inline && direct.FitsSlot(call, n, smallMax)
	switch {
	case c.small:
		copy(l.small[:], direct.Input(call, c.rank))
	case c.inline:
		in := direct.Input(call, c.rank)
		if len(p.data) < len(in) { // else the others need not fetch the line of p again
			p.data = make([]byte, len(in))
		}
		copy(p.data, in)
	case call.Err == nil:
		p.call = call
		p.bufs[direct.In], p.bufs[direct.Out] = direct.Input(call, c.rank), call.Recv
	}
	word.ReleaseUint64(&c.making, uint64(backend.CheckTag(call.Seq))<<lineBits+(c.round+1)%lineDeep)
	err := c.arrive((*Comm).compare)
	switch {
	case call.Err != nil:
		err = call.Err
	case err != nil:
	case c.inline:
		err = c.finishInline()
	default:
		err = c.finishShared()
	}
	c.leave(err)
	return err
}

// leave ends a call on this rank.
func (c *Comm) leave(err error) {
	unread := err == nil || c.group.end.Load() == nil || c.waitUnread() // an error in the arguments ends this call only
	if !c.inline && unread {
		p := c.published(c.rank)
		p.call, p.bufs = nil, [2][]byte{}
	}
	c.call, c.bound = nil, nil
}

// compare concludes a collective's first round: it compares the calls, and combines
// short inputs for all ranks. An error ends the communicator.
func (c *Comm) compare() error {
	first := &c.group.arrivals.line(0, c.round).print
	for i := 1; i < len(c.group.ends); i++ {
		if other := &c.group.arrivals.line(i, c.round).print; *other != *first {
			c.Break(backend.Mismatch(0, *first, i, *other))
			return c.stopped()
		}
	}
	if c.combined() {
		n := c.call.Count * c.call.Type.Size
		result := &c.group.arrivals.result
		if cap(*result) < n {
			*result = make([]byte, n, max(n, 64))
		}
		*result = (*result)[:n]
		if err := direct.Combine(c.call, c.rank, len(c.group.ends), (*peers)(c), &c.scratch, *result); err != nil {
			c.Break(err)
			return c.stopped()
		}
	}
	return nil
}

// combined reports whether the last rank to arrive computes the result for all: with
// short vectors that takes less time than waking the others.
func (c *Comm) combined() bool {
	return !c.group.arrivals.each && c.inline && (c.call.Coll == backend.Allreduce || c.call.Coll == backend.Reduce)
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
	p, user := (*peers)(c), call.Op != nil && call.Op.Code == backend.OpUser
	if n := len(call.Recv); call.Coll == backend.Allreduce && len(c.group.ends) == 2 && !user { // two operands have one order
		ops := [2][]byte{p.copied(0)[:n], p.copied(1)[:n]}
		// To copy the lines of another processor's cache first is faster than arithmetic between the loads.
		c.theirs = append(c.theirs[:0], ops[1-c.rank]...)
		ops[1-c.rank] = c.theirs
		call.Op.Apply(call.Recv, ops[0], ops[1])
		return nil
	}
	err := direct.Run(call, c.rank, len(c.group.ends), p, &c.scratch, true)
	if err != nil {
		c.Break(err)
	}
	if user && err == nil && c.group.arrivals.each { // it fails on all ranks or on none
		err = p.Sync(nil, nil)
	}
	return err
}

// finishShared computes this rank's result from the other ranks' buffers.
func (c *Comm) finishShared() error {
	if !c.group.readers.Enter() {
		return c.stopped()
	}
	err := direct.Run(c.call, c.rank, len(c.group.ends), (*peers)(c), &c.scratch, false)
	if err != nil {
		c.Break(err)
	}
	c.group.readers.Leave()
	return err
}

// published returns what a rank has published of the call in progress.
func (c *Comm) published(rank int) *publishedCall { return &c.group.ends[rank].calls[c.made&1] }

// peers gives package direct the inputs that were published with the calls, or the ranks'
// own buffers.
//
// Invariant: a rank reads another's buffers only inside the gate readers. A rank that gives up shuts the gate and waits
// until it is empty, so its call and its buffers stay valid. A rank that finds the communicator ended reads no more.
type peers Comm

// ended returns why the other ranks' buffers cannot be read any more, or nil.
func (p *peers) ended() error {
	if e := p.group.end.Load(); e != nil && !p.inline {
		return e.cause
	}
	return nil
}

// copied returns the copy of a rank's input that was published with the call. Other bytes may follow it.
func (p *peers) copied(rank int) []byte {
	if p.small {
		return p.group.arrivals.line(rank, p.round).small[:]
	}
	return (*Comm)(p).published(rank).data
}

// Read implements direct.Peers.
func (p *peers) Read(rank int, from direct.Space, off int, dst []byte) ([]byte, error) {
	if err := p.ended(); err != nil {
		return nil, err
	}
	var b []byte
	switch {
	case p.inline:
		b = p.copied(rank)
	case from == direct.Work:
		b = p.group.ends[rank].rounds[p.round&1].work
	default:
		b = (*Comm)(p).published(rank).bufs[from]
	}
	if off+len(dst) > len(b) {
		return nil, backend.Faultf(backend.ErrInternal, "%d bytes at %d of rank %d's buffer %d of %d bytes", len(dst), off, rank, from, len(b))
	}
	v := b[off : off+len(dst)]
	word.Reads(v[:min(1, len(v))]) // stands for all
	return v, nil
}

// Block implements direct.Peers.
func (p *peers) Block(rank, to int) (off, n int, err error) {
	if err := p.ended(); err != nil {
		return 0, 0, err
	}
	off, n = direct.Outgoing((*Comm)(p).published(rank).call, rank, to)
	return off, n, nil
}

// Over implements direct.Peers.
func (p *peers) Over() error {
	if err := p.ended(); err != nil {
		return err
	}
	if err := p.bound.Err(time.Time{}); err != nil {
		return backend.While(err, fmt.Sprintf("rank %d was in the middle of %v", p.rank, p.call.Fingerprint()))
	}
	return nil
}

// Fails implements direct.Peers.
func (p *peers) Fails(err error, exits bool) {
	c := (*Comm)(p)
	if c.Break(err); exits {
		if !c.inline {
			c.group.readers.Leave()
		}
		c.leave(err)
	}
}

// Sync implements direct.Peers.
func (p *peers) Sync(work []byte, bad error) error {
	c := (*Comm)(p)
	o := &c.rounds[(c.round+1)&1]
	o.bad, o.work = bad, work
	return c.arrive((*Comm).judge)
}

// judge concludes a later round, with the error of the lowest rank that has one.
func (c *Comm) judge() error {
	for i := range c.group.ends {
		if bad := c.group.ends[i].rounds[c.round&1].bad; bad != nil {
			return bad
		}
	}
	return nil
}
