package engine

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// Every test of this package holds the engines that it makes to checkPlaces.
func init() {
	atUnlock = func(e *Engine) {
		if err := checkPlaces(e); err != nil {
			e.mu.mu.Unlock() // the test's cleanup takes it
			panic(fmt.Sprintf("rank %d: %v", e.me, err))
		}
	}
}

// checkPlaces checks that every operation that has begun and not ended is in exactly one place, that of its state, and
// that what refers to it does so from both sides. The engine's lock is held.
func checkPlaces(e *Engine) (err error) {
	in := map[*op]opPlace{}
	wrong := func(format string, facts ...any) {
		if err == nil {
			err = fmt.Errorf(format, facts...)
		}
	}
	found := func(o *op, at opPlace) {
		if in[o] != nowhere || places[o.state] != at {
			wrong("an operation in state %d is in place %d, and in %d", o.state, at, in[o])
		}
		in[o] = at
	}
	e.posted.Each(func(n *match.Node) bool {
		found(n.Owner.(*op), inPosted)
		return true
	})
	used, moving := 0, 0
	for i := range e.slots {
		o := e.slots[i].op
		if o == nil {
			continue
		}
		used++
		found(o, inSlot)
		if e.lookup(o.token, o.peer) != o {
			wrong("an operation in state %d in slot %d has the token %#x", o.state, i, o.token)
		}
		switch o.state {
		case opExposed, opCopying, opStopped:
			if !o.transfer.Active() {
				wrong("an operation in state %d has no transfer", o.state)
			}
		case opMoving:
			moving++
			if o.pair == nil || o.pair.pair != o || slices.Contains(e.moving, o) == slices.Contains(e.moving, o.pair) {
				wrong("an operation in state %d has no other end", o.state)
			}
		case opQueued:
			// A frame is queued unless its link ends, and that of an unconfirmed link goes over the next one.
			if p := e.peers[o.peer]; o.frame == nil && !p.linkOver() && (p.writeErr == nil || p.state.Link != membership.Up) {
				wrong("a send to rank %d in state %d has no frame", o.peer, o.state)
			}
		case opRequested:
			if (o.self != nil) != (o.peer == e.me) || o.self != nil && o.self.send != o {
				wrong("a send to rank %d in state %d has no message", o.peer, o.state)
			}
		}
	}
	if used != len(e.slots)-len(e.spares) || moving != 2*len(e.moving) {
		wrong("%d of %d slots are in use, %d are free; %d ends of messages to this rank, and %d of them are copied",
			used, len(e.slots), len(e.spares), moving, len(e.moving))
	}
	for _, p := range e.open {
		if o := p.op; o != nil {
			if o.state == opArriving {
				found(o, inArrival)
			}
			if o.peer != p.rank || o.state != opArriving && o.state != opReceiving {
				wrong("a message of rank %d arrives for an operation with rank %d in state %d", p.rank, o.peer, o.state)
			}
		}
		last := &p.first
		for w := p.first; w != nil; last, w = &w.next, w.next {
			if o := w.op; o != nil && (o.frame != w || o.peer != p.rank || in[o] != inSlot) {
				wrong("a frame of an operation in state %d is in the queue of rank %d", o.state, p.rank)
			}
		}
		if p.tail != last || p.first != nil && (p.linkOver() || p.writeErr != nil && p.link == nil) {
			wrong("the queue of rank %d has frames for a link that has ended", p.rank)
		}
	}
	for _, m := range e.storage.msgs {
		if m.gone || m.send != nil || m.buf != nil || m.kind != msgEager {
			wrong("a spare message is %+v", *m)
		}
	}
	for _, o := range e.storage.ops {
		if o.state != opIdle || o.frame != nil || o.self != nil || o.pair != nil || o.token != 0 {
			wrong("a spare operation is in state %d", o.state)
		}
	}
	if len(in) != e.active {
		wrong("%d operations have begun and not ended, and %d are in a place", e.active, len(in))
	}
	return err
}
