package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/match"
)

// Collective implements backend.Collectives, with arrival slots (package board) if the communicator has
// some.
func (c *comm) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	if c.native == nil {
		return backend.PlanChecked, nil
	}
	if err := c.usable(); err != nil {
		return backend.PlanDone, err
	}
	done, err := c.native.Run(b, call)
	if err == board.ErrEnded {
		err = cmp.Or(c.usable(), err)
	}
	if !done {
		return backend.PlanSchedule, err
	}
	return backend.PlanDone, err
}

// StartCollective implements backend.Collectives, with arrival slots if the data fit there.
func (c *comm) StartCollective(call *backend.Call) (backend.Operation, error) {
	if c.native == nil {
		return nil, nil
	}
	e := c.e
	if call.Form == backend.Persistent {
		return c.persistent(call)
	}
	if c.usable() != nil {
		return nil, nil // a schedule ends with the error
	}
	o := c.native.Start(call)
	if o == nil {
		return nil, nil
	}
	e.mu.Lock()
	c.compareArrived(call.Seq, call.Fingerprint())
	if c.native.Queued() && !slices.Contains(e.queued, c.native) {
		e.queued = append(e.queued, c.native)
	}
	e.mu.Unlock()
	return o, nil
}

// persistent makes a persistent collective with arrival slots, if it can.
func (c *comm) persistent(call *backend.Call) (backend.Operation, error) {
	c.e.mu.Lock()
	o, err := c.native.Persistent(call)
	c.e.mu.Unlock()
	if err != nil {
		c.Break(err) // the others have slots, or none: they would not find this rank
	}
	return o, err
}

// The methods below implement board.Comm.

// Over returns why every operation ends, or nil.
func (c *comm) Over() error { return c.over(true) }

func (c *comm) Gone(rank int) bool { return c.isGone(rank) }

// GoneFault returns the error of an operation that needs a rank for which Gone is true.
func (c *comm) GoneFault(rank int) error {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.goneFault(rank)
}

// Refresh takes in what has arrived.
func (c *comm) Refresh() {
	c.e.mu.Lock()
	c.e.progress()
	c.e.mu.Unlock()
}

// Excluded ends the job on this rank, which the others go on without.
func (c *comm) Excluded(why *backend.Fault) {
	e := c.e
	e.mu.Lock()
	e.exclude(why)
	e.mu.Unlock()
}

// BreakHere breaks the communicator without a notice to the others.
func (c *comm) BreakHere(f *backend.Fault) {
	c.e.mu.Lock()
	c.markBroken(f)
	c.e.mu.Unlock()
}

// Suspect marks a rank lost whose memory cannot be read.
func (c *comm) Suspect(rank int, err error) {
	e := c.e
	e.mu.Lock()
	if w := c.World[rank]; !e.membership.Closed() {
		e.suspect(w, "rank %d (%v) is lost: %v", w, e.cfg.Peers[w], err)
		e.handleLosses()
	}
	e.mu.Unlock()
}

// checkMixed looks at an unexpected message of the layers above. If it begins a collective over messages
// while this rank has begun a native one with the same number, the calls do not match. The lock is held.
func (e *Engine) checkMixed(ctx uint32, tag int32, payload []byte) {
	c := e.comms[ctx]
	if c == nil {
		return
	}
	if call := c.waiting; call != nil && int(tag) == backend.CheckTag(call.Seq) {
		c.breakIfDifferent(call.Fingerprint(), payload)
	} else if c.native != nil {
		if made, ok := c.native.Made(int(tag)); ok {
			c.breakIfDifferent(made, payload)
		}
	}
}

// breakIfDifferent breaks the communicator if this rank's native call differs from another rank's over messages. The lock is
// held.
func (c *comm) breakIfDifferent(made backend.Fingerprint, payload []byte) {
	seen, ok := backend.DecodeSeen(payload, len(c.World))
	if !ok {
		return
	}
	seen.Merge(backend.See(c.rank, made))
	var f *backend.Fault
	if errors.As(seen.Err(), &f) {
		c.breakEverywhere(f)
	}
}

// Waits implements board.Comm: while the caller waits in a call, that is compared with messages of the layers
// above. Some may have arrived already.
func (c *comm) Waits(call *backend.Call) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if c.waiting = call; call != nil {
		c.compareArrived(call.Seq, call.Fingerprint())
	}
}

// Mixed implements board.Comm.
func (c *comm) Mixed(seq uint32, made backend.Fingerprint) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.compareArrived(seq, made)
}

// compareArrived compares a native call with a message of the layers above that has arrived before. The lock is
// held.
func (c *comm) compareArrived(seq uint32, made backend.Fingerprint) {
	env := match.Env{Ctx: c.id, Source: backend.AnySource, Tag: int32(backend.CheckTag(seq))}
	if n := c.e.arrived.FindArrived(env); n != nil {
		c.breakIfDifferent(made, n.Owner.(*msg).buf)
	}
}

// verify compares the native calls in which this rank did not wait.
func (e *Engine) verify() {
	e.mu.Lock()
	e.verified = e.verified[:0]
	for _, c := range e.comms {
		if c.native != nil && !c.closed.Load() {
			e.verified = append(e.verified, c.native)
		}
	}
	e.mu.Unlock()
	for _, s := range e.verified {
		s.Verify() // breaks the communicator if they differ
	}
}
