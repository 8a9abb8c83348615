package backend

import (
	"fmt"
	"sync"
)

// Coll names a collective operation.
type Coll uint8

// The collectives (MPI-4.1 chapter 6).
const (
	Barrier Coll = iota + 1
	Bcast
	Reduce
	Allreduce
	ReduceScatterBlock
	ReduceScatter
	Gather
	Gatherv
	Allgather
	Allgatherv
	Scatter
	Scatterv
	Alltoall
	Alltoallv
	Scan
	Exscan
	numColls
)

var collNames = [numColls]string{
	"", "Barrier", "Bcast", "Reduce", "Allreduce", "ReduceScatterBlock", "ReduceScatter", "Gather", "Gatherv",
	"Allgather", "Allgatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv", "Scan", "Exscan",
}

// String returns the operation's name in Go's spelling.
func (c Coll) String() string {
	if c > 0 && c < numColls {
		return collNames[c]
	}
	return fmt.Sprintf("Coll(%d)", uint8(c))
}

// Form is how a collective was called.
type Form uint8

// The forms.
const (
	Blocking Form = iota
	Nonblocking
	Persistent
)

// Call is one rank's call of a collective: what the typed API was given, with
// the types erased. The slices alias the user's.
//
// In place: for Reduce (on the root), Allreduce, Gather (root), Allgather(v),
// ReduceScatter(Block), Alltoall(v), Scan and Exscan, InPlace means that Send
// is nil and the input stands in Recv, laid out as MPI_IN_PLACE has it; for
// Scatter(v) on the root Recv is nil and the root's part stays in Send. For
// Bcast the buffer is Recv on every rank, the root included.
type Call struct {
	Coll    Coll
	Form    Form
	InPlace bool
	Root    int       // rooted collectives, the window of a fence; -1 otherwise
	Op      *Op       // reductions; nil otherwise
	Type    *Datatype // of the elements; nil for Barrier, unless it is a fence

	// Count is the number of elements that must be equal on all ranks: of the
	// whole vector (Bcast, Reduce, Allreduce, Scan, Exscan), of one block
	// (Gather, Allgather, Scatter, Alltoall, ReduceScatterBlock), the sum of
	// RecvCounts (Allgatherv, ReduceScatter); 0 for Barrier, Gatherv, Scatterv
	// and Alltoallv, whose counts are checked where they meet.
	Count int

	Send, Recv []byte

	// Counts and displacements in elements, for the v-forms: Gatherv (Recv, on
	// the root), Scatterv (Send, on the root), Allgatherv and ReduceScatter
	// (RecvCounts on all ranks), Alltoallv (all four). ReduceScatter has no
	// displacements.
	SendCounts, SendDispls, RecvCounts, RecvDispls []int

	// Seq numbers the collectives of the communicator, the same on all ranks. A
	// rank that makes this collective in another form, as a schedule with
	// messages, sends its Seen under CheckTag(Seq): a Native that gets one while
	// it waits for the ranks has found a mismatch.
	Seq uint32

	// Err is an argument error this rank found. The call is made all the same
	// so that the other ranks learn of it: if all ranks have the same code the
	// communicator stays usable and each rank returns its own Err; if not, the
	// others get ErrMismatch naming it.
	Err error
}

// Fingerprint is what must be equal on all ranks that take part in one
// collective. It is comparable and has a fixed encoding.
type Fingerprint struct {
	Coll   Coll
	Form   Form
	Op     OpCode
	Fixed  bool  // the operation does not commute
	Err    uint8 // Code of the argument error, 0 for none
	Type   uint32
	Root   int32
	Counts uint32 // hash of the counts that must agree (Allgatherv, ReduceScatter)
	Count  int64
}

// FingerprintSize is the length of an encoded Fingerprint in bytes.
const FingerprintSize = 24

