package mpiquirks

import (
	"iter"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// QuirkKind is the kind of a defect, as far as cohort acts on it.
type QuirkKind uint8

const (
	QuirkOverrun      QuirkKind = iota + 1 // a long message is written past the end of a shorter receive
	QuirkNoLength                          // a message longer than its receive is lost, and its length unknown
	QuirkNoLong                            // some nonblocking collectives fail above 2^31-1 bytes
	QuirkNoPersistent                      // some persistent collectives are wrong
	QuirkNoInPlace                         // some of the collectives that InPlace allows are wrong in place
	QuirkNoNative                          // some collectives are wrong, in all forms
	QuirkWrongOp                           // some reductions of some types give wrong results
	QuirkCUDACrash                         // asking for CUDA crashes a library built without it
	QuirkAlone                             // messages of several threads on a communicator of one rank hang
	QuirkBuiltCUDA                         // its answer about device memory is how it was built
	QuirkOwed                              // MPI_Finalize waits until all sends are received
	QuirkDisconnect                        // MPI_Finalize may not return on ranks that call it later than others
	QuirkExit                              // an atexit function reports the end of a rank to the launcher
)

// quirk is a defect or trap of some versions of libraries.
type quirk struct {
	kind         QuirkKind
	vendor       string // onlyMPICH, or what stands for several implementations
	from, before string // versions; empty is no bound
	colls        []backend.Coll
	ops          []backend.OpCode
	kinds        []backend.Kind
}

// Vendors in the table.
const (
	onlyMPICH  = "MPICH"
	anyMPICH   = "MPICH and its derivatives"
	anyOpenMPI = "Open MPI and its derivatives"
	derived    = "Intel MPI, Cray MPICH, MVAPICH"
)

// quirkTable is in the order of docs/mpi-coverage.md, which says of each row what happens, what cohort does about it,
// and how we know.
var quirkTable = []quirk{
	{kind: QuirkOverrun, vendor: anyOpenMPI},
	{kind: QuirkNoLength, vendor: anyMPICH},
	{kind: QuirkNoLong, vendor: anyMPICH, colls: []backend.Coll{backend.Bcast}},
	{kind: QuirkNoPersistent, vendor: onlyMPICH, from: "4.0", before: "4.3", colls: []backend.Coll{backend.Gather}},
	{kind: QuirkNoPersistent, vendor: onlyMPICH, from: "4.0", before: "4.2", colls: []backend.Coll{backend.Allgather}},
	{kind: QuirkNoPersistent, vendor: onlyMPICH, from: "4.0", colls: []backend.Coll{backend.Scatter}},
	{kind: QuirkNoPersistent, vendor: onlyMPICH, from: "4.1", colls: []backend.Coll{backend.Bcast}},
	{kind: QuirkNoPersistent, vendor: derived, colls: []backend.Coll{backend.Gather, backend.Allgather, backend.Scatter, backend.Bcast}},
	{kind: QuirkNoInPlace, vendor: anyMPICH, from: "3.4", before: "4.2", colls: []backend.Coll{backend.Reduce}},
	{kind: QuirkNoNative, vendor: anyMPICH, from: "3.4", before: "4.0", colls: []backend.Coll{backend.Reduce}},
	{kind: QuirkWrongOp, vendor: anyMPICH, ops: []backend.OpCode{backend.OpMin, backend.OpMax},
		kinds: []backend.Kind{backend.Uint8, backend.Uint16, backend.Uint32, backend.Uint64}},
	{kind: QuirkWrongOp, vendor: anyOpenMPI, ops: []backend.OpCode{backend.OpSum},
		kinds: []backend.Kind{backend.Int8, backend.Int16, backend.Uint8, backend.Uint16}},
	{kind: QuirkNoInPlace, vendor: derived, colls: []backend.Coll{backend.Allreduce, backend.Allgather, backend.Allgatherv}},
	{kind: QuirkNoInPlace, vendor: anyOpenMPI, from: "6.0a1", colls: []backend.Coll{backend.Reduce, backend.Allreduce}},
	{kind: QuirkNoInPlace, vendor: anyOpenMPI, from: "6.0a1", colls: []backend.Coll{backend.Allgather, backend.Allgatherv}},
	{kind: QuirkAlone, vendor: anyMPICH, from: "4.0"},
	{kind: QuirkOwed, vendor: anyMPICH},
	{kind: QuirkDisconnect, vendor: anyMPICH, before: "4.2"},
	{kind: QuirkExit, vendor: onlyMPICH},
	{kind: QuirkCUDACrash, vendor: anyOpenMPI, before: "5.0"},
	{kind: QuirkBuiltCUDA, vendor: anyOpenMPI, before: "5.0"},
}

// Quirks are the defects of one library.
type Quirks []quirk

// QuirksIn returns the known defects of an implementation's release, as far as it is known. Anything unknown is assumed to be the worst.
func QuirksIn(m Implementation, r Release) Quirks {
	var of Quirks
	for _, q := range quirkTable {
		if q.concerns(m) && q.concernsRelease(m, r) {
			of = append(of, q)
		}
	}
	return of
}

// concerns reports whether a row is about an implementation, whatever the version.
func (q *quirk) concerns(by Implementation) bool {
	switch q.vendor {
	case anyMPICH:
		return by.mpich()
	case anyOpenMPI:
		return by.openmpi()
	case derived:
		return by.mpich() && by != MPICH
	}
	return by == MPICH || by == Unknown || by == UnknownMPICH
}

// concernsRelease reports whether a row that concerns an implementation is about a release of it. The bounds
// of a row are in one implementation's numbering; the others count as within them.
func (q *quirk) concernsRelease(m Implementation, r Release) bool {
	return m != MPICH && m != OpenMPI || r.within(q.from, q.before)
}

// Has reports whether the library has a quirk of a kind.
func (qs Quirks) Has(kind QuirkKind) bool {
	return slices.ContainsFunc(qs, func(q quirk) bool { return q.kind == kind })
}

// Persistent reports whether the library's own persistent form of a collective is sound.
func (qs Quirks) Persistent(coll backend.Coll) bool {
	return qs.Native(coll) && qs.sound(QuirkNoPersistent, coll)
}

// Long reports whether the library's own nonblocking collective is sound above 2^31-1 bytes.
func (qs Quirks) Long(coll backend.Coll) bool { return qs.sound(QuirkNoLong, coll) }

// Native reports whether the library's own collective is sound at all.
func (qs Quirks) Native(coll backend.Coll) bool { return qs.sound(QuirkNoNative, coll) }

// InPlace reports whether a rank may pass MPI_IN_PLACE to a collective, whatever the other ranks pass. Of a
// collective without a root MPI wants it at all ranks or at none (MPI-4.1 chapter 6), since a library may choose
// its algorithm by it. A rank knows only what it passes itself. So InPlace allows only those of them that are known
// to be right when some ranks pass it.
func (qs Quirks) InPlace(coll backend.Coll, form backend.Form) bool {
	switch coll {
	case backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv, backend.Reduce: // on the root
	case backend.Allreduce, backend.Allgather, backend.Allgatherv:
		if form != backend.Blocking {
			return false
		}
	default:
		return false
	}
	return qs.sound(QuirkNoInPlace, coll)
}

func (qs Quirks) sound(kind QuirkKind, coll backend.Coll) bool {
	return !slices.ContainsFunc(qs, func(q quirk) bool { return q.kind == kind && slices.Contains(q.colls, coll) })
}

// WrongOps yields the operations, with the kinds of numbers, for which the library's results are wrong.
func (qs Quirks) WrongOps() iter.Seq2[backend.OpCode, backend.Kind] {
	return func(yield func(backend.OpCode, backend.Kind) bool) {
		for _, q := range qs {
			for _, op := range q.ops {
				for _, kind := range q.kinds {
					if !yield(op, kind) {
						return
					}
				}
			}
		}
	}
}
