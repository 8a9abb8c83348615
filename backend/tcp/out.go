package tcp

import (
	"bytes"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// out is a frame that waits to be written, the first of a queue perhaps in part.
type out struct {
	next *out
	head wire.Header
	body []byte
	op   *op // whose frame it is; nil for none
}

const (
	joinMax   = 2 << 10 // payloads up to this are copied behind their header, longer ones gathered
	writeMost = 4       // frames written to one link before the others have their turn
)

// emit writes a frame, or as much as the socket takes and queues the rest for flush. It reports
// whether all is written, or never will be.
func (l *link) emit(h *wire.Header, body []byte, o *op) bool {
	if l.dead || l.broken != nil {
		return o == nil // an operation ends with its peer
	}
	if l.fd < 0 {
		l.e.need(l)
	}
	if l.first == nil && l.fd >= 0 && !l.fresh {
		l.encode(h, body)
		n, err := l.write(body, 0)
		if n == wire.HeaderSize+len(body) {
			return true
		}
		if err != nil && !again(err) {
			l.fails(err)
			return o == nil
		}
		l.begun, l.woff = true, n
	}
	l.queue(h, body, o)
	return false
}

// encode makes the header of a frame, with the sum of its payload if that is wanted.
func (l *link) encode(h *wire.Header, body []byte) {
	if l.sums && len(body) > 0 {
		h.Flags |= wire.FlagSummed
		h.Sum = wire.Sum(0, body)
	}
	l.enc.Encode(&l.whead, h)
}

// queue leaves a frame to flush.
func (l *link) queue(h *wire.Header, body []byte, o *op) {
	if l.dead || l.broken != nil {
		return
	}
	w := l.e.getOut()
	w.head, w.body, w.op = *h, body, o
	if o != nil {
		o.frame = w
	}
	if l.first == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.e.wakeLeader() // to look for room in the socket
}

// fails notes that nothing can be written any more. The reason may arrive on the other direction.
func (l *link) fails(err error) {
	l.broken = err
	l.e.wakeLeader()
}

// waits reports whether there is something to be written.
func (l *link) waits() bool {
	return !l.fresh && (l.first != nil || len(l.corked) > 0 || l.over != nil && l.over.keeps())
}

// write writes a frame whose header is in whead, from offset off on, and before it what was kept
// back: nothing if off is above 0. It returns how many bytes of the frame have been written.
func (l *link) write(body []byte, off int) (int, error) {
	var n int
	var err error
	l.spoke = true
	switch {
	case len(l.corked) > 0:
		b := append(append(l.e.join[:0], l.corked...), l.whead[:]...)
		if len(body) <= joinMax {
			n, err = l.put(append(b, body...))
		} else {
			n, err = l.putv(b, body)
		}
		return max(l.uncorked(n), 0), err
	case off >= wire.HeaderSize:
		rest := body[off-wire.HeaderSize:]
		n, err = l.put(rest)
	case len(body) == 0:
		n, err = l.put(l.whead[off:])
	case len(body) <= joinMax:
		b := append(append(l.e.join[:0], l.whead[off:]...), body...)
		n, err = l.put(b)
	default:
		n, err = l.putv(l.whead[off:], body)
	}
	return off + max(n, 0), err
}

// uncorked notes that n bytes have been written, and returns how many of them are not of what was
// kept back.
func (l *link) uncorked(n int) int {
	k := min(max(n, 0), len(l.corked))
	l.corked = l.corked[:copy(l.corked, l.corked[k:])]
	return n - k
}

// flush writes queued frames as far as the socket takes them, and reports whether it took any.
func (l *link) flush() bool {
	moved := false
	if l.over != nil && l.broken == nil {
		var err error
		if moved, err = l.over.push(); err != nil {
			l.fails(err)
			return true
		}
	}
	if l.first == nil && len(l.corked) > 0 && l.broken == nil {
		n, err := l.put(l.corked)
		if err != nil && !again(err) {
			l.fails(err)
			return true
		}
		moved = l.uncorked(n) < n || moved
	}
	for range writeMost {
		w := l.first
		if w == nil || l.broken != nil {
			return moved
		}
		if !l.begun {
			l.encode(&w.head, w.body)
			l.begun, l.woff = true, 0
		}
		n, err := l.write(w.body, l.woff)
		if err != nil && !again(err) {
			l.fails(err)
			return true
		}
		if n > l.woff {
			moved = true
		}
		l.woff = n
		if n < wire.HeaderSize+len(w.body) {
			return moved
		}
		l.unlink(w)
		o, kind, k := w.op, w.head.Kind, len(w.body)
		l.e.putOut(w)
		if o != nil {
			o.frame = nil
			l.e.sent(l, o, kind, k)
		}
	}
	return moved
}

// unlink takes a frame out of the queue.
func (l *link) unlink(w *out) {
	if l.first == w {
		l.first, l.begun = w.next, false
		if l.first == nil {
			l.last = nil
		}
		return
	}
	for p := l.first; p != nil; p = p.next {
		if p.next == w {
			p.next = w.next
			if l.last == w {
				l.last = p
			}
			return
		}
	}
}

// started reports whether a part of w may be in the socket already.
func (l *link) started(w *out) bool { return l.first == w && l.begun }

// detach makes an operation's queued frame, if it has one, independent of the user's buffer: it is
// removed or, if it is partly sent, copied.
func (l *link) detach(o *op) {
	w := o.frame
	if w == nil {
		return
	}
	o.frame = nil
	if l.started(w) {
		w.body, w.op = bytes.Clone(w.body), nil
		return
	}
	l.unlink(w)
	l.e.putOut(w)
}

func (e *engine) getOut() *out {
	if n := len(e.freeOut); n > 0 {
		w := e.freeOut[n-1]
		e.freeOut = e.freeOut[:n-1]
		return w
	}
	return &out{}
}

func (e *engine) putOut(w *out) {
	*w = out{}
	e.freeOut = append(e.freeOut, w)
}
