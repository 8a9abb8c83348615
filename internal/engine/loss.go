package engine

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// A loss is handled in two steps, because notices arrive while another link's frames are being
// handled.
//
//  1. mark, at once: all ranks get a notice, once for each lost rank, so that all survivors learn of the
//     same losses even if the first to notice dies. Communicators that have not acknowledged the loss
//     end.
//  2. handleLosses, when the current frame is done: the lost rank's last messages are delivered, its link
//     is closed, and the remaining operations that need it end.
//
// A link that has ended, or must be given up, goes into due first. handleLosses reads the other links
// before it marks the loss: a rank that was stopped, and declared lost meanwhile, finds all its links
// ended, and must not declare the others lost.

// loss is a rank that is about to be marked lost, and why.
type loss struct {
	rank  int
	fault *backend.Fault
}

// How much of what a link still has is read before it is closed, or before another one's end is
// acted upon: a bound for a rank that goes on sending, above what a socket holds.
const (
	drainLost = 128 // reads
	drainLive = 8
)

// suspect queues the loss of a rank for handleLosses. The lock is held.
func (e *Engine) suspect(rank int, format string, facts ...any) {
	e.due = append(e.due, loss{rank, backend.Faultf(backend.ErrPeerLost, format, facts...)})
}

// lossesPending reports whether handleLosses has work.
func (e *Engine) lossesPending() bool {
	return len(e.due) > 0 || len(e.membership.LostList) > e.linksClosed || e.membership.Spreads()
}

// handleLosses handles links that have ended and ranks that are lost. The lock is held, and no frame is
// being handled.
func (e *Engine) handleLosses() {
	for e.lossesPending() {
		if len(e.due) > 0 {
			for _, p := range e.open {
				p.drain(drainLive)
			}
			due := e.due
			e.due = nil
			for _, d := range due {
				e.peers[d.rank].drain(drainLost) // it may have left in good order
				e.mark(d.rank, d.fault, membership.ThisRank)
			}
		}
		for n := len(e.membership.LostList); e.linksClosed < n; e.linksClosed++ {
			e.closeLost(e.membership.LostList[e.linksClosed])
		}
		if e.membership.Spreads() {
			e.membership.Spread()
		}
	}
}

// mark is the first step of a loss. The lock is held.
func (e *Engine) mark(rank int, f *backend.Fault, by membership.Finder) {
	if !e.membership.Lose(rank, by) {
		return
	}
	if i := e.local(rank); i >= 0 && e.fault.Load() == nil && !e.cfg.Board.Mark(i, exclusion(rank, e.me, f)) {
		e.exclude(e.cfg.Board.Lost(e.local(e.me)))
	}
	e.losses[rank] = f
	if e.fault.Load() != nil { // this rank has ended; its notices are not believed
		return
	}
	e.broadcast(frame.Header{Kind: frame.Lost, Tag: int32(rank)}, f.Encode(noticeMax))
	for _, c := range e.comms {
		if !c.acknowledges(rank) {
			c.lose(f)
		}
	}
	e.sweep()
	e.membership.Rehub()
}

// closeLost is the second step.
func (e *Engine) closeLost(rank int) {
	p := e.peers[rank]
	p.drain(drainLost)
	p.leaveWith(e.losses[rank])
	p.hasLeft.Store(true)
	e.sweep()
}

// onLoss handles the notice of a loss.
//
// Notices from a lost rank are ignored. So of two ranks that have lost only the connection to each other,
// the others lose one, that of the first notice.
func (e *Engine) onLoss(from, rank int, f *backend.Fault) {
	switch {
	case e.losses[from] != nil:
	case rank == e.me:
		e.exclude(exclusion(rank, from, f))
	default:
		e.mark(rank, f, membership.AnotherRank)
	}
}

// broadcast sends a notice to all ranks to which a connection exists or is being made. Ranks that have
// said goodbye get it too: they may not have left yet, and would take a rank without a goodbye for dead.
func (e *Engine) broadcast(h frame.Header, body []byte) {
	for r, p := range e.peers {
		if p != nil && e.losses[r] == nil && !unlinked(p) {
			p.emit(h, body, nil)
		}
	}
}

// exclusion is the error of a rank that another one has declared lost because of f.
func exclusion(rank, by int, f *backend.Fault) *backend.Fault {
	text := fmt.Sprintf("rank %d was declared lost by rank ", rank)
	if strings.HasPrefix(f.Text, text) { // Declare, or another rank, has said so
		return f
	}
	return backend.Faultf(backend.ErrPeerLost, "%s%d: %s", text, by, f.Text)
}

// exclude ends the job on this rank, which was declared lost, and passes that on: ranks that were stopped together may
// have links with each other only. The lock is held.
func (e *Engine) exclude(f *backend.Fault) {
	if e.excluded = true; e.fault.Load() == nil {
		if i := e.local(e.me); i >= 0 {
			e.cfg.Board.Mark(i, f) // for ranks whose link has no room for the notice
		}
		e.broadcast(frame.Header{Kind: frame.Lost, Tag: int32(e.me)}, f.Encode(noticeMax))
	}
	e.end(f)
}

// end ends all communicators. The lock is held.
func (e *Engine) end(f *backend.Fault) {
	if !e.fault.CompareAndSwap(nil, f) {
		return
	}
	for _, c := range e.comms {
		c.lose(f)
	}
	e.sweep()
}

// sweep ends the operations that cannot complete any more, and forgets communicators that all members have
// closed. It is called when a communicator or a rank has ended. The lock is held.
func (e *Engine) sweep() {
	e.each(func(o *op) {
		if err := o.ended(); err != nil {
			e.drop(o, err)
		}
	})
	e.wakeProbes()
	for _, c := range e.comms {
		c.forget()
	}
	e.wakeReady()
}

// each calls f for every operation in progress, wherever it is. f may end the operation. The lock is held.
func (e *Engine) each(f func(*op)) {
	e.posted.Each(func(n *match.Node) bool {
		f(n.Owner.(*op))
		return true
	})
	for i := range e.slots {
		if o := e.slots[i].op; o != nil {
			f(o)
		}
	}
	for _, p := range e.open {
		if o := p.op; o != nil && o.state == opArriving {
			f(o)
		}
	}
}

// ended returns why an operation in progress cannot complete, nil if it can.
func (o *op) ended() error {
	c := o.comm
	if err := c.over(o.tag < 0 && o.tag != backend.AnyTag); err != nil {
		return err
	}
	if o.state == opPosted {
		return c.cannotCome(o.node.Env)
	}
	r := c.RankOf(o.peer)
	switch {
	case !c.isGone(r):
		return nil
	case o.state == opWithdrawing && c.e.losses[o.peer] == nil: // its message has not matched, or the CTS would have come first
		return o.cause
	}
	return c.goneFault(r)
}

// hasLeft reports whether all that a rank has sent is here: it has left in good order, or is lost and
// its link closed.
func (e *Engine) hasLeft(world int) bool { p := e.peers[world]; return p != nil && p.hasLeft.Load() }

// cannotCome returns why no message can match a receive, nil if one can.
func (c *comm) cannotCome(want match.Env) error {
	gone := -1
	if want.Source != backend.AnySource {
		if gone = c.RankOf(int(want.Source)); !c.isGone(gone) {
			return nil
		}
		return c.goneFault(gone)
	}
	for r := range c.World {
		if r == c.rank {
			continue // only another goroutine of this rank could send one then
		}
		if !c.isGone(r) {
			return nil
		}
		gone = r
	}
	if gone < 0 {
		return nil
	}
	return c.goneFault(gone)
}
