// Package frame defines the frames that ranks exchange: their kinds, their headers, and how a header is
// encoded for a connection.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the length of a frame's header in bytes.
const HeaderSize = 40

// MaxMessage is the longest message there can be, in bytes: far beyond any memory, and small enough
// that an offset and a length can be added.
const MaxMessage = 1 << 56

// MaxPayload is the longest payload of a frame, in bytes.
const MaxPayload = 512 << 10

// MaxRanks is the largest number of ranks of a job.
const MaxRanks = 1 << 16

// Kind is the kind of a frame.
type Kind uint8

// The kinds of frames. The first group carries messages, the second ends communicators, the third
// maintains a connection, the fourth serves the start of the job, the fifth the agreement of two ranks on
// a connection's settings.
const (
	Eager       Kind = iota + 1 // a whole message: its envelope, and the payload
	ReadyToSend                 // ready to send (RTS): the envelope of a long message, its length, the sender's token; no payload
	ClearToSend                 // clear to send (CTS): the sender's token, the bytes wanted, the receiver's token; no payload
	Data                        // a piece of a message after CTS: the receiver's token, the offset, and the payload
	Withdraw                    // the sender cancels a message: the token of its RTS; tag 1: it does not wait for the answer any more
	Withdrawn                   // the answer: the message is dropped unless a CTS has gone before; the token of the RTS
	Expose                      // an RTS whose data are copied from process to process: the transfer's token (Token), the address (Reply); links through memory only

	// Tag is 0, or source*MaxRanks+destination if another rank forwards the frame.
	Broken // a communicator is broken; the payload holds the cause
	Closed // the sender has closed a communicator

	Goodbye   // the last frame of an orderly end; tag 1: of the hub
	Left      // the ranks in the payload have left; the receiver's own number there acknowledges its goodbye
	Heartbeat // shows that the rank is alive
	Abort     // a rank aborts the job: the status, and the reason as the payload
	Lost      // a rank is lost: its number, and the cause as the payload

	Join    // from a rank: its Member
	Table   // from the coordinator: all ranks
	Refused // from the coordinator: why the job fails to start; from a rank: why it cannot connect

	Agree // between two ranks, before their messages: the connection's settings

	Connected // from a rank: its connections are made; from the coordinator: those of all ranks are

	kinds // one more than the last kind
)

// Valid reports whether there is such a kind.
func (k Kind) Valid() bool { return k > 0 && k < kinds }

// String implements fmt.Stringer.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return rules[k].name
}

// The flags of a frame.
const (
	FlagSummed uint8 = 1 << iota // Sum is the checksum of the payload
)

// A Header stands before every frame. Fields that a kind has no use for are zero; the table rules
// in this package lists which kind uses which.
type Header struct {
	Kind    Kind
	Flags   uint8
	Context uint32 // the communicator
	Elems   uint16 // what the message says about its elements
	Tag     int32  // of the message; of Abort, the status; of Lost, the rank; of Left, 1 if the hub acknowledges
	Seq     uint32 // the frame's place in its direction of the connection; Encoder sets it
	Length  uint64 // of the message, the payload, or the bytes wanted, in bytes
	Token   uint64 // identifies the message at the side that the kind names
	Reply   uint64 // ClearToSend only: the receiver's token for the data
	Offset  uint64 // Data only: where in the message the payload belongs
	Sum     uint32 // Castagnoli's CRC of the payload, with FlagSummed
}

// The layout, in little-endian order. A header is checked by its last four bytes: the CRC32C of the
// 36 before, which starts from a value that the two ends and the direction have for themselves.
// Kinds have no use for all fields at once, so that three of them share eight bytes.
const (
	atKind    = 0
	atFlags   = 1
	atElems   = 2
	atContext = 4  // with atTag: Offset of Data, Reply of ClearToSend
	atTag     = 8  //
	atSeq     = 12 //
	atLength  = 16 //
	atToken   = 24 //
	atSum     = 32 //
	atCheck   = 36 //
)

