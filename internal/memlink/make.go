package memlink

import (
	"encoding/binary"
	"fmt"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Two ranks that never send each other a message have no rings. The memory of a pair is allocated when one of its ranks
// sends the first message, or when both do at once, which has the same effect. Until then a rank posts its notices and
// heartbeats in its mailbox, a small part of memory that the other reads. Each direction has these states:
//
//	apart → made (the writer has allocated the rings, or has heard that the other has, and says mailboxMade)
//	made  → heard (the reader has seen mailboxMade, and has then found the mailbox empty)
//
// While a direction is apart, the ring is none: the writer finds it full and the reader finds it empty. So the fast
// paths ask nothing, and what they cannot do goes through Write and Read, which look at the mailboxes.
//
// Invariant: a rank touches the rings only after it has allocated them or has heard from the other that it has. The
// frames in a mailbox come before those in the ring, because a rank posts nothing after mailboxMade. A rank that finds a
// mailbox and a ring empty after it has heard that the other has left, or ended the link or itself, has read all frames.
const (
	mailboxMade = 1 << iota
	mailboxLeft // the rank has left the job in good order
	mailboxGone // the rank has ended the link otherwise
)

// MailboxSize is the length of a Mailbox in bytes.
const MailboxSize = 512

// Mailbox is what a rank tells another one without rings. The other one writes taken, and only that.
type Mailbox struct {
	put   word.Uint64 // bytes of data posted
	taken word.Uint64 // of these
	state word.Uint32
	data  [MailboxSize - 20]byte
}

// noticeHead is the length of a frame in a mailbox without its text: the kind, the length of the text, the communicator
// and the tag.
const noticeHead = 12

// posted reports whether there is a frame that was not taken.
func (d *Mailbox) posted() bool { return d.put.Load() != d.taken.Load() }

// at returns one byte of the data, which is used as a ring.
func (d *Mailbox) at(i uint64) []byte {
	i %= uint64(len(d.data))
	return d.data[i : i+1]
}

// post leaves a frame in the own mailbox, unless there is no room. A text that is too long for a mailbox is cut. A
// heartbeat adds nothing to what the peer has not taken.
func (l *Link) post(h *frame.Header, body []byte) (n int) {
	d, le := l.cfg.Says, binary.LittleEndian
	put := d.put.Load()
	used := int(put - d.taken.Load())
	if h.Kind == frame.Heartbeat && used > 0 {
		return frame.HeaderSize
	}
	text := body[:min(len(body), len(d.data)-noticeHead)]
	b := le.AppendUint32(nil, uint32(h.Kind)|uint32(len(text))<<8)
	b = append(le.AppendUint32(le.AppendUint32(b, h.Context), uint32(h.Tag)), text...)
	if used+len(b) > len(d.data) {
		return 0
	}
	for i := range b {
		to := d.at(put + uint64(i))
		word.Writes(to)
		to[0] = b[i]
	}
	d.put.Store(put + uint64(len(b)))
	l.Ring()
	return frame.HeaderSize + len(body)
}

// fetch takes frames from the peer's mailbox, as many as Read takes from a ring.
func (l *Link) fetch(a *frame.Arrival) (err error) {
	for n := 0; n < readMost && err == nil && l.cfg.Hears.posted(); n++ {
		err = l.fetchOne(a)
	}
	return err
}

// fetchOne takes a frame from the peer's mailbox.
func (l *Link) fetchOne(a *frame.Arrival) error {
	d, le := l.cfg.Hears, binary.LittleEndian
	taken := d.taken.Load()
	b := make([]byte, min(d.put.Load()-taken, uint64(len(d.data))))
	for i := range b {
		from := d.at(taken + uint64(i))
		word.Reads(from)
		b[i] = from[0]
	}
	n := noticeHead
	if len(b) >= n {
		n += int(le.Uint32(b) >> 8)
	}
	if len(b) < n {
		return fmt.Errorf("%w: %d of %d bytes are in the mailbox", frame.ErrFrame, len(b), n)
	}
	d.taken.Store(taken + uint64(n))
	l.Ring() // it may wait for room
	a.Left = n - noticeHead
	a.Head = frame.Header{Kind: frame.Kind(b[0]), Context: le.Uint32(b[4:]), Tag: int32(le.Uint32(b[8:])), Length: uint64(a.Left)}
	if err := a.Begin(); err != nil {
		return err
	}
	a.Take(b[noticeHead:n])
	return a.End()
}

// none is the ring of a direction that is apart. Nobody writes it.
var none ring

// Make gives the two ranks rings, if they have none. It comes before the first message.
func (l *Link) Make() error {
	if l.made {
		return nil
	}
	if err := l.cfg.Make(); err != nil {
		return err
	}
	l.open()
	return nil
}

// open begins to write to the ring, which is allocated.
func (l *Link) open() {
	if !l.made {
		l.made, l.out.tail, l.out.r = true, 0, shmem.At[ring](l.cfg.Segment, l.cfg.Out)
		l.cfg.Says.state.Or(mailboxMade)
	}
}

// hear begins to read the ring of the peer.
func (l *Link) hear() { l.heard, l.in.r = true, shmem.At[ring](l.cfg.Segment, l.cfg.In) }
