package engine

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
	"github.com/cohort-hpc/cohort/internal/memlink"
)

const (
	pieceMax  = frame.MaxPayload
	writeMost = 4       // frames written to one link before the others have their turn
	readTurns = 8       // reads of one link before the others have their turn
	noticeMax = 4 << 10 // longest text of a notice
)

// peer is what the engine knows of another rank, and the frames to and from it; under the engine's lock.
//
// The state of the link (membership.Link), and whether a write has failed, decide what becomes of a frame:
//
//	state          link  writeErr  a frame                                   the state ends by
//	None           nil   nil       is queued, and a link is needed for it    emit; up: the peer has made a link
//	Wanted, Asked  nil   nil       is queued for the next link               up: there is a link
//	Fresh          set   any       is queued until the link is confirmed,    taken: the peer's first frame has come;
//	                               or for the next link                      linkEnded
//	Up             set   nil       is written, or queued for lack of room    writeFailed; linkEnded; closeLink
//	Up             set   set       is dropped, and what has come is read     linkEnded; closeLink
//	Ended          nil   any       is dropped                                nothing
//
// linkEnded leaves to the membership whether another link follows. closeLink gives the rank up: it is lost, or has sent
// something invalid. When this rank leaves, or tells a lost rank so, a goodbye takes over the link.
type peer struct {
	e     *Engine
	rank  int
	link  Link            // nil: there is none now
	mem   *memlink.Link   // the last link that was confirmed, if it goes through memory: tokens are of it
	state membership.Peer // of the link, and of the rank

	// The frame that is being read.
	in   frame.Arrival
	op   *op    // whose payload is arriving, nil if it is dropped
	msg  *msg   // or an unexpected message
	note []byte // or the text of a notice
	bad  error  // what is wrong with the frame

	// The frames to be written.
	head  frame.Header // of the frame that is being written
	first *out         // frames to be written
	tail  **out        // where the next one goes
	woff  int          // bytes of first, with its header, that are written

	writeErr error // why nothing more can be written on the link

	// Bursts: see burst.go.
	begun   time.Duration // when the program has started a message to it last, since epoch
	inBurst int           // messages of the program that followed each other closely
	kept    int           // frames that keep has queued since the last flush

	// Attempts to make a link, silence, and the end.
	trying      bool        // attempts go on
	lastErr     error       // of the last attempt that failed, or why the last link has ended
	quiet, mute int         // ticks in which nothing has come, or been written
	copying     int         // ticks in which a lost rank has not ended a copy
	hasLeft     atomic.Bool // it has left, or is lost and its link closed; for readers without the lock
}

func newPeer(e *Engine, rank int) *peer {
	p := &peer{e: e, rank: rank}
	p.in.Receiver, p.tail = p, &p.first
	return p
}

// up gives the engine the link to a peer.
func (p *peer) up(l Link) {
	if !slices.Contains(p.e.open, p) {
		p.e.open = append(p.e.open, p)
	}
	p.link, p.writeErr = l, nil
	p.limit(3 * p.e.heartbeat.limit / 2) // later than the heartbeats, whose error says more
}

// limit makes the system give up a link whose data are not taken for so long: not within a node, where the kernel says
// whether the other end's process runs.
func (p *peer) limit(d time.Duration) {
	if d > 0 && !p.near() {
		p.link.Limit(d)
	}
}

// move writes and reads what is possible without waiting, and reports whether anything was. It goes on with the
// transfers of a lost rank, until that does not write to buffers of this rank any more.
func (p *peer) move() (moved bool) {
	if p.link != nil {
		moved = p.waits() && p.flush()
		moved = p.pull() || moved
	}
	if p.mem != nil && p.mem.Busy() {
		did, err := p.mem.Step(p)
		if err != nil && p.linkOver() {
			p.mem.Abandon(p)
		} else if err != nil {
			p.sentInvalid(err)
		}
		moved = moved || did
	}
	if p.writeErr != nil && !p.linkOver() {
		// The peer has closed its end. If it did so in good order its goodbye can be read, behind all that it
		// has sent.
		p.drain(drainLost)
		if moved = true; p.writeErr != nil {
			p.linkEnded(p.writeErr)
		}
	}
	return moved
}