const (
	uses    uint8 = 1 << iota // Context
	typed                     // Elems
	tagged                    // Tag
	sized                     // Length
	loaded                    // Length bytes of payload follow
	tokened                   // Token
	wide                      // the eight bytes of Context and Tag are Offset or Reply
)

// rules say what each kind has.
var rules = [kinds]struct {
	name  string
	has   uint8
	flags uint8
}{
	Eager:       {"eager message", uses | typed | tagged | loaded, FlagSummed},
	ReadyToSend: {"ready to send", uses | typed | tagged | sized | tokened, 0},
	ClearToSend: {"clear to send", sized | tokened | wide, 0},
	Data:        {"data", loaded | tokened | wide, FlagSummed},
	Withdraw:    {"withdraw", tagged | tokened, 0},
	Withdrawn:   {"withdrawn", tokened, 0},
	Expose:      {"exposed message", uses | typed | tagged | sized | tokened, 0},
	Broken:      {"communicator broken", uses | tagged | loaded, FlagSummed},
	Closed:      {"communicator closed", uses | tagged, 0},
	Goodbye:     {"goodbye", tagged, 0},
	Left:        {"ranks left", tagged | loaded, FlagSummed},
	Heartbeat:   {"heartbeat", 0, 0},
	Abort:       {"abort", tagged | loaded, FlagSummed},
	Lost:        {"rank lost", tagged | loaded, FlagSummed},
	Join:        {"join", loaded, FlagSummed},
	Table:       {"table of the ranks", loaded, FlagSummed},
	Refused:     {"refused", loaded, FlagSummed},
	Agree:       {"agreement", loaded, FlagSummed},
	Connected:   {"connected", 0, 0},
}

// ErrFrame is what every error of a Decoder wraps. The connection is of no more use after one:
// where the next frame begins is not known.
var ErrFrame = errors.New("malformed frame")

// ErrSum is what the error for a payload that was changed on the way wraps, besides ErrFrame.
var ErrSum = fmt.Errorf("%w: wrong checksum", ErrFrame)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum of a payload, which continues sum: 0 to begin with.
func Sum(sum uint32, payload []byte) uint32 { return crc32.Update(sum, castagnoli, payload) }

// Payload returns how many bytes of payload follow the header.
func (h *Header) Payload() uint64 {
	if h.Kind < kinds && rules[h.Kind].has&loaded != 0 {
		return h.Length
	}
	return 0
}

// An Encoder writes the headers of one direction of a connection, in the order in which they are
// sent. It is for one goroutine at a time.
type Encoder struct {
	Seed uint32 // where the checks of this direction start

	seq uint32
}

// Encode writes h, which must be valid, and sets its Seq.
func (e *Encoder) Encode(to *[HeaderSize]byte, h *Header) {
	h.Seq = e.seq
	e.seq++
	place := uint64(h.Context) | uint64(uint32(h.Tag))<<32
	switch h.Kind {
	case Data:
		place = h.Offset
	case ClearToSend:
		place = h.Reply
	}
	to[atKind], to[atFlags] = byte(h.Kind), h.Flags
	binary.LittleEndian.PutUint16(to[atElems:], h.Elems)
	binary.LittleEndian.PutUint64(to[atContext:], place)
	binary.LittleEndian.PutUint32(to[atSeq:], h.Seq)
	binary.LittleEndian.PutUint64(to[atLength:], h.Length)
	binary.LittleEndian.PutUint64(to[atToken:], h.Token)
	binary.LittleEndian.PutUint32(to[atSum:], h.Sum)
	binary.LittleEndian.PutUint32(to[atCheck:], crc32.Update(e.Seed, castagnoli, to[:atCheck]))
}

// Undo takes back the last Encode, whose header is not sent.
func (e *Encoder) Undo() { e.seq-- }

// A Decoder reads the headers of one direction of a connection, in the order in which they come. It
// is for one goroutine at a time.
type Decoder struct {
	// Limit is the longest payload that a frame may have.
	Limit uint64

	Seed uint32 // where the checks of this direction start

	seq uint32
}

