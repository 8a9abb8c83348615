package tcp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/wire"
)

const (
	eagerMax  = 64 << 10  // longest message that is sent without a rendezvous
	pieceMax  = 512 << 10 // longest payload of a frame, and of a system call
	readSize  = 64 << 10  // of a link's buffer
	readTurns = 8         // system calls on one link before the others have their turn
	noticeMax = 4 << 10   // longest text of a notice
)

// link is the connection to another rank. The engine's lock guards it.
//
// Received bytes are read into rbuf and parsed there. While a payload is arriving, dst is where its
// next bytes go, and they are read straight there, with rbuf behind for what follows.
type link struct {
	e    *engine
	peer int
	fd   int
	over stream // what carries the frames; nil if the socket does
	enc  *wire.Encoder
	dec  *wire.Decoder
	sums bool // payloads are sent with their checksums

	exposes bool // the peer may read long messages where they are
	pid     int  // of the peer, whose memory this process can read; 0 if it cannot

	rbuf     []byte
	taste    int         // how much is read into rbuf at once
	r0, r1   int         // rbuf[r0:r1] has been read and not looked at
	sum      uint32      // of the payload, as far as it has arrived, if it is checked
	head     wire.Header // of the frame whose payload is arriving
	left     int         // bytes of payload still to come
	dst      []byte      // for the next of them; what it has no room for is dropped
	op       *op         // whose payload it is, nil if it is dropped
	msg      *msg        // or an unexpected message
	note     []byte      // or the text of a notice
	exposure [exposureSize]byte

	corked      []byte // frames that wait for the next one; then they go before it
	first, last *out   // frames to be written
	begun       bool   // whead has the header of first
	whead       [wire.HeaderSize]byte
	woff        int   // bytes of first, with its header, that are in the socket
	broken      error // why nothing more can be written

	received, spoke bool // something has come, or been written, since the last tick
	quiet, mute     int  // ticks without that

	wanted      bool  // a connection exists or is being made
	asking      bool  // a goroutine makes it
	fresh       bool  // the other end has not confirmed the connection yet: frames wait
	failed      int   // connections in a row that ended before that
	gone        bool  // the hub has reported that the rank has left
	goodbyeSent bool  // this rank has said goodbye to it
	why         error // the error of the last attempt

	said bool // its goodbye has arrived
	dead bool // nothing more comes
}

// up gives a link its connection.
func (l *link) up(c *conn) {
	l.fd, l.over, l.enc, l.dec, l.sums = c.fd, c.over, c.enc, c.dec, c.sums
	if l.rbuf == nil {
		l.rbuf = make([]byte, readSize)
		l.e.open = append(l.e.open, l)
	}
	l.wanted, l.taste = true, readSize
	l.dec.Limit = pieceMax
	l.e.life.bound(l.fd)
	if l.over != nil {
		l.over.attach(l)
	}
}

// move writes and reads what is possible without waiting, and reports whether anything was.
func (l *link) move() bool {
	moved := false
	if l.waits() && l.flush() {
		moved = true
	}
	if l.pull() {
		moved = true
	}
	if l.broken != nil && !l.dead {
		// The peer has closed its end. If it did so in good order its goodbye is there to be read, behind
		// all that it has sent.
		l.drain(drainLost)
		moved = true
	}
	if l.broken != nil && !l.dead {
		l.ended(l.broken)
	}
	return moved
}

// pull reads what has arrived and acts on it.
func (l *link) pull() bool {
	moved := false
	for range readTurns {
		n, full, err := l.fill()
		switch {
		case err != nil && again(err):
			return moved
		case err != nil:
			l.ended(err)
			return true
		case n == 0:
			l.ended(nil)
			return true
		}
		moved, l.received = true, true
		if !l.parse() || !full {
			return true
		}
	}
	return moved
}

// fill reads once. full says that there may be more.
func (l *link) fill() (n int, full bool, err error) {
	if want := len(l.dst); want > 0 { // and rbuf is empty
		if want < l.left || want > pieceMax {
			want = min(want, pieceMax)
			n, err = l.read(l.dst[:want])
			if n > 0 {
				l.check(l.dst[:n])
				l.dst, l.left = l.dst[n:], l.left-n
			}
			return n, n == want, err
		}
		n, err = l.readv(l.dst, l.rbuf)
		if n > 0 {
			k := min(n, want)
			l.check(l.dst[:k])
			l.dst, l.left = l.dst[k:], l.left-k
			l.r0, l.r1 = 0, n-k
		}
		return n, n == want+len(l.rbuf), err
	}
	if l.r0 > 0 {
		l.r1 = copy(l.rbuf, l.rbuf[l.r0:l.r1])
		l.r0 = 0
	}
	room := l.rbuf[l.r1:min(l.r1+l.taste, len(l.rbuf))]
	n, err = l.read(room)
	if n > 0 {
		l.r1 += n
	}
	return n, n == len(room), err
}

