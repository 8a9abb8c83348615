package tensor

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// A message is an envelope, on a communicator for these, under the user's tag; and what does not fit
// into it, on another one: pieces of one length and a shorter last one, one after the other, under a tag
// that is the message's own between the two ranks.
//
//	0  version        4  length of pieces, 32 bits      12  shape, 64 bits each
//	1  flags          8  the payload's tag, 32 bits      …  the payload, if it is inside
//	2  kind
//	3  dimensions
//
// Numbers are little endian. The payload is as the processor has it.

const (
	envelopeVersion = 1
	envelopeInside  = 1 << 0 // the flag of a payload that is inside
	envelopeHead    = 12     // bytes before the shape
	envelopeMost    = 1 << 10

	// maxDims is how many dimensions a tensor in a message has at most.
	maxDims = 32
)

// sizes has how many bytes an element of a kind has; 0: not one of a tensor.
var sizes = [256]uint8{
	backend.Int8: 1, backend.Int16: 2, backend.Int32: 4, backend.Int64: 8,
	backend.Uint8: 1, backend.Uint16: 2, backend.Uint32: 4, backend.Uint64: 8,
	backend.Float16: 2, backend.BFloat16: 2, backend.Float32: 4, backend.Float64: 8,
	backend.Complex64: 8, backend.Complex128: 16,
}

// letter is an envelope, and the memory it arrives in or is sent from.
type letter struct {
	source, tag int // of the message; before it has come, what is asked for

	kind   backend.Kind
	dims   int
	lens   [maxDims]int
	size   int    // bytes of the payload
	piece  int    // bytes of a piece
	number int    // the payload's tag
	inside []byte // the payload, if it is inside: not nil then

	b [envelopeMost]byte
}

var letters = sync.Pool{New: func() any { return new(letter) }}

func newLetter() *letter { return letters.Get().(*letter) }

// free gives a letter back, in whose memory nothing can arrive any more.
func (l *letter) free() {
	l.inside = nil
	letters.Put(l)
}

// shape returns the shape of the tensor.
func (l *letter) shape() []int { return l.lens[:l.dims] }

// fits reports whether a payload goes into the envelope: a short one that is the processor's. A device's
// does not: the envelope would have to wait until the device is so far, and those behind it with it.
func (p *parcel) fits() bool {
	return p.size == 0 || p.dev == nil && envelopeHead+8*len(p.shape)+p.size <= envelopeMost
}

// write makes the envelope of p, and returns it.
func (l *letter) write(p *parcel, piece, number int) []byte {
	b := append(l.b[:0], envelopeVersion, 0, byte(p.kind), byte(len(p.shape)))
	b = binary.LittleEndian.AppendUint32(b, uint32(piece))
	b = binary.LittleEndian.AppendUint32(b, uint32(number))
	for _, n := range p.shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	if p.fits() {
		b[1] |= envelopeInside
		b = append(b, p.host...)
	}
	return b
}

// read takes in the first n bytes of the letter's memory, from anybody.
func (l *letter) read(n, maxTag int) error {
	bad := func(format string, facts ...any) error {
		return fault(cohort.ErrInternal, "the envelope of a message is wrong: "+format, facts...)
	}
	if n < envelopeHead || n > len(l.b) {
		return bad("%d bytes", n)
	}
	b := l.b[:n]
	if b[0] != envelopeVersion {
		return fault(cohort.ErrMismatch, "a message has an envelope of version %d, and this program knows %d: the ranks' programs differ", b[0], envelopeVersion)
	}
	flags, kind, dims := b[1], backend.Kind(b[2]), int(b[3])
	piece, number := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	size := int(sizes[kind])
	switch {
	case flags&^envelopeInside != 0:
		return bad("flags %#x", flags)
	case size == 0:
		return bad("elements of kind %d", kind)
	case dims > maxDims || envelopeHead+8*dims > n:
		return bad("%d dimensions in %d bytes", dims, n)
	case piece < chunkLeast || piece > chunkMost:
		return bad("pieces of %d bytes", piece)
	case uint64(number) > uint64(maxTag):
		return bad("tag %d of the payload", number)
	}
	rest := b[envelopeHead:]
	for i := range dims {
		d := binary.LittleEndian.Uint64(rest)
		if d > math.MaxInt {
			return bad("a length of %d", d)
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
		return bad("%d bytes of payload inside, of %d", len(rest), size)
	}
	l.kind, l.dims, l.size, l.piece, l.number, l.inside = kind, dims, size, int(piece), int(number), nil
	if inside {
		l.inside = rest
	}
	return nil
}

// matches returns an error if a message does not fit the tensor that it is received into.
func (l *letter) matches(p *parcel) error {
	if l.kind == p.kind && slices.Equal(l.shape(), p.shape) {
		return nil
	}
	return fault(cohort.ErrMismatch, "the message has %v%v, and the tensor to receive it is %v%v; it was dropped",
		l.kind, l.shape(), p.kind, slices.Clone(p.shape))
}
