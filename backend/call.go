package backend

import (
	"cmp"
	"encoding/binary"
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
	NeighborAllgather // this and the next ones: section 8.6
	NeighborAllgatherv
	NeighborAlltoall
	NeighborAlltoallv
	numColls
)

var collNames = [numColls]string{
	"", "Barrier", "Bcast", "Reduce", "Allreduce", "ReduceScatterBlock", "ReduceScatter", "Gather", "Gatherv",
	"Allgather", "Allgatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv", "Scan", "Exscan",
	"NeighborAllgather", "NeighborAllgatherv", "NeighborAlltoall", "NeighborAlltoallv",
}

// String returns the operation's name in Go's spelling.
func (c Coll) String() string {
	if c > 0 && c < numColls {
		return collNames[c]
	}
	return fmt.Sprintf("Coll(%d)", uint8(c))
}

// Neighbor reports whether ranks exchange data with their neighbors only. Such a call has Neighbors, unless
// it has an Err.
func (c Coll) Neighbor() bool { return c >= NeighborAllgather && c < numColls }

// Neighbors are the ranks with which a rank exchanges data in neighborhood collectives. It never changes.
type Neighbors struct {
	// Sources and Destinations have the ranks in the order of the blocks. The block of ProcNull is neither sent
	// nor written.
	Sources, Destinations []int
	// Cart says that these are the neighbors in a grid: in each dimension the lower one, and then the upper one.
	// A block for the lower neighbor arrives there as the block from the upper neighbor, also if both are the
	// same rank. In a graph the k-th edge to a rank is that rank's k-th edge from this one.
	Cart bool
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
	// Scatterv, Alltoallv and those of neighborhoods, where each pair of ranks
	// compares its counts.
	Count int

	// Total is the Count of a longer call, of which this one makes a part, otherwise 0. Ranks compare it in place of Count.
	Total int

	Send, Recv []byte

	// Counts and displacements in elements, for the v-forms: Gatherv (Recv, on
	// the root), Scatterv (Send, on the root), Allgatherv and ReduceScatter
	// (RecvCounts on all ranks), Alltoallv (all four). ReduceScatter has no
	// displacements. Those of neighborhoods have an entry for each neighbor.
	SendCounts, SendDispls, RecvCounts, RecvDispls []int

	Neighbors *Neighbors // of this rank, for neighborhood collectives

	// Seq numbers the collectives of the communicator, the same on all ranks. A
	// rank that runs its call as a schedule, with messages, sends its Seen under
	// CheckTag(Seq). A backend that receives one while it waits for the ranks in
	// Collective has found a mismatch.
	Seq uint32

	// Agreed says that all ranks make this call, and that none of them can end it early. See PlanAgree.
	Agreed bool

	// Ended, if Collective sets it and returns PlanSchedule, is called when the schedule has ended. The backend then knows
	// how long its messages took, and that this rank waits for no other any more.
	Ended func()

	// Err is an argument error that this rank found. The call is made all the same
	// so that the other ranks learn of it. If all ranks have an error with the same
	// code, each returns its own Err and the communicator stays usable. If not, the
	// ranks without an error get ErrMismatch naming this one.
	Err error
}

// Fingerprint holds what must be equal on all ranks that take part in one collective, in three words, so that
// ranks exchange and compare it fast. Any bits are a Fingerprint.
type Fingerprint struct {
	call  uint64 // a byte each: Coll, Form with fixedBit, OpCode, and the Code of the argument error; the ID of the type
	root  uint64 // 32 bits each: Root, and a hash of the counts that must agree (Allgatherv, ReduceScatter)
	count uint64
}

// FingerprintSize is the length of an encoded Fingerprint in bytes.
const FingerprintSize = 24

// fixedBit says that the op does not commute.
const fixedBit = 1 << 15

// Fingerprint returns the call's fingerprint. It does not allocate.
func (c *Call) Fingerprint() Fingerprint {
	f := Fingerprint{call: uint64(c.Coll) | uint64(c.Form)<<8}
	if c.Err != nil { // the arguments do not matter any more, only that the error is the same
		f.call |= uint64(Code(c.Err)) << 24
		return f
	}
	if c.Op != nil {
		f.call |= uint64(c.Op.Code) << 16
		if !c.Op.Commutative {
			f.call |= fixedBit
		}
	}
	if c.Type != nil {
		f.call |= uint64(c.Type.ID) << 32
	}
	f.root, f.count = uint64(uint32(c.Root)), uint64(cmp.Or(c.Total, c.Count))
	if c.Coll == Allgatherv || c.Coll == ReduceScatter {
		h := uint64(14695981039346656037) // FNV-1a
		for _, n := range c.RecvCounts {
			h = (h ^ uint64(n)) * 1099511628211
		}
		f.root |= (h ^ h>>32) << 32
	}
	return f
}

// encode writes f to the first FingerprintSize bytes of b.
func (f Fingerprint) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, f.call)
	binary.LittleEndian.PutUint64(b[8:], f.root)
	binary.LittleEndian.PutUint64(b[16:], f.count)
}

// decodeFingerprint is the inverse of encode.
func decodeFingerprint(b []byte) Fingerprint {
	return Fingerprint{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
}

// String describes the call as a user would write it.
func (f Fingerprint) String() string {
	coll, kind, root := Coll(f.call), uint32(f.call>>32), int32(f.root)
	name := coll.String()
	switch Form(f.call >> 8 & 3) {
	case Nonblocking:
		name = "I" + string(name[0]|0x20) + name[1:]
	case Persistent:
		name += "Init"
	}
	if code := uint8(f.call >> 24); code != 0 {
		return fmt.Sprintf("%s with an argument error (%v)", name, Sentinel(code))
	}
	if coll == Barrier && kind != 0 { // a fence, which is a Barrier with a type
		return fmt.Sprintf("%s(window %d)", TypeName(kind), root)
	}
	s := name + "("
	if coll != Barrier {
		s += fmt.Sprintf("type %s", TypeName(kind))
		if coll != Gatherv && coll != Scatterv && coll != Alltoallv && !coll.Neighbor() || f.count != 0 {
			what := "count"
			if coll == Allgatherv || coll == ReduceScatter {
				what = "counts with the sum"
			}
			s += fmt.Sprintf(", %s %d", what, int64(f.count))
		}
	}
	switch coll {
	case Reduce, Allreduce, ReduceScatterBlock, ReduceScatter, Scan, Exscan:
		s += ", op " + OpCode(f.call>>16).String()
		if f.call&fixedBit != 0 {
			s += " (does not commute)"
		}
	}
	switch coll {
	case Bcast, Reduce, Gather, Gatherv, Scatter, Scatterv:
		s += fmt.Sprintf(", root %d", root)
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
	err := Faultf(ErrMismatch, "rank %d called %v, rank %d called %v", a, fa, b, fb)
	if fa.root>>32 != fb.root>>32 && fa.count == fb.count && fa.call == fb.call {
		err.Text += "; the counts differ"
	}
	return err
}
