package tcp

import (
	"bytes"
	"slices"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// A goodbye ends a connection with a rank that is lost for this one: it sends the rest of the current
// frame, and the notice that the rank is lost. A rank that was stopped finds the notice when it goes on.
// Without it, it would declare this rank lost because the connection ended.
type goodbye struct {
	l     *link // holds the connection; what arrives on it is ignored
	rest  []byte
	ticks int // left
}

// closeWith closes a link, with a notice to the other end that its rank is lost.
func (l *link) closeWith(h *wire.Header, body []byte) {
	if l.dead || l.fd < 0 || l.fresh || l.broken != nil {
		l.cut()
		return
	}
	e := l.e
	rest := bytes.Clone(l.corked)
	if w := l.first; w != nil && l.begun {
		rest = append(rest, l.whead[min(l.woff, wire.HeaderSize):]...)
		rest = append(rest, w.body[max(l.woff-wire.HeaderSize, 0):]...)
	}
	l.encode(h, body)
	rest = append(append(rest, l.whead[:]...), body...)
	f := &goodbye{l: &link{e: e, peer: l.peer, fd: l.fd, over: l.over, dead: true}, rest: rest, ticks: e.life.ticks}
	if f.l.over != nil {
		f.l.over.attach(f.l)
	}
	l.fd = -1
	l.cut()
	if e.life.limit > 0 {
		sockLimit(f.l.fd, 3*e.life.limit) // it has been counting since the other end stopped reading
	}
	if !f.said() {
		e.goodbyes = append(e.goodbyes, f)
	}
}

// said writes as much as there is room for, and reports whether the connection is closed. It is closed
// when the other end's system has everything. Until then received bytes are dropped, because a socket
// that is closed with unread bytes discards those it has not sent.
func (f *goodbye) said() bool {
	l := f.l
	buf := make([]byte, readSize)
	for range readTurns {
		if n, err := sockRead(l.fd, buf); n <= 0 || err != nil {
			break
		}
	}
	var err error
	for err == nil && len(f.rest) > 0 {
		var n int
		n, err = l.put(f.rest)
		f.rest = f.rest[max(n, 0):]
	}
	if err == nil && l.over != nil && l.over.keeps() {
		_, err = l.over.push()
	}
	waits := len(f.rest) > 0 || l.over != nil && l.over.keeps() || sockUnsent(l.fd) > 0
	if f.ticks--; f.ticks > 0 && waits && (err == nil || again(err)) {
		return false
	}
	f.end()
	return true
}

func (f *goodbye) end() {
	sockClose(f.l.fd)
	f.l.fd = -1
}

// sendGoodbyes is called once each tick.
func (e *engine) sendGoodbyes() {
	e.goodbyes = slices.DeleteFunc(e.goodbyes, (*goodbye).said)
}