// Fingerprint returns the call's fingerprint. It does not allocate.
func (c *Call) Fingerprint() Fingerprint {
	f := Fingerprint{Coll: c.Coll, Form: c.Form, Root: int32(c.Root), Count: int64(c.Count)}
	if c.Err != nil {
		// What the arguments were does not matter any more, only that the call
		// is the same one and wrong in the same way.
		return Fingerprint{Coll: c.Coll, Form: c.Form, Err: Code(c.Err)}
	}
	if c.Op != nil {
		f.Op, f.Fixed = c.Op.Code, !c.Op.Commutative
	}
	if c.Type != nil {
		f.Type = c.Type.ID
	}
	if c.Coll == Allgatherv || c.Coll == ReduceScatter {
		h := uint64(14695981039346656037) // FNV-1a
		for _, n := range c.RecvCounts {
			h = (h ^ uint64(n)) * 1099511628211
		}
		f.Counts = uint32(h ^ h>>32)
	}
	return f
}

// fixedBit of the first word is Fixed: the top bit of the byte that Form has.
const fixedBit = 1 << 15

// Words returns the fingerprint as three words, the form in which ranks
// exchange it.
func (f Fingerprint) Words() (w [3]uint64) {
	w[0] = uint64(f.Coll) | uint64(f.Form)<<8 | uint64(f.Op)<<16 | uint64(f.Err)<<24 | uint64(f.Type)<<32
	w[1] = uint64(uint32(f.Root)) | uint64(f.Counts)<<32
	w[2] = uint64(f.Count)
	if f.Fixed {
		w[0] |= fixedBit
	}
	return w
}

// FromWords is the inverse of Words. Any three words are accepted.
func FromWords(w [3]uint64) Fingerprint {
	return Fingerprint{
		Coll: Coll(w[0]), Form: Form(w[0] >> 8 & 0x7f), Op: OpCode(w[0] >> 16), Fixed: w[0]&fixedBit != 0, Err: uint8(w[0] >> 24),
		Type: uint32(w[0] >> 32), Root: int32(uint32(w[1])), Counts: uint32(w[1] >> 32), Count: int64(w[2]),
	}
}

// String describes the call as a user would write it.
func (f Fingerprint) String() string {
	name := f.Coll.String()
	switch f.Form {
	case Nonblocking:
		name = "I" + string(name[0]|0x20) + name[1:]
	case Persistent:
		name += "Init"
	}
	if f.Err != 0 {
		return fmt.Sprintf("%s with an argument error (%v)", name, Sentinel(f.Err))
	}
	if f.Coll == Barrier && f.Type != 0 { // a fence, which is a Barrier with a type
		return fmt.Sprintf("%s(window %d)", TypeName(f.Type), f.Root)
	}
	s := name + "("
	if f.Coll != Barrier {
		s += fmt.Sprintf("type %s", TypeName(f.Type))
		switch f.Coll {
		case Gatherv, Scatterv, Alltoallv:
		default:
			s += fmt.Sprintf(", count %d", f.Count)
		}
	}
	if f.Counts != 0 {
		s += fmt.Sprintf(", counts #%08x", f.Counts)
	}
	switch f.Coll {
	case Reduce, Allreduce, ReduceScatterBlock, ReduceScatter, Scan, Exscan:
		s += ", op " + f.Op.String()
		if f.Fixed {
			s += " (does not commute)"
		}
	}
	switch f.Coll {
	case Bcast, Reduce, Gather, Gatherv, Scatter, Scatterv:
		s += fmt.Sprintf(", root %d", f.Root)
	}
	return s + ")"
}

// typeNames has the names of the types that are not numbers, by ID.
var typeNames sync.Map

// NameType gives the type with an ID that is not a kind a name for messages. The
// first name stays: types of one layout have the same ID.
func NameType(id uint32, name string) { typeNames.LoadOrStore(id, name) }

// NumberType reports whether an ID is that of a kind, which needs no name.
func NumberType(id uint32) bool { return id < uint32(numKinds) }

// TypeName returns the name of the type with an ID, a number in hexadecimal for one without.
func TypeName(id uint32) string {
	if NumberType(id) {
		return Kind(id).String()
	}
	if name, ok := typeNames.Load(id); ok {
		return name.(string)
	}
	return fmt.Sprintf("#%08x", id)
}

// Mismatch returns the ErrMismatch that rank a's and rank b's different calls
// of the seq-th collective of a communicator give, the same text on all ranks
// if a < b. Err is what a rank with an argument error of its own returns
// instead.
func Mismatch(a int, fa Fingerprint, b int, fb Fingerprint) error {
	return &Fault{ErrMismatch, fmt.Sprintf("rank %d called %v, rank %d called %v", a, fa, b, fb)}
}
