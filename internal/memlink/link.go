package memlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	pieceMax = 32 << 10 // longest piece: the receiver copies it out while the next is copied in
	readMost = cells / 4

	kindMore  = 0x3f // a further piece of a payload
	kindProbe = 0x3e // bytes to measure how fast the rings are
	kindBits  = 58
	elemBits  = 42
	sizeMask  = 1<<elemBits - 1

	// lengthMax exceeds the length of any message: a status with a larger one would make its reader
	// allocate as much.
	lengthMax = 1 << 41
)

// Config says what a link consists of.
type Config struct {
	Segment *shmem.Segment
	Out, In int // offsets of the two directions in the segment
	Data    int // bytes of each data ring

	Says, Hears *Mailbox     // of the two ranks: see make.go
	Make        func() error // allocates both directions, whichever of the two ranks calls it; nil: they are allocated

	Peer   *shmem.Process
	Copies bool // the kernel allows copies between the two processes
	Spare  bool // each of the two ranks has a processor to itself

	Asleep *wait.Bell // armed while the peer sleeps; nil: it does not sleep
	Bell   func()     // wakes it
	Kill   func()     // ends the peer's process; nil: it cannot be ended
}

// Link is one rank's end of the link to another. The lock of its engine guards its methods, except
// Ended.
type Link struct {
	cfg   Config
	out   sender
	in    receiver
	piece int // of payload in one cell

	answer uint32 // cells that had been taken when Send sent last; the next message soon follows if there are no more

	used int // bytes of the data ring that the last message has taken, 0 after Awaits

	made  bool // this rank writes to its ring
	heard bool // the peer does

	ended word.Pointer[error] // why the peer writes no more, neither to the rings nor to buffers of this rank
	looks uint                // in vain
	left  bool                // the peer has left the job in good order
	fence word.Uint32         // see sender.publish

	mine, theirs []desc // by sender
	sends        [descs]*Transfer
	gens         [descs]uint64
	spare        []int // descs that are free
	takes        []*Transfer

	pace pace
}

// New returns one end of a link. The memory of both directions was zero when the first end was made.
func New(cfg Config) *Link {
	out, in := at(cfg.Segment, cfg.Out, cfg.Data), at(cfg.Segment, cfg.In, cfg.Data)
	l := &Link{cfg: cfg, piece: min(pieceMax, cfg.Data/4), mine: out.descs, theirs: in.descs}
	l.pace.now, l.pace.perKiB = time.Now, copyPerKiB
	l.out.data, l.in.data = out.data, in.data
	if l.out.r, l.in.r, l.out.tail = &none, &none, cells; cfg.Make == nil {
		l.open()
		l.hear()
	}
	for i := range descs {
		l.spare = append(l.spare, descs-1-i)
	}
	return l
}

// EagerMax is the longest message that goes through the rings without a rendezvous.
func (l *Link) EagerMax() int { return min(64<<10, l.cfg.Data/8) }

// prefix returns how many bytes of the header stand before the payload in a cell.
func prefix(k frame.Kind) int {
	switch k {
	case frame.ReadyToSend, frame.Expose, frame.ClearToSend, frame.Data, frame.Withdraw, frame.Withdrawn:
		return 16
	}
	return 0
}

// Write implements engine.Link. A payload is written piece by piece, each as a whole or not at all. A message comes
// after Make.
func (l *Link) Write(h *frame.Header, body []byte, off int) (int, error) {
	sent := off - frame.HeaderSize
	if off == 0 {
		if h.Length > lengthMax {
			return 0, fmt.Errorf("a message of %d bytes, above %d", h.Length, uint64(lengthMax))
		}
		c := l.out.cell()
		if c == nil && !l.made {
			return l.post(h, body), nil
		}
		if c == nil {
			return 0, nil
		}
		pre := prefix(h.Kind)
		if sent = len(body); sent <= inlineMax-pre {
			copy(c.data[pre:], body)
		} else {
			sent = min(sent, l.piece)
			room := l.out.room(sent)
			if room == nil {
				return 0, nil
			}
			l.put(room, body[:sent])
		}
		if pre > 0 {
			second := h.Reply
			if h.Kind == frame.Data {
				second = h.Offset
			}
			binary.LittleEndian.PutUint64(c.data[:], h.Token)
			binary.LittleEndian.PutUint64(c.data[8:], second)
		}
		c.ctx, c.tag = h.Context, h.Tag
		c.size = uint64(h.Kind)<<kindBits | uint64(h.Elems)<<elemBits | h.Length
		l.publish(c)
	}
	for sent < len(body) {
		n := min(len(body)-sent, l.piece)
		c := l.out.cell()
		if c == nil {
			break
		}
		room := l.out.room(n)
		if room == nil {
			break
		}
		l.put(room, body[sent:sent+n])
		c.size = kindMore<<kindBits | uint64(n)
		l.publish(c)
		sent += n
	}
	return frame.HeaderSize + sent, nil
}