// pull reads what has arrived and acts on it.
func (p *peer) pull() bool {
	short := p.mem != nil && p.takeShort()
	moved, err := p.link.Read(&p.in)
	if moved {
		p.quiet = 0
	}
	switch {
	case err == nil || p.linkOver():
		return moved || short
	case p.bad != nil || errors.Is(err, frame.ErrFrame):
		p.sentInvalid(err)
	default:
		p.linkEnded(err)
	}
	return true
}

// takeShort is the fast path of pull: it takes short messages for which receives are posted, and reports whether it did.
func (p *peer) takeShort() (moved bool) {
	for q := &p.e.posted; q.Len() > 0; moved = true {
		ctx, tag, elems, size, ok := p.mem.Peek(&p.in)
		if !ok || size < 0 {
			break
		}
		env := match.Env{Ctx: ctx, Source: int32(p.rank), Tag: tag, Elems: backend.Elems(elems)}
		n := q.FindPosted(env)
		if n == nil || n.Env.Source == backend.AnySource {
			break
		}
		p.quiet = 0
		o := n.Owner.(*op)
		p.e.received(o, env, size, p.mem.Receive(o.buf, size))
	}
	return moved
}

// drain reads what has arrived from a peer.
func (p *peer) drain(rounds int) {
	for range rounds {
		if p.link == nil || !p.pull() {
			return
		}
	}
}

// sentInvalid gives a rank up that has sent an invalid frame: the start of the next frame on its link is unknown. The
// other links are still valid.
func (p *peer) sentInvalid(err error) {
	if errors.Is(err, frame.ErrSum) {
		p.e.suspect(p.rank, "rank %d is lost: the data that rank %d received from it were changed on the way: %v", p.rank, p.e.me, err)
	} else {
		p.e.suspect(p.rank, "rank %d is lost: rank %d received an invalid frame from it: %v", p.rank, p.e.me, err)
	}
	p.closeLink()
}

// linkEnded is called when nothing more can be read: err is why, io.EOF for the end of the stream.
func (p *peer) linkEnded(err error) {
	if p.linkOver() {
		return
	}
	if p.lastErr = err; p.writeErr != nil && !errors.Is(p.writeErr, syscall.EPIPE) { // which says no more than the end of the stream
		p.lastErr = p.writeErr // a system reports a reset once
	}
	p.link.Close()
	p.link, p.writeErr = nil, nil
	if p.in.Left, p.in.Head.Kind = 0, 0; p.state.Link == membership.Up {
		p.discardFrames()
	}
	p.e.membership.LinkEnded(p.rank)
}

// linkOver reports whether the link has ended, and no other follows.
func (p *peer) linkOver() bool { return p.state.Link == membership.Ended }

// writesNothing reports whether a frame that is queued now would never be written. The frames that are queued for a link
// that is not confirmed go over the next one.
func (p *peer) writesNothing() bool {
	return p.linkOver() || p.writeErr != nil && p.state.Link == membership.Up
}

// closeLink gives the link up for good.
func (p *peer) closeLink() {
	p.e.membership.Cut(p.rank)
	p.discardFrames()
	if p.link != nil {
		p.link.Close()
		p.link = nil
	}
}

// discardFrames drops what is not written and what has come in part: the caller ends the operations.
func (p *peer) discardFrames() {
	for p.first != nil {
		p.unlink(p.first)
	}
	p.in.Left, p.in.Head.Kind, p.in.Dst = 0, 0, nil
	if p.msg != nil {
		p.e.putMsg(p.msg)
	}
	p.msg = nil
}

// out is a frame that waits to be written, the first of a queue perhaps in part.
type out struct {
	next *out
	head frame.Header
	body []byte
	op   *op // whose frame it is; nil for none
}