// parse acts on what has been read and reports whether the link goes on.
func (l *link) parse() bool {
	for {
		if l.left > 0 {
			k := min(l.left, l.r1-l.r0)
			l.check(l.rbuf[l.r0 : l.r0+k])
			c := copy(l.dst, l.rbuf[l.r0:l.r0+k])
			l.dst = l.dst[c:]
			l.r0 += k
			l.left -= k
			if l.left > 0 {
				l.r0, l.r1 = 0, 0
				return true
			}
		}
		if l.head.Kind != 0 {
			if err := l.head.CheckSum(l.sum); err != nil {
				return l.changed(err)
			}
			if err := l.landed(); err != nil {
				return l.wrong(err)
			}
			l.head.Kind = 0
			l.op, l.msg, l.dst = nil, nil, nil
			if l.dead {
				return false
			}
		}
		if l.r1-l.r0 < wire.HeaderSize {
			if l.r0 == l.r1 {
				l.r0, l.r1 = 0, 0
			}
			return true
		}
		if err := l.dec.Decode(&l.head, (*[wire.HeaderSize]byte)(l.rbuf[l.r0:])); err != nil {
			l.head.Kind = 0
			return l.wrong(err)
		}
		l.r0 += wire.HeaderSize
		l.left, l.sum = int(l.head.Payload()), 0
		if err := l.begin(); err != nil {
			return l.wrong(err)
		}
	}
}

// wrong marks a rank that sent an invalid frame lost, rather than ending the job. The start of the next
// frame on this link is unknown, so the rank is out of reach. The other links have been checked frame by
// frame and are still valid. Whether the rank, this one, or the network is at fault does not matter for
// recovery: of two ranks that do not understand each other, one has to go.
func (l *link) wrong(err error) bool {
	l.e.suspect(l.peer, "rank %d is lost: rank %d received an invalid frame from it: %v", l.peer, l.e.me, err)
	l.cut()
	return false
}

// changed is wrong for a payload whose checksum differs. Its operation has not completed, and ends with
// the rank's loss.
func (l *link) changed(err error) bool {
	l.e.suspect(l.peer, "rank %d is lost: the data that rank %d received from it were changed on the way: %v", l.peer, l.e.me, err)
	l.cut()
	return false
}

// check takes a part of a payload into its sum.
func (l *link) check(b []byte) {
	if l.head.Flags&wire.FlagSummed != 0 {
		l.sum = wire.Sum(l.sum, b)
	}
}

// begin says where the payload of a frame goes.
func (l *link) begin() error {
	e, h := l.e, &l.head
	switch h.Kind {
	case wire.Eager:
		if l.left > eagerMax {
			return fmt.Errorf("an eager message of %d bytes, above %d", l.left, eagerMax)
		}
		env := match.Env{Ctx: h.Context, Source: int32(l.peer), Tag: h.Tag}
		if n := e.posted.TakePosted(env); n != nil {
			o := n.Owner.(*op)
			if o.foreign(l.peer) {
				e.repost(o)
				return errForeign
			}
			o.state, o.peer, o.env = opTaking, l.peer, env
			l.op, l.dst = o, o.buf[:min(l.left, len(o.buf))]
			return nil
		}
		if e.closing[h.Context] != nil {
			return nil
		}
		m := e.getMsg()
		m.size, m.buf = l.left, e.getBuf(l.left)
		l.msg, l.dst = m, m.buf
	case wire.Data:
		o := e.lookup(h.Token, l.peer)
		if o == nil || o.state != opTaking {
			return nil // given up since
		}
		if o.read {
			return fmt.Errorf("%d bytes of an exposed message that were not asked for", l.left)
		}
		if h.Offset != uint64(o.at) || l.left > o.n-o.at || l.left == 0 && o.n > 0 {
			return fmt.Errorf("%d bytes at %d of a message of which %d of %d are here", l.left, h.Offset, o.at, o.n)
		}
		l.op, l.dst = o, o.buf[o.at:o.at+l.left]
	case wire.Expose:
		if l.left != len(l.exposure) {
			return fmt.Errorf("an exposed message with %d bytes of address, want %d", l.left, len(l.exposure))
		}
		l.dst = l.exposure[:]
	case wire.Broken, wire.Abort, wire.Lost, wire.Relay:
		if l.left > noticeMax {
			return fmt.Errorf("a notice of %d bytes, above %d", l.left, noticeMax)
		}
		l.note = append(l.note[:0], make([]byte, l.left)...)
		l.dst = l.note
	default:
		if l.left > 0 {
			return fmt.Errorf("%v with a payload", h.Kind)
		}
	}
	return nil
}

