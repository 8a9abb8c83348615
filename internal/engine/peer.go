package engine

import (
	"bytes"
	"errors"
	"fmt"
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
	head   frame.Header // of the frame that is being written
	first  *out         // frames to be written
	tail   **out        // where the next one goes
	woff   int          // bytes of first, with its header, that are written
	broken error        // why nothing more can be written

	// Bursts: see burst.go.
	begun   time.Duration // when the program has started a message to it last, since epoch
	inBurst int           // messages of the program that followed each other closely
	kept    int           // frames that keep has queued since the last flush

	// Attempts to make a link, silence, and the end.
	trying      bool        // attempts go on
	why         error       // of the last one that failed, or why the link has ended
	quiet, mute int         // ticks in which nothing has come, or been written
	copying     int         // ticks in which a lost rank has not ended a copy
	over        atomic.Bool // it has left, or is lost and its link closed; for readers without the lock
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
	p.link, p.broken = l, nil
	p.limit(3 * p.e.life.limit / 2) // later than the heartbeats, whose error says more
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
		if err != nil && p.gone() {
			p.mem.Abandon(p)
		} else if err != nil {
			p.wrong(err)
		}
		moved = moved || did
	}
	if p.broken != nil && !p.gone() {
		// The peer has closed its end. If it did so in good order its goodbye can be read, behind all that it
		// has sent.
		p.drain(drainLost)
		if moved = true; p.broken != nil {
			p.ended(p.broken)
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
	case err == nil || p.gone():
		return moved || short
	case p.bad != nil || errors.Is(err, frame.ErrFrame):
		p.wrong(err)
	default:
		p.ended(err)
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

// wrong marks a rank lost that sent an invalid frame: the start of the next frame on its link is unknown. The other
// links are still valid.
func (p *peer) wrong(err error) {
	if errors.Is(err, frame.ErrSum) {
		p.e.suspect(p.rank, "rank %d is lost: the data that rank %d received from it were changed on the way: %v", p.rank, p.e.me, err)
	} else {
		p.e.suspect(p.rank, "rank %d is lost: rank %d received an invalid frame from it: %v", p.rank, p.e.me, err)
	}
	p.cut()
}

// ended is called when nothing more can be read: err is why, io.EOF for the end of the stream.
func (p *peer) ended(err error) {
	if p.gone() {
		return
	}
	if p.why = err; p.broken != nil && !errors.Is(p.broken, syscall.EPIPE) { // which says no more than the end of the stream
		p.why = p.broken // a system reports a reset once
	}
	p.link.Close()
	p.link, p.broken = nil, nil
	if p.in.Left, p.in.Head.Kind = 0, 0; p.state.Link == membership.Up {
		p.forget()
	}
	p.e.m.LinkEnded(p.rank)
}

// gone reports whether nothing more comes from the peer.
func (p *peer) gone() bool { return p.state.Link == membership.Ended }

// ends reports whether what is queued now would end with the link. What is queued for a link that is not confirmed goes
// over the next one.
func (p *peer) ends() bool { return p.gone() || p.broken != nil && p.state.Link == membership.Up }

// cut gives the link up.
func (p *peer) cut() {
	p.e.m.Cut(p.rank)
	p.forget()
	if p.link != nil {
		p.link.Close()
		p.link = nil
	}
}

// forget drops what is not written and what has come in part: the caller ends the operations.
func (p *peer) forget() {
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
	if p.ends() {
		return o == nil // an operation ends with its peer
	}
	if p.link == nil {
		p.e.m.Need(p.rank)
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
			p.fails(err)
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
	if p.ends() {
		return
	}
	w := p.e.outs.get()
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

// fails notes that nothing can be written any more. The reason may arrive on the other direction.
func (p *peer) fails(err error) {
	p.broken = err
	p.e.wakeLeader()
}

// waits reports whether there is something to be written.
func (p *peer) waits() bool {
	return p.state.Link != membership.Fresh && (p.first != nil || p.link != nil && p.link.Holds())
}

// flush writes queued frames as far as the link takes them, and reports whether it took any.
func (p *peer) flush() bool {
	if p.broken != nil {
		return false
	}
	moved := false
	p.kept = 0
	if p.link.Holds() {
		var err error
		if moved, err = p.link.Flush(); err != nil {
			p.fails(err)
			return true
		}
	}
	for turns := 0; turns < writeMost; {
		w := p.first
		if w == nil || p.broken != nil {
			return moved
		}
		if l, ok := p.link.(Corker); ok && w.next != nil && p.woff == 0 && l.Cork(&w.head, w.body) {
			moved = true
			p.wrote(w)
			continue
		}
		n, err := p.link.Write(&w.head, w.body, p.woff)
		if err != nil {
			p.fails(err)
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
	p.e.outs.put(w)
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

// Begin implements frame.Receiver: it decides where the payload of a frame goes.
func (p *peer) Begin(a *frame.Arrival) error {
	p.bad = p.begin(a, &a.Head)
	return p.bad
}

func (p *peer) begin(a *frame.Arrival, h *frame.Header) error {
	e := p.e
	switch h.Kind {
	case frame.Eager:
		if a.Left > EagerMax {
			return fmt.Errorf("an eager message of %d bytes, above %d", a.Left, EagerMax)
		}
		if p.state.Link == membership.Fresh { // a receive that waits for the rest would not end with the link
			return errors.New("a message on a link that is not confirmed")
		}
		env := p.envelope(h)
		o, keep, err := p.match(env)
		switch {
		case o != nil:
			o.peer, o.env = p.rank, env
			e.put(o, opArriving)
			a.Dst = o.buf[:min(a.Left, len(o.buf))]
		case keep:
			m := e.msgs.get()
			m.size, m.buf = a.Left, e.getBuf(a.Left)
			p.msg, a.Dst = m, m.buf
		}
		return err
	case frame.Data:
		o := e.lookup(h.Token, p.rank)
		if o == nil || o.state != opReceiving {
			return nil // given up since
		}
		if h.Offset != uint64(o.at) || a.Left > o.n-o.at || a.Left == 0 && o.n > 0 {
			return fmt.Errorf("%d bytes at %d of a message of which %d of %d are here", a.Left, h.Offset, o.at, o.n)
		}
		p.op, a.Dst = o, o.place(a.Left)
	case frame.Broken, frame.Abort, frame.Lost, frame.Left:
		if a.Left > noticeMax && h.Kind != frame.Left {
			return fmt.Errorf("a notice of %d bytes, above %d", a.Left, noticeMax)
		}
		p.note = append(p.note[:0], make([]byte, a.Left)...)
		a.Dst = p.note
	default:
		if a.Left > 0 {
			return fmt.Errorf("%v with a payload", h.Kind)
		}
	}
	return nil
}

// errDead stops the reading of a link that was given up.
var errDead = errors.New("the link was given up")

// End implements frame.Receiver: it acts on a frame.
func (p *peer) End(a *frame.Arrival) error {
	if p.state.Link == membership.Fresh {
		p.taken()
	}
	p.bad = p.end(&a.Head)
	p.op, p.msg = nil, nil
	if p.bad == nil && p.gone() {
		return errDead
	}
	return p.bad
}

func (p *peer) end(h *frame.Header) error {
	e := p.e
	switch h.Kind {
	case frame.Eager:
		size := int(h.Length)
		if o := p.op; o != nil {
			e.received(o, o.env, size, min(size, len(o.buf)))
			return nil
		}
		m := p.msg
		if m == nil {
			return nil
		}
		env := p.envelope(h)
		o, keep, err := p.match(env)
		if keep {
			e.keep(m, env)
			return nil
		}
		if o != nil { // posted while it came
			e.received(o, env, size, copy(o.buf, m.buf))
		}
		e.putMsg(m)
		return err
	case frame.Data:
		if o := p.op; o != nil {
			if o.took(int(h.Length)); o.at == o.n {
				e.received(o, o.env, o.size, o.n)
			}
		}
	case frame.ReadyToSend:
		return e.onReadyToSend(p, h, msgRequested)
	case frame.Expose:
		if p.mem == nil || !p.mem.Valid(h.Token) || h.Reply+h.Length < h.Reply {
			return fmt.Errorf("an exposed message of %d bytes at %#x", h.Length, h.Reply)
		}
		return e.onReadyToSend(p, h, msgExposed)
	case frame.ClearToSend:
		return e.onClearToSend(p, h)
	case frame.Withdraw:
		e.onWithdraw(p, h)
	case frame.Withdrawn:
		if o := e.lookup(h.Token, p.rank); o != nil && o.state == opWithdrawing { // else its CTS came before
			e.finish(o, backend.Status{}, o.cause)
		}
	case frame.Broken:
		return e.onNotice(p, h, p.note)
	case frame.Closed:
		return e.onNotice(p, h, nil)
	case frame.Abort:
		e.onAbort(h.Tag, p.note)
	case frame.Lost:
		if h.Tag < 0 || int(h.Tag) >= len(e.peers) {
			return fmt.Errorf("rank %d is lost, of %d", h.Tag, len(e.peers))
		}
		e.onLoss(p.rank, int(h.Tag), backend.DecodeFault(p.note))
	case frame.Goodbye:
		e.m.Said(p.rank, h.Tag != 0)
	case frame.Left:
		return e.onLeft(p, h, p.note)
	case frame.Heartbeat:
	default:
		return fmt.Errorf("%v, which is not valid here", h.Kind)
	}
	return nil
}