// emit writes a frame, or as much as the link takes, and queues the rest for flush. It reports whether all
// is written, or never will be.
func (p *peer) emit(h frame.Header, body []byte, o *op) bool {
	if p.writesNothing() {
		return o == nil // an operation ends with its peer
	}
	if p.link == nil {
		p.e.membership.Need(p.rank)
	}
	if len(body) > 0 {
		h.Length = uint64(len(body))
	}
	p.head = h
	n := 0
	if p.first == nil && p.state.Link == membership.Up {
		var err error
		n, err = p.link.Write(&p.head, body, 0)
		if n == frame.HeaderSize+len(body) {
			if p.mute = 0; p.link.Holds() {
				p.e.wakeLeader() // to look for room on the link
			}
			return true
		}
		if err != nil {
			p.writeFailed(err)
			return o == nil
		}
	}
	if p.first == nil {
		p.woff = n
	}
	p.queue(p.head, body, o)
	return false
}

// queue leaves a frame to flush.
func (p *peer) queue(h frame.Header, body []byte, o *op) {
	if p.writesNothing() {
		return
	}
	w := p.e.storage.outs.get()
	if len(body) > 0 {
		h.Length = uint64(len(body))
	}
	w.head, w.body, w.op = h, body, o
	if o != nil {
		o.frame = w
	}
	*p.tail, p.tail = w, &w.next
	p.e.wakeLeader() // to look for room on the link
}

// writeFailed notes that nothing can be written any more. The reason may arrive on the other direction.
func (p *peer) writeFailed(err error) {
	p.writeErr = err
	p.e.wakeLeader()
}

// waits reports whether there is something to be written.
func (p *peer) waits() bool {
	return p.state.Link != membership.Fresh && (p.first != nil || p.link != nil && p.link.Holds())
}

// flush writes queued frames as far as the link takes them, and reports whether it took any.
func (p *peer) flush() bool {
	if p.writeErr != nil {
		return false
	}
	moved := false
	p.kept = 0
	if p.link.Holds() {
		var err error
		if moved, err = p.link.Flush(); err != nil {
			p.writeFailed(err)
			return true
		}
	}
	for turns := 0; turns < writeMost; {
		w := p.first
		if w == nil || p.writeErr != nil {
			return moved
		}
		if l, ok := p.link.(Corker); ok && w.next != nil && p.woff == 0 && l.Cork(&w.head, w.body) {
			moved = true
			p.wrote(w)
			continue
		}
		n, err := p.link.Write(&w.head, w.body, p.woff)
		if err != nil {
			p.writeFailed(err)
			return true
		}
		if n > p.woff {
			moved, p.mute = true, 0
		}
		p.woff = n
		if n < frame.HeaderSize+len(w.body) {
			return moved
		}
		p.wrote(w)
		turns++
	}
	return moved
}

// wrote takes a frame that is written out of the queue.
func (p *peer) wrote(w *out) {
	o, kind, k := w.op, w.head.Kind, len(w.body)
	if p.unlink(w); o != nil {
		p.e.sent(p, o, kind, k)
	}
}

// unlink takes a frame out of the queue, and away from its operation.
func (p *peer) unlink(w *out) {
	at := &p.first
	for *at != w {
		at = &(*at).next
	}
	if at == &p.first {
		p.woff = 0
	}
	if *at = w.next; *at == nil {
		p.tail = at
	}
	if w.op != nil {
		w.op.frame = nil
	}
	*w = out{}
	p.e.storage.outs.put(w)
}

// started reports whether a part of w may be written already.
func (p *peer) started(w *out) bool { return p.first == w && p.woff > 0 }

// detach makes an operation's queued frame independent of the user's buffer: it removes it, or copies one partly written.
func (p *peer) detach(o *op) {
	switch w := o.frame; {
	case w == nil:
	case p.started(w):
		w.body, w.op, o.frame = bytes.Clone(w.body), nil, nil
	default:
		p.unlink(w)
	}
}
