package agree

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Set is a set of small numbers. All sets of one kind have the same length.
type Set []uint64

// NewSet returns an empty set of numbers below n.
func NewSet(n int) Set { return make(Set, (n+63)/64) }

// Has reports whether i is in s.
func (s Set) Has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }

// Add puts i into s.
func (s Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// AddAll puts all of o into s.
func (s Set) AddAll(o Set) {
	for i, w := range o {
		s[i] |= w
	}
}

// Len returns how many numbers are in s.
func (s Set) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// List returns the numbers in ascending order, nil if there are none.
func (s Set) List() (all []int) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			all = append(all, i*64+bits.TrailingZeros64(w))
		}
	}
	return all
}

// fits reports whether all numbers are below n.
func (s Set) fits(n int) bool { return n%64 == 0 || s[len(s)-1]>>(n%64) == 0 }

// Record is what members agree on. Each member brings one. The result combines them field by field,
// in ways that do not depend on the order.
type Record struct {
	Kinds  uint32 // what the members agree for, one bit each; combined by or
	Number uint32 // combined by maximum
	Flags  uint64 // combined by and
	Lost   Set    // ranks of the job that a member has found to be lost; combined by union
	Gone   Set    // members that a member has seen leave, or considers lost; combined by union
}

func (r *Record) merge(o *Record) {
	r.Kinds |= o.Kinds
	r.Number = max(r.Number, o.Number)
	r.Flags &= o.Flags
	r.Lost.AddAll(o.Lost)
	r.Gone.AddAll(o.Gone)
}

// A message is a header (whether its record is decided, the number of the agreement, the round) and
// the sender's state: its record, and the members that it considers lost.
const (
	headerSize = 12
	fixedSize  = 16 // of the state
)

// Size returns the length of the messages of agreements of members members in a job of ranks ranks.
func Size(members, ranks int) int {
	return headerSize + fixedSize + 8*(len(NewSet(ranks))+2*len(NewSet(members)))
}

func (r *Record) appendTo(b []byte, dead Set) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.Kinds)
	b = binary.LittleEndian.AppendUint32(b, r.Number)
	b = binary.LittleEndian.AppendUint64(b, r.Flags)
	for _, set := range []Set{r.Lost, r.Gone, dead} {
		for _, w := range set {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return b
}

// message is a message decoded.
type message struct {
	decided    bool
	seq, round uint32
	state      []byte // as it came
	rec        Record
	dead       Set
}

func decode(b []byte, members, ranks int) (m message, err error) {
	if len(b) != Size(members, ranks) {
		return m, fmt.Errorf("a message of %d bytes, want %d", len(b), Size(members, ranks))
	}
	decided := binary.LittleEndian.Uint32(b)
	m.decided, m.seq, m.round = decided == 1, binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])
	b = b[headerSize:]
	m.state = b
	m.rec.Kinds, m.rec.Number = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	m.rec.Flags = binary.LittleEndian.Uint64(b[8:])
	b = b[fixedSize:]
	set := func(n int) Set {
		s := NewSet(n)
		for i := range s {
			s[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		b = b[8*len(s):]
		if !s.fits(n) {
			err = fmt.Errorf("a set with numbers above %d", n-1)
		}
		return s
	}
	m.rec.Lost, m.rec.Gone, m.dead = set(ranks), set(members), set(members)
	if decided > 1 {
		err = fmt.Errorf("a message of kind %d", decided)
	}
	return m, err
}
