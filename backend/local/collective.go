package local

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/word"
)

const inlineMax = 8 << 10 // longest input, in bytes, that is copied and published with the call

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
	c.round++
	p := c.published(c.rank)
	p.print, p.bad = call.Fingerprint(), nil
	c.inline = call.Err == nil && direct.FitsSlot(call, len(c.group.ends), inlineMax)
	switch {
	case c.inline:
		p.data = append(p.data[:0], direct.Input(call, c.rank)...)
		p.bufs[direct.In] = p.data
	case call.Err == nil:
		p.call = call
		p.bufs[direct.In], p.bufs[direct.Out] = direct.Input(call, c.rank), call.Recv
	}
	c.making.Store(2*int64(backend.CheckTag(call.Seq)) + int64(c.round&1))
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
		p.call, p.bufs = nil, [3][]byte{}
	}
	c.call, c.bound = nil, nil
}

// compare concludes a collective's first round: it compares the calls, and combines
// short inputs.
func (c *Comm) compare() error {
	first := &c.published(0).print
	for i := 1; i < len(c.group.ends); i++ {
		if other := &c.published(i).print; *other != *first {
			return backend.Mismatch(0, *first, i, *other)
		}
	}
	if c.combined() {
		n := c.call.Count * c.call.Type.Size
		result := &c.group.arrivals.result
		if cap(*result) < n {
			*result = make([]byte, n, max(n, 64))
		}
		*result = (*result)[:n]
		return direct.Combine(c.call, c.rank, len(c.group.ends), (*peers)(c), &c.scratch, *result)
	}
	return nil
}

// combined reports whether the last rank to arrive computes the result for all: with
// short vectors that takes less time than waking the others.
func (c *Comm) combined() bool {
	return c.inline && (c.call.Coll == backend.Allreduce || c.call.Coll == backend.Reduce)
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
	return direct.Run(call, c.rank, len(c.group.ends), (*peers)(c), &c.scratch, true)
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
func (c *Comm) published(rank int) *publishedCall { return &c.group.ends[rank].calls[c.round&1] }

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

// Read implements direct.Peers.
func (p *peers) Read(rank int, from direct.Space, off int, dst []byte) ([]byte, error) {
	if err := p.ended(); err != nil {
		return nil, err
	}
	b := (*Comm)(p).published(rank).bufs[from]
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
	o := c.published(c.rank)
	if o.bad = bad; work != nil { // else others may be reading what there is
		o.bufs[direct.Work] = work
	}
	if err := c.arrive((*Comm).judge); err != nil {
		return err
	}
	return c.group.arrivals.verdict
}

// judge concludes a later round: the error of the lowest rank that has one is the
// verdict for all.
func (c *Comm) judge() error {
	var verdict error
	for i := range c.group.ends {
		if verdict = c.published(i).bad; verdict != nil {
			break
		}
	}
	c.group.arrivals.verdict = verdict
	return nil
}