// Decode reads a header into h. An error wraps ErrFrame and names the fault; h then has no meaning.
//
//  1. The checksum, which covers every other byte: a bit that flipped on the way, or a frame of
//     another connection or direction, is found here.
//  2. The sequence number: a frame that is missing, or came twice.
//  3. The fields that the kind allows: the sender has the secret, but may have bugs.
func (d *Decoder) Decode(h *Header, from *[HeaderSize]byte) error {
	if got, want := binary.LittleEndian.Uint32(from[atCheck:]), crc32.Update(d.Seed, castagnoli, from[:atCheck]); got != want {
		return fmt.Errorf("%w: its checksum is %08x, and that of what came is %08x", ErrFrame, got, want)
	}
	kind := Kind(from[atKind])
	if !kind.Valid() {
		return fmt.Errorf("%w: there is no %v", ErrFrame, kind)
	}
	rule := &rules[kind]
	*h = Header{
		Kind: kind, Flags: from[atFlags],
		Elems:  binary.LittleEndian.Uint16(from[atElems:]),
		Seq:    binary.LittleEndian.Uint32(from[atSeq:]),
		Length: binary.LittleEndian.Uint64(from[atLength:]),
		Token:  binary.LittleEndian.Uint64(from[atToken:]),
		Sum:    binary.LittleEndian.Uint32(from[atSum:]),
	}
	if h.Seq != d.seq {
		return fmt.Errorf("%w: %s has sequence number %d, want %d", ErrFrame, rule.name, h.Seq, d.seq)
	}
	place := binary.LittleEndian.Uint64(from[atContext:])
	switch {
	case rule.has&wide == 0:
		h.Context, h.Tag = uint32(place), int32(uint32(place>>32))
	case kind == ClearToSend:
		h.Reply = place
	default:
		h.Offset = place
	}
	if err := h.check(rule.has, rule.flags, d.Limit); err != nil {
		return err
	}
	d.seq++
	return nil
}

// check finds fields that are set and that the header's kind does not use.
func (h *Header) check(has, flags uint8, limit uint64) error {
	wrong := func(format string, facts ...any) error {
		return fmt.Errorf("%w: %v: %s", ErrFrame, h.Kind, fmt.Sprintf(format, facts...))
	}
	switch {
	case h.Flags&^flags != 0:
		return wrong("flags %#x, and it can have %#x", h.Flags, flags)
	case has&typed == 0 && h.Elems != 0:
		return wrong("elements %#x, and it has none", h.Elems)
	case has&(uses|wide) == 0 && h.Context != 0:
		return wrong("context %d, and it has none", h.Context)
	case has&(tagged|wide) == 0 && h.Tag != 0:
		return wrong("tag %d, and it has none", h.Tag)
	case has&(sized|loaded) == 0 && h.Length != 0:
		return wrong("length %d, and it has none", h.Length)
	case has&tokened == 0 && h.Token != 0:
		return wrong("token %d, and it has none", h.Token)
	case h.Flags&FlagSummed == 0 && h.Sum != 0:
		return wrong("a sum of the payload, without the flag")
	case h.Length > MaxMessage:
		return wrong("length %d, above %d", h.Length, uint64(MaxMessage))
	case has&loaded != 0 && h.Length > limit:
		return wrong("a payload of %d bytes, above the limit of %d", h.Length, limit)
	case h.Kind == Data && h.Offset > MaxMessage:
		return wrong("offset %d, above %d", h.Offset, uint64(MaxMessage))
	case h.Kind == Lost && (h.Tag < 0 || h.Tag >= MaxRanks):
		return wrong("rank %d, and there are at most %d", h.Tag, MaxRanks)
	}
	return nil
}

// CheckSum compares the sum of a payload with the one in its header, if there is one.
func (h *Header) CheckSum(sum uint32) error {
	if h.Flags&FlagSummed != 0 && sum != h.Sum {
		return fmt.Errorf("%w: %v: the sum of its payload is %08x, and of what came %08x", ErrSum, h.Kind, h.Sum, sum)
	}
	return nil
}