// Send writes a whole eager message if that takes one cell. It is the fast path of Write, without its Ring: the
// caller looks whether the peer is Asleep after an atomic operation, such as that of an unlock. A blocking send that
// follows a message of the peer is probably an answer, for which the peer waits.
func (l *Link) Send(ctx uint32, tag int32, elems uint16, buf []byte, blocking bool) bool {
	if len(buf) > l.piece {
		return false
	}
	c := l.out.cell()
	if c == nil {
		return false
	}
	var room []byte
	if len(buf) <= inlineMax {
		copy(c.data[:], buf)
	} else {
		if room = l.out.room(len(buf)); room == nil {
			return false
		}
		l.put(room, buf)
	}
	c.ctx, c.tag = ctx, tag
	c.size = uint64(frame.Eager)<<kindBits | uint64(elems)<<elemBits | uint64(len(buf))
	l.out.publish(c)
	if l.answer == l.in.next {
		l.out.own()
	} else if blocking && l.cfg.Spare {
		shmem.Demote(room[:min(len(room), demoteMost)])
	}
	l.answer, l.used = l.in.next, len(room)
	return true
}

// demoteMost is how many bytes of an answer are demoted. Demoting takes the sender some 10 ns a line.
const demoteMost = 4 << 10

// Awaits tells the link that this rank waits for a message from the peer. The next message to the peer is often as long
// as the last one. Awaits asks for the lines of the data ring that it will take. The peer's processor still has them,
// because the peer has read what was there before.
func (l *Link) Awaits() {
	if l.used > 0 {
		l.out.ownRoom(l.used)
		l.used = 0
	}
}

// Arrived reports whether Peek finds something.
func (l *Link) Arrived() bool { return l.in.peek() != nil }

// Peek returns the envelope and the length of the next frame if it is an eager message of one cell, for
// Receive. If there is another frame, or the rest of one (a), ok is true and the size is below 0.
func (l *Link) Peek(a *frame.Arrival) (ctx uint32, tag int32, elems uint16, size int, ok bool) {
	c := l.in.peek()
	if c == nil {
		return 0, 0, 0, 0, false
	}
	n := int(c.size & sizeMask)
	if a.Left != 0 || c.size>>kindBits != uint64(frame.Eager) || n > l.piece {
		return 0, 0, 0, -1, true
	}
	return c.ctx, c.tag, uint16(c.size >> elemBits), n, true
}

// Receive takes the message that Peek has found, of size bytes, and returns how many it has copied.
func (l *Link) Receive(buf []byte, size int) (n int) {
	if size <= inlineMax {
		n = copy(buf, l.in.r.cells[l.in.next%cells].data[:size])
		size = 0
	} else {
		n = shmem.Move(buf, l.in.piece(size))
	}
	if l.in.take(size) {
		l.Ring()
	}
	return n
}

// publish hands a cell over, and wakes the peer if it sleeps. The store to fence is an exchange: the cell is visible
// before the look at who sleeps.
func (l *Link) publish(c *cell) {
	l.out.publish(c)
	l.fence.Store(0)
	l.Ring()
}

// Asleep reports whether the peer sleeps.
func (l *Link) Asleep() bool { return l.cfg.Asleep != nil && l.cfg.Asleep.Armed() }

// Ring wakes the peer if it sleeps. The news for it were published by an atomic operation, or before one.
func (l *Link) Ring() {
	if l.Asleep() {
		l.cfg.Bell()
	}
}

