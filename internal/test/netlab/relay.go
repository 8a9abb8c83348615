package netlab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Action is a fault's effect on one direction of a connection.
type Action uint8

// The actions.
const (
	Flip      Action = iota // bit N%8 of byte At is inverted
	Drop                    // N bytes from At on are dropped
	Duplicate               // the last N bytes before At are repeated
	Pause                   // nothing is forwarded for the time For
	Silence                 // nothing is forwarded any more; both connections stay open
	End                     // the stream ends there (FIN); later bytes are dropped
	Reset                   // both connections are reset there
)

var actionNames = [...]string{"flip", "drop", "duplicate", "pause", "silence", "end", "reset"}

// String implements fmt.Stringer.
func (a Action) String() string { return actionNames[a] }

// A Fault happens once, when At bytes have passed in its direction.
type Fault struct {
	Do  Action
	At  int64 // bytes of the direction, as its sender sent them
	N   int
	For time.Duration
}

// String implements fmt.Stringer.
func (f Fault) String() string { return fmt.Sprintf("%v %d at %d", f.Do, f.N, f.At) }

// A Plan describes one direction. The order of its faults does not matter.
type Plan struct {
	Faults []Fault
	Chunk  int // most bytes forwarded at once; 0 means 64 KiB
}

// A Joint is a pair of joined connections.
type Joint struct {
	conns [2]*net.TCPConn
	mu    sync.Mutex
	hit   int
	over  chan struct{}
	once  sync.Once
	work  sync.WaitGroup
}

// Relay joins two connections and takes them over. It forwards from a to b by the first plan, and from b
// to a by the second. The end of a stream is forwarded too.
func Relay(a, b *net.TCPConn, ab, ba Plan) *Joint {
	j := &Joint{conns: [2]*net.TCPConn{a, b}, over: make(chan struct{})}
	j.work.Go(func() { j.pass(a, b, ab) })
	j.work.Go(func() { j.pass(b, a, ba) })
	return j
}

// Hit returns how many faults have occurred.
func (j *Joint) Hit() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hit
}

// Close ends both connections and waits for the relay to end.
func (j *Joint) Close() {
	j.once.Do(func() { close(j.over) })
	for _, c := range j.conns {
		c.Close()
	}
	j.work.Wait()
}

// pass carries one direction.
//
//  1. Up to the next fault what comes is passed on.
//  2. There the fault happens, and from there it goes on, if it does.
func (j *Joint) pass(from, to *net.TCPConn, p Plan) {
	faults := slices.Clone(p.Faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return int(max(min(a.At-b.At, 1), -1)) })
	if p.Chunk == 0 {
		p.Chunk = 64 << 10
	}
	b := make([]byte, p.Chunk)
	var last []byte // the bytes before at, for Duplicate
	at, skip, flip := int64(0), 0, -1
	for {
		for len(faults) > 0 && faults[0].At <= at {
			f := faults[0]
			faults = faults[1:]
			j.mu.Lock()
			j.hit++
			j.mu.Unlock()
			switch f.Do {
			case Flip:
				flip = f.N % 8
			case Drop:
				skip += f.N
			case Duplicate:
				if _, err := to.Write(last[max(len(last)-f.N, 0):]); err != nil {
					from.CloseRead()
					return
				}
			case Pause:
				select {
				case <-time.After(f.For):
				case <-j.over:
				}
			case Silence:
				<-j.over
				return
			case End:
				to.CloseWrite()
				io.Copy(io.Discard, from)
				return
			case Reset:
				for _, c := range j.conns {
					reset(c)
				}
				return
			}
		}
		room := int64(len(b))
		if len(faults) > 0 {
			room = min(room, faults[0].At-at)
		}
		if flip >= 0 {
			room = 1
		}
		if skip > 0 {
			room = min(room, int64(skip))
		}
		n, err := from.Read(b[:room])
		at += int64(n)
		switch piece := b[:n]; {
		case n == 0:
		case skip > 0:
			skip -= n
		default:
			if flip >= 0 {
				piece[0] ^= 1 << flip
				flip = -1
			}
			last = append(last, piece...)
			last = last[max(len(last)-64<<10, 0):]
			if _, werr := to.Write(piece); werr != nil {
				// The reader has gone: the writer is to learn of it as it would without a relay.
				reset(from)
				return
			}
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			var hard net.Error
			if errors.As(err, &hard) { // a reset, and no end: pass it on
				reset(to)
				return
			}
			to.CloseWrite()
			return
		}
	}
}

func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// Bent returns the two ends of a connection over the loopback interface with a relay in the middle.
func Bent(ab, ba Plan) (a, b *net.TCPConn, j *Joint, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, nil, err
	}
	defer l.Close()
	var conns [4]*net.TCPConn // a and its relay's end, the other one and b
	defer func() {
		if err != nil {
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
		}
	}()
	for i := range 2 {
		if conns[2*i], err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
			return nil, nil, nil, err
		}
		for { // another process may have dialed
			if conns[2*i+1], err = l.AcceptTCP(); err != nil {
				return nil, nil, nil, err
			}
			if conns[2*i+1].RemoteAddr().String() == conns[2*i].LocalAddr().String() {
				break
			}
			conns[2*i+1].Close()
		}
	}
	return conns[0], conns[2], Relay(conns[1], conns[3], ab, ba), nil
}
