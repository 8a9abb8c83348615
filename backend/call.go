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

// Form says how a collective was called.
type Form uint8

// The forms.
const (
	Blocking Form = iota
	Nonblocking
	Persistent
)

// Call is one rank's call of a collective: the arguments of the typed API with
// their types erased. The slices alias the user's.
//
// For Bcast the buffer is Recv on every rank, the root included.
//
// InPlace means, for Reduce, Gather and Gatherv on the root and for Allreduce,
// Allgather(v), ReduceScatter(Block), Alltoall(v), Scan and Exscan on every rank,
// that Send is nil and Recv holds the input, laid out as for MPI_IN_PLACE. For
// Scatter(v) on the root it means that Recv is nil and the root's part stays in
// Send.
type Call struct {
	Coll    Coll
	Form    Form
	InPlace bool
	Root    int       // of rooted collectives; the number of the window for a fence; otherwise -1
	Op      *Op       // of reductions; otherwise nil
	Type    *Datatype // of the elements; nil for a Barrier that is not a fence

	// Count is the number of elements that must be equal on all ranks: that of the
	// whole vector (Bcast, Reduce, Allreduce, Scan, Exscan), that of one block
	// (Gather, Allgather, Scatter, Alltoall, ReduceScatterBlock), or the sum of
	// RecvCounts (Allgatherv, ReduceScatter). It is 0 for Barrier, and for Gatherv,
	// Scatterv and Alltoallv, where each pair of ranks compares its counts.
	Count int

	Send, Recv []byte

	// Counts and displacements in elements, for the v-forms: Gatherv (Recv, on
	// the root), Scatterv (Send, on the root), Allgatherv and ReduceScatter
	// (RecvCounts on all ranks), Alltoallv (all four). ReduceScatter has no
	// displacements.
	SendCounts, SendDispls, RecvCounts, RecvDispls []int

	// Seq numbers the collectives of the communicator, the same on all ranks. A
	// rank that runs its call as a schedule, with messages, sends its Seen under
	// CheckTag(Seq). A backend that receives one while it waits for the ranks in
	// Collective has found a mismatch.
	Seq uint32

	// Agreed says that all ranks make this call, and that none of them can end it early. See PlanAgree.
	Agreed bool

	// Ended, if Collective sets it and returns PlanSchedule, is called when the schedule has ended.
	Ended func()

	// Err is an argument error that this rank found. The call is made all the same
	// so that the other ranks learn of it. If all ranks have an error with the same
	// code, each returns its own Err and the communicator stays usable. If not, the
	// ranks without an error get ErrMismatch naming this one.
	Err error
}

// Fingerprint holds what must be equal on all ranks that take part in one
// collective. It is comparable and has a fixed encoding.
type Fingerprint struct {
	Coll   Coll
	Form   Form
	Op     OpCode
	Fixed  bool  // the op does not commute
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
		// The arguments do not matter any more, only that the call is the same and
		// has the same error.
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

// fixedBit is Fixed in the first word: the top bit of Form's byte.
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

// typeNames maps the IDs of types that are not numbers to their names.
var typeNames sync.Map

// NameType records a name for the type with this ID, for messages. Types of one
// layout share an ID, and the first name recorded is kept.
func NameType(id uint32, name string) { typeNames.LoadOrStore(id, name) }

// NumberType reports whether an ID is that of a kind, which needs no name.
func NumberType(id uint32) bool { return id < uint32(numKinds) }

// TypeName returns the name of the type with this ID, or the ID in hexadecimal if
// it has none.
func TypeName(id uint32) string {
	if NumberType(id) {
		return Kind(id).String()
	}
	if name, ok := typeNames.Load(id); ok {
		return name.(string)
	}
	return fmt.Sprintf("#%08x", id)
}

// Mismatch returns the ErrMismatch for ranks a and b that made different calls.
// Callers pass a < b, so that all ranks return the same text. A rank with an
// argument error returns that error instead.
func Mismatch(a int, fa Fingerprint, b int, fb Fingerprint) error {
	return &Fault{ErrMismatch, fmt.Sprintf("rank %d called %v, rank %d called %v", a, fa, b, fb)}
}