// Read implements engine.Link.
func (l *Link) Read(a *frame.Arrival) (moved bool, err error) {
	for range readMost {
		c := l.in.peek()
		if c == nil {
			return l.idle(a, moved)
		}
		moved = true
		size := c.size
		n := int(size & sizeMask)
		switch kind := size >> kindBits; {
		case kind == kindProbe && n == probeSize && n <= len(l.in.data)/2:
			l.probed()
		case kind == kindMore:
			if a.Left == 0 || n != min(a.Left, l.piece) {
				return true, fmt.Errorf("%w: a piece of %d bytes, where %d are missing", frame.ErrFrame, n, a.Left)
			}
			l.get(a, n)
		default:
			if n, err = l.begin(a, c, size); err != nil {
				return true, err
			}
		}
		if l.in.take(n) {
			l.Ring()
		}
		if a.Left == 0 && a.Head.Kind != 0 {
			if err := a.End(); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

// leftEvery is after how many looks in vain into a ring the mailbox is read, which says how the peer has ended the link.
const leftEvery = 64

var errGone = errors.New("the other end has given the link up")

// CheckEnd implements engine.EndChecker: the next look in vain reads the mailbox.
func (l *Link) CheckEnd() { l.looks = uint(word.Spins(leftEvery)) - 1 }

// idle is what Read does where nothing has arrived.
func (l *Link) idle(a *frame.Arrival, moved bool) (bool, error) {
	ended := l.ended.Load()
	l.looks++
	if ended == nil && l.heard && (l.left || l.looks%uint(word.Spins(leftEvery)) != 0) {
		return moved, nil
	}
	mailbox := l.cfg.Hears.state.Load()
	switch {
	case !l.heard && l.cfg.Hears.posted():
		return true, l.fetch(a)
	case !l.heard && mailbox&mailboxMade != 0:
		l.open()
		l.hear()
		return true, nil
	case l.in.peek() != nil: // it came meanwhile
		return true, nil
	case mailbox&mailboxLeft != 0 && !l.left:
		l.left = true
	case ended != nil:
		return moved, *ended
	case mailbox&mailboxGone != 0:
		return moved, errGone
	default:
		return moved, nil
	}
	a.Head, a.Left = frame.Header{Kind: frame.Goodbye}, 0
	if err := a.Begin(); err != nil {
		return true, err
	}
	return true, a.End()
}

// begin reads the first cell of a frame, and returns how much of the data ring it uses.
func (l *Link) begin(a *frame.Arrival, c *cell, size uint64) (n int, err error) {
	h := &a.Head
	*h = frame.Header{Kind: frame.Kind(size >> kindBits), Elems: uint16(size >> elemBits), Context: c.ctx, Tag: c.tag, Length: size & sizeMask}
	pre := prefix(h.Kind)
	if pre > 0 {
		h.Token = binary.LittleEndian.Uint64(c.data[:])
		second := binary.LittleEndian.Uint64(c.data[8:])
		if h.Kind == frame.Data {
			h.Offset = second
		} else {
			h.Reply = second
		}
	}
	if a.Left != 0 {
		return 0, fmt.Errorf("%w: %v, where %d bytes of the frame before are missing", frame.ErrFrame, h.Kind, a.Left)
	}
	payload := h.Payload()
	if !h.Kind.Valid() || h.Length > lengthMax || payload > frame.MaxPayload {
		return 0, fmt.Errorf("%w: %v of %d bytes", frame.ErrFrame, h.Kind, h.Length)
	}
	a.Left = int(payload)
	if err := a.Begin(); err != nil {
		return 0, err
	}
	if a.Left <= inlineMax-pre {
		a.Take(c.data[pre : pre+a.Left])
		return 0, nil
	}
	n = min(a.Left, l.piece)
	l.get(a, n)
	return n, nil
}

// The other end can read a frame as soon as it is written, so the link keeps nothing back.

// Flush implements engine.Link.
func (l *Link) Flush() (bool, error) { return false, nil }

// Holds implements engine.Link.
func (l *Link) Holds() bool { return false }

// Hidden implements engine.Link.
func (l *Link) Hidden() bool { return true }

// Unsent implements engine.Link.
func (l *Link) Unsent() int { return 0 }

// Close implements engine.Link.
func (l *Link) Close() {
	if l.cfg.Says.state.Load()&mailboxLeft == 0 {
		l.Finish(false)
	}
}

// Finish implements engine.Link. A goodbye, or the notice that the peer is lost, may have found no room.
func (l *Link) Finish(goodbye bool) {
	how := uint32(mailboxGone)
	if goodbye {
		how = mailboxLeft
	}
	l.cfg.Says.state.Or(how)
	l.Ring()
}

// PeerEnded reports whether the peer has ended the link. It reads nothing more.
func (l *Link) PeerEnded() bool { return l.cfg.Hears.state.Load()&(mailboxLeft|mailboxGone) != 0 }

// Memory returns the link itself, for the engine.
func (l *Link) Memory() *Link { return l }

// Limit implements engine.Link.
func (l *Link) Limit(time.Duration) {}

// Ended notes that the peer's process has ended, or with an error that its socket has: the process closes it when
// nothing in it copies any more. The data that the peer has written before are still read.
func (l *Link) Ended(err error) {
	if err == nil {
		err = io.EOF
	}
	l.ended.CompareAndSwap(nil, &err)
}

// dead reports whether the peer has ended.
func (l *Link) dead() bool { return l.ended.Load() != nil }
