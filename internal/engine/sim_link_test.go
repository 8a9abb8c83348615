package engine

import (
	"errors"
	"io"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// simEnd is one end of a link of the simulation.
type simEnd interface {
	Link
	// cut ends both directions. Frames in flight still arrive, unless lost is true.
	cut(lost bool)
	inFlight() bool
}

// simLink is one end of a simulated link. Frames arrive in order, each after a delay, in pieces; the
// simulation cuts links and lets them stand still.
type simLink struct {
	s       *sim
	other   *simLink
	pending simFrame   // being written
	flight  []simFrame // from the other end, not read; the first perhaps in part
	got     int        // bytes of the first that are read
	begun   bool       // its header is
	ended   error      // after what is in flight
	closed  bool
	left    bool
	sent    int // frames; a new link has room for two
}

// simFrame is a frame in flight.
type simFrame struct {
	head frame.Header
	body []byte
	due  time.Time
}

const simRoom = 8 // frames in flight

var errReset = errors.New("simulated: connection reset")

func simPair(s *sim) (simEnd, simEnd) {
	x, y := &simLink{s: s}, &simLink{s: s}
	x.other, y.other = y, x
	return x, y
}

func (l *simLink) inFlight() bool { return len(l.flight) > 0 }

func (l *simLink) Write(h *frame.Header, body []byte, off int) (int, error) {
	s := l.s
	if l.other.closed {
		return off, errors.New("simulated: broken pipe")
	}
	if l.ended == errReset {
		return off, errReset
	}
	if off == 0 && len(l.other.flight) >= simRoom || off > 0 && s.chance(2) {
		return off, nil
	}
	if off == 0 {
		l.pending = simFrame{head: *h}
	}
	total := frame.HeaderSize + len(body)
	n := total
	if l.sent >= 2 && s.chance(4) { // a part only
		n = min(total, off+1+s.rng.IntN(total))
	}
	if k := n - frame.HeaderSize; k > len(l.pending.body) {
		l.pending.body = append(l.pending.body, body[len(l.pending.body):k]...)
	}
	if n == total {
		due := s.now.Add(time.Duration(s.rng.IntN(200)) * time.Microsecond)
		if k := len(l.other.flight); k > 0 && l.other.flight[k-1].due.After(due) {
			due = l.other.flight[k-1].due
		}
		l.pending.due = due
		l.other.flight = append(l.other.flight, l.pending)
		l.sent++
		l.pending = simFrame{}
	}
	return n, nil
}

func (l *simLink) Read(a *frame.Arrival) (moved bool, err error) {
	for range 4 {
		if len(l.flight) == 0 {
			return moved, l.ended
		}
		f := &l.flight[0]
		if f.due.After(l.s.now) {
			return moved, nil
		}
		moved = true
		if !l.begun {
			l.begun, l.got = true, 0
			a.Head, a.Left = f.head, int(f.head.Payload())
			if err := a.Begin(); err != nil {
				return true, err
			}
		}
		n := len(f.body) - l.got
		if n > 1 && l.s.chance(4) {
			n = 1 + l.s.rng.IntN(n)
		}
		a.Take(f.body[l.got : l.got+n])
		if l.got += n; l.got < len(f.body) {
			return true, nil
		}
		l.begun = false
		l.flight = l.flight[1:]
		if err := a.End(); err != nil {
			return true, err
		}
		if l.closed {
			return true, nil
		}
	}
	return moved, nil
}

func (l *simLink) cut(lost bool) {
	for _, end := range []*simLink{l, l.other} {
		if end.ended != nil {
			continue
		}
		end.ended = io.EOF
		if lost {
			end.ended = errReset
			end.flight = nil
		}
	}
}

func (l *simLink) Flush() (bool, error) { return false, nil }
func (l *simLink) Holds() bool          { return false }
func (l *simLink) EagerMax() int        { return 1 << 10 }
func (l *simLink) Hidden() bool         { return true }
func (l *simLink) Limit(time.Duration)  {}
func (l *simLink) Finish(bool) {
	if l.left = true; l.other.ended == nil {
		l.other.ended = io.EOF
	}
}

func (l *simLink) Unsent() int {
	if l.other.closed || l.other.ended != nil && !l.left {
		return 0
	}
	return len(l.other.flight)
}

func (l *simLink) Close() {
	if l.closed {
		return
	}
	l.closed = true
	if l.other.ended == nil {
		l.other.ended = io.EOF
	}
	l.flight = nil
}