// landed acts on a frame that is here as a whole.
func (l *link) landed() error {
	e, h := l.e, &l.head
	if l.fresh {
		l.taken()
	}
	switch h.Kind {
	case wire.Eager:
		env := match.Env{Ctx: h.Context, Source: int32(l.peer), Tag: h.Tag}
		size := int(h.Length)
		if o := l.op; o != nil {
			e.received(o, env, size, min(size, len(o.buf)))
			return nil
		}
		m := l.msg
		if m == nil || e.closing[h.Context] != nil {
			return nil
		}
		if c := e.comms[h.Context]; c != nil && c.RankOf(l.peer) < 0 {
			return errForeign
		}
		if n := e.posted.TakePosted(env); n != nil { // posted while it came
			o := n.Owner.(*op)
			k := copy(o.buf, m.buf)
			e.putMsg(m)
			e.received(o, env, size, k)
			return nil
		}
		e.keep(m, env)
	case wire.Data:
		if o := l.op; o != nil {
			if o.at += int(h.Length); o.at == o.n {
				e.received(o, o.env, o.size, o.n)
			}
		}
	case wire.ReadyToSend:
		return e.onReadyToSend(l, h, int(h.Length), 0)
	case wire.Expose:
		return e.onExpose(l, h)
	case wire.ClearToSend:
		return e.onClearToSend(l, h)
	case wire.Ack:
		return e.returned(l, h)
	case wire.Withdraw:
		e.onWithdraw(l, h.Token)
	case wire.Broken:
		e.onBreak(l.peer, h.Context, decodeFault(l.note))
	case wire.Closed:
		e.onClose(h.Context, l.peer)
	case wire.Abort:
		e.onAbort(h.Tag, l.note)
	case wire.Lost:
		if int(h.Tag) >= len(e.links) {
			return fmt.Errorf("rank %d is lost, of %d", h.Tag, len(e.links))
		}
		e.onLoss(l.peer, int(h.Tag), decodeFault(l.note))
	case wire.Goodbye:
		l.said = true
		e.dropLeft(l.peer)
		e.onGoodbye(l)
	case wire.Relay:
		return e.onRelay(l, h, l.note)
	case wire.Heartbeat:
	default:
		return fmt.Errorf("%v, which is not valid here", h.Kind)
	}
	return nil
}

// ended is called when nothing more can be read: err is why, nil for the end of the stream.
func (l *link) ended(err error) {
	if l.dead {
		return
	}
	if l.fresh {
		l.again()
		return
	}
	l.cut()
	switch p := l.e.peers[l.peer]; {
	case l.said || l.e.losses[l.peer] != nil:
	case err != nil:
		l.e.suspect(l.peer, "lost the connection to rank %d (%v): %v", l.peer, p, err)
	default:
		l.e.suspect(l.peer, "rank %d (%v) ended without closing its communicator", l.peer, p)
	}
}

func (p peer) String() string {
	if p.host == "" {
		return fmt.Sprintf("process %d", p.pid)
	}
	return fmt.Sprintf("process %d on %s", p.pid, p.host)
}

// forget drops what is not written and what has come in part: the operations are dropped by who
// calls.
func (l *link) forget() {
	for w := l.first; w != nil; {
		next := w.next
		if w.op != nil {
			w.op.frame = nil
		}
		l.e.putOut(w)
		w = next
	}
	l.first, l.last, l.begun, l.corked = nil, nil, false, nil
	l.r0, l.r1, l.left = 0, 0, 0
	l.head.Kind = 0
	if l.msg != nil {
		l.e.putMsg(l.msg)
	}
	l.msg, l.dst = nil, nil
}
