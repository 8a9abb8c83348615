package engine

import (
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
)

// Collective implements backend.Collectives, with arrival slots (package board) if the communicator has
// some.
func (c *comm) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	if c.native == nil {
		return backend.PlanChecked, nil
	}
	if c.e.cfg.Board.News() {
		c.Refresh()
	}
	if err := c.usable(); err != nil {
		return backend.PlanDone, err
	}
	done, err := c.native.Run(b, call)
	if !done {
		return backend.PlanSchedule, err
	}
	return backend.PlanDone, err
}

// StartCollective implements backend.Collectives, with arrival slots if the data fit there.
func (c *comm) StartCollective(call *backend.Call) (backend.Operation, error) {
	if c.native == nil || call.Form != backend.Nonblocking {
		return nil, nil
	}
	e := c.e
	if e.cfg.Board.News() {
		c.Refresh()
	}
	if c.usable() != nil {
		return nil, nil // a schedule ends with the error
	}
	o := c.native.Start(call)
	if o == nil {
		return nil, nil
	}
	e.mu.Lock()
	c.compareArrived(call)
	if c.native.Queued() && !slices.Contains(e.queued, c.native) {
		e.queued = append(e.queued, c.native)
	}
	e.unlock()
	return o, nil
}

// The methods below implement board.Comm.

// Over returns why every operation ends, or nil.
func (c *comm) Over() error { return c.over(true) }

func (c *comm) Gone(rank int) bool { return c.isGone(rank) }

// GoneFault returns the error of an operation that needs a rank for which Gone is true.
func (c *comm) GoneFault(rank int) error {
	c.e.mu.Lock()
	defer c.e.unlock()
	return c.goneFault(rank)
}

// Refresh takes in what has arrived.
func (c *comm) Refresh() {
	c.e.mu.Lock()
	c.e.progress()
	c.e.unlock()
}

// BreakHere breaks the communicator without a notice to the others.
func (c *comm) BreakHere(f *backend.Fault) {
	c.e.mu.Lock()
	c.broken(f)
	c.e.unlock()
}

// Suspect marks a rank lost whose memory cannot be read.
func (c *comm) Suspect(rank int, err error) {
	e := c.e
	e.mu.Lock()
	if w := c.World[rank]; !e.isClosed {
		e.suspect(w, "rank %d (%v) is lost: %v", w, e.cfg.Peers[w], err)
		e.handleLosses()
	}
	e.unlock()
}

// checkMixed looks at an unexpected message of the layers above. If it begins a collective over messages
// while this rank has begun a native one with the same number, the calls do not match. The lock is held.
func (e *Engine) checkMixed(ctx uint32, tag int32, payload []byte) {
	c := e.comms[ctx]
	if c == nil {
		return
	}
	var made backend.Fingerprint
	if call := c.waiting; call != nil && int(tag) == backend.CheckTag(call.Seq) {
		made = call.Fingerprint()
	} else if c.native == nil {
		return
	} else if f, ok := c.native.Made(int(tag)); !ok {
		return
	} else {
		made = f
	}
	seen, ok := backend.DecodeSeen(payload, len(c.World))
	if !ok {
		return
	}
	seen.Merge(backend.See(c.rank, made))
	var f *backend.Fault
	if errors.As(seen.Err(), &f) && c.broken(f) && !c.closed.Load() {
		c.broadcast(frame.Broken, EncodeFault(f), everyone)
	}
}

// Waits implements board.Comm: while the caller waits in a call, that is compared with messages of the layers
// above. Some may have arrived already.
func (c *comm) Waits(call *backend.Call) {
	e := c.e
	e.mu.Lock()
	defer e.unlock()
	if c.waiting = call; call != nil {
		c.compareArrived(call)
	}
}

// compareArrived compares a call with a message of the layers above that has arrived before. The lock is held.
func (c *comm) compareArrived(call *backend.Call) {
	e := c.e
	tag := backend.CheckTag(call.Seq)
	if n := e.arrived.FindArrived(match.Env{Ctx: c.id, Source: backend.AnySource, Tag: int32(tag)}); n != nil {
		e.checkMixed(n.Env.Ctx, n.Env.Tag, n.Owner.(*msg).buf)
	}
}
