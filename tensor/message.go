package tensor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/datatype"
)

// A message is an envelope, sent under the user's tag on a communicator for envelopes. A payload
// that does not fit into the envelope follows on another communicator: in pieces of one length and
// a shorter last one, under a tag that identifies the message between the two ranks.
//
//	0  version        4  length of pieces, 32 bits      12  shape, 64 bits each
//	1  flags          8  the payload's tag, 32 bits      …  the payload, if inside
//	2  kind
//	3  dimensions
//
// Numbers are little endian. The payload has the processor's byte order.

const (
	envelopeVersion = 1
	envelopeInside  = 1 << 0 // flag: the payload is inside
	envelopeHead    = 12     // bytes before the shape
	envelopeMost    = 1 << 10

	// maxDims is the most dimensions of a tensor in a message.
	maxDims = 32
)

// envelope is the decoded envelope of a message, with the memory it is received in or sent from.
type envelope struct {
	peer, tag int  // of the message
	out       bool // it is sent
	at        int  // where it is in messages.inFlight

	kind   backend.Kind
	dims   int
	lens   [maxDims]int
	size   int    // bytes of the payload
	piece  int    // bytes of a piece
	number int    // the payload's tag
	inside []byte // the payload if it is inside; nil otherwise

	b [envelopeMost]byte
}

var envelopes = sync.Pool{New: func() any { return new(envelope) }}

func newEnvelope() *envelope { return envelopes.Get().(*envelope) }

// newSend returns the envelope of a message to dest.
func newSend(dest, tag int) *envelope {
	l := newEnvelope()
	l.peer, l.tag, l.number, l.out = dest, tag, 0, true
	return l
}

// free puts back an envelope in whose memory nothing can arrive any more.
func (l *envelope) free() {
	l.inside = nil
	envelopes.Put(l)
}

// shape returns the shape of the tensor.
func (l *envelope) shape() []int { return l.lens[:l.dims] }

// fits reports whether a payload goes into the envelope: it is short and on the processor. A
// payload on a device would delay the envelope, and all envelopes behind it, until the device is
// ready.
func (p *untyped) fits() bool {
	return p.size == 0 || p.dev == nil && envelopeHead+8*len(p.shape)+p.size <= envelopeMost
}

// write encodes the envelope of p and returns it.
func (l *envelope) write(p *untyped, piece int) []byte {
	b := append(l.b[:0], envelopeVersion, 0, byte(p.kind), byte(len(p.shape)))
	b = binary.LittleEndian.AppendUint32(b, uint32(piece))
	b = binary.LittleEndian.AppendUint32(b, uint32(l.number))
	for _, n := range p.shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if p.fits() {
		b[1] |= envelopeInside
		b = append(b, p.host...)
	}
	return b
}

// read decodes the first n bytes of the envelope's memory, which may hold anything.
func (l *envelope) read(n, maxTag int) error {
	bad := func(format string, facts ...any) error {
		return fault(cohort.ErrInternal, "malformed envelope:  "+format, facts...)
	}
	if n < envelopeHead || n > len(l.b) {
		return bad("%d bytes", n)
	}
	b := l.b[:n]
	if b[0] != envelopeVersion {
		return fault(cohort.ErrMismatch, "a message has envelope version %d, want %d; run the same program on all ranks", b[0], envelopeVersion)
	}
	flags, kind, dims := b[1], backend.Kind(b[2]), int(b[3])
	piece, number := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	switch {
	case flags&^envelopeInside != 0:
		return bad("flags %#x", flags)
	case kind < backend.Int8 || kind > backend.Complex128:
		return bad("elements of kind %d", kind)
	case dims > maxDims || envelopeHead+8*dims > n:
		return bad("%d dimensions in %d bytes", dims, n)
	case piece < chunkLeast || piece > chunkMost:
		return bad("pieces of %d bytes", piece)
	case uint64(number) > uint64(maxTag):
		return bad("tag %d of the payload", number)
	}
	size := datatype.Number(kind).Size
	rest := b[envelopeHead:]
	for i := range dims {
		d := binary.LittleEndian.Uint64(rest)
		if d > math.MaxInt {
			return bad("length %d", d)
		}
		l.lens[i], rest = int(d), rest[8:]
	}
	elems, err := count(l.lens[:dims], size)
	if err != nil {
		return bad("%v", err)
	}
	size *= elems
	inside := flags&envelopeInside != 0
	if inside != (size == 0 || len(rest) > 0) || inside && len(rest) != size {
		return bad("%d of %d payload bytes inside", len(rest), size)
	}
	l.kind, l.dims, l.size, l.piece, l.number, l.inside = kind, dims, size, int(piece), int(number), nil
	if inside {
		l.inside = rest
	}
	return nil
}

// matches returns an error if a message does not have the type and shape of the receiving tensor.
func (l *envelope) matches(p *untyped) error {
	if l.kind == p.kind && slices.Equal(l.shape(), p.shape) {
		return nil
	}
	return fault(cohort.ErrMismatch, "the message is %v%v, but the tensor is %v%v; the message was dropped",
		l.kind, l.shape(), p.kind, slices.Clone(p.shape))
}

// untyped is a tensor of a message, without its type.
type untyped struct {
	kind   backend.Kind
	shape  []int
	size   int // bytes
	host   []byte
	dev    *Device // nil: the processor
	at     accel.Address
	stream accel.Stream
	inUse  bool // the library may still be writing to it although the receive failed
}

// untyped returns a tensor for a message.
func (t *Tensor[T]) untyped() (untyped, error) {
	if err := t.needContiguous(); err != nil {
		return untyped{kind: kindOf[T]()}, err
	}
	if len(t.shape) > maxDims {
		return untyped{}, fault(cohort.ErrCount, "the tensor has %d dimensions; messages take at most %d", len(t.shape), maxDims)
	}
	p := untyped{kind: kindOf[T](), shape: t.shape, size: t.size(), dev: t.dev, at: t.at, stream: t.stream}
	if t.dev == nil {
		p.host = t.bytes()
	}
	return p, nil
}

func (p *untyped) String() string { return fmt.Sprintf("%v%v on %v", p.kind, p.shape, p.dev) }

// named adds the tensor to an error, and removes the underlying operation, which means nothing to
// the user.
func (p *untyped) named(err error) error { return fmt.Errorf("%s: %w", p.String(), plain(err)) }

// plain returns the cause of an underlying operation's error.
func plain(err error) error {
	var e *cohort.OpError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// opError returns the error of an operation on messages. It names the user's operation, not the
// underlying one, whose tag may differ. It returns nil for nil.
func (c *Comm) opError(op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	e := &cohort.OpError{Op: op, Rank: cohort.Undefined, Peer: peer, Tag: tag, Err: plain(err)}
	if c != nil && c.core != nil {
		e.Comm, e.Rank = c.head.Name(), c.head.Rank()
	}
	return fmt.Errorf("tensor: %w", e)
}

// messaging returns the state of messages, and err unless c is nil.
func (c *Comm) messaging(err error) (*messages, error) {
	if c == nil || c.core == nil {
		return nil, fault(cohort.ErrComm, "the communicator is nil")
	}
	return &c.core.messages, err
}
