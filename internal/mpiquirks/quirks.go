package mpiquirks

import (
	"iter"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

// QuirkKind is the kind of a defect, as far as cohort acts on it.
type QuirkKind uint8

const (
	QuirkOverrun         QuirkKind = iota + 1 // a long message is written past the end of a shorter receive
	QuirkSilentCut                            // a message longer than its receive is cut without an error
	QuirkNoLength                             // a message longer than its receive is lost, and its length unknown
	QuirkNoLong                               // some nonblocking collectives fail above 2^31-1 bytes
	QuirkNoPersistent                         // some persistent collectives are wrong
	QuirkNoInPlace                            // some collectives are wrong in place, in all forms
	QuirkNoNative                             // some collectives are wrong, in all forms
	QuirkWrongOp                              // some reductions of some types give wrong results
	QuirkNoCancelSend                         // a send cannot be canceled: waiting for it afterwards may never end
	QuirkNoCancelAny                          // a receive from any source cannot be canceled
	QuirkNoCancelRestart                      // a persistent receive cannot be canceled
	QuirkNoStartall                           // starting several persistent collectives in one call is wrong
	QuirkNoMultiple                           // MPI_THREAD_MULTIPLE is granted and not sound
	QuirkNilBuffer                            // a null buffer with a count crashes
	QuirkSilentMismatch                       // mismatched calls end without an error, or never
	QuirkSignals                              // replaced signal handlers break a Go program
	QuirkULFM                                 // the ULFM functions end the process
	QuirkCUDACrash                            // asking for CUDA crashes a library built without it
	QuirkAlone                                // messages of several threads on a communicator of one rank hang
	QuirkBuiltCUDA                            // its answer about device memory is how it was built
	QuirkOwed                                 // MPI_Finalize waits until all sends are received
	QuirkExit                                 // an atexit function reports the end of a rank to the launcher
)

// quirk is a defect or trap of some versions of libraries.
type quirk struct {
	kind         QuirkKind
	vendor       string // the maker; anyMPICH and anyOpenMPI include derivatives
	from, before string // versions; empty is no bound
	colls        []backend.Coll
	inPlace      bool // in place only
	ops          []backend.OpCode
	kinds        []backend.Kind

	wrong    string // what happens
	does     string // the workaround, as an instruction
	evidence string // how we know
}

// Vendors in the table that stand for several.
const (
	anyMPICH   = "MPICH and its derivatives"
	anyOpenMPI = "Open MPI and its derivatives"
	derived    = "Intel MPI, Cray MPICH, MVAPICH"
)

// quirkTable is in the order of the documentation.
var quirkTable = []quirk{
	{
		kind: QuirkOverrun, vendor: anyOpenMPI,
		wrong:    "the library writes a message longer than its receive past the end of the buffer, if the message is long enough for rendezvous. It returns MPI_ERR_TRUNCATE afterwards",
		does:     "receive short messages in a separate buffer; learn the length of longer ones first; compare the ranks' calls before a collective, or run it as messages",
		evidence: "measured with 4.1.4; the code is the same in 5.0.10 and in the development branch",
	},
	{
		kind: QuirkSilentCut, vendor: anyOpenMPI,
		wrong:    "a rank sends itself a message below 1000 bytes that is longer than a receive posted before. The message is cut and there is no error",
		does:     "receive in a buffer that is longer than asked for, or learn the length first",
		evidence: "measured with 4.1.4; other releases not tried",
	},
	{
		kind: QuirkNoLength, vendor: anyMPICH,
		wrong:    "of a message longer than its receive, the library writes only those pieces that arrive separately and fit, mostly none. Source and tag in the status are right, the length is never set",
		does:     "return ErrTruncate with source and tag, without the length",
		evidence: "measured with 4.0.2 over UCX (50 to 1 000 000 bytes, from the same and another rank, posted before and after; of 8187 bytes for 8180 the first 8168 arrive); other devices not tried",
	},
	{
		kind: QuirkNoLong, vendor: anyMPICH, colls: []backend.Coll{backend.Bcast},
		wrong:    "MPI_Ibcast and MPI_Bcast_init of more than 2^31-1 bytes return an error on the receiving ranks, although all data arrives. Large counts and derived types make no difference",
		does:     "run these as messages",
		evidence: "measured with 4.0.2 (2 ranks; 11 other nonblocking collectives are right); other releases not tried",
	},
	{
		kind: QuirkNoPersistent, vendor: "MPICH", from: "4.0", before: "4.3", colls: []backend.Coll{backend.Gather},
		wrong:    "MPI_Gather_init sends what the buffers held when it was called, not when the operation is started",
		does:     "run persistent Gather as messages",
		evidence: "measured with 4.0.2 (1 to 4 and 8 ranks); pmodels/mpich#7078 (4.1.2), corrected by #7081 in August 2024",
	},
	{
		kind: QuirkNoPersistent, vendor: "MPICH", from: "4.0", before: "4.2", colls: []backend.Coll{backend.Allgather},
		wrong:    "if the number of ranks is a power of two, MPI_Allgather_init gives wrong results from its second start on",
		does:     "run persistent Allgather as messages",
		evidence: "measured with 4.0.2 (2, 4 and 8 ranks); pmodels/mpich#6423, corrected by #6425 in March 2023",
	},
	{
		kind: QuirkNoPersistent, vendor: "MPICH", from: "4.0", colls: []backend.Coll{backend.Scatter},
		wrong:    "from its second start on, MPI_Scatter_init receives nothing (2 ranks) or fails (3 and more). With 4.2 it never ends in place",
		does:     "run persistent Scatter as messages",
		evidence: "measured with 4.0.2 (2 to 4 and 8 ranks); pmodels/mpich#7607, #7550 (in no release known to us); the compatibility notes of cobre-rs/ferrompi (4.2.0, 4.2.1, 4.2.3)",
	},
	{
		kind: QuirkNoPersistent, vendor: "MPICH", from: "4.1", colls: []backend.Coll{backend.Bcast},
		wrong:    "MPI_Bcast_init of long data on many ranks gives wrong results from its second start on",
		does:     "run persistent Bcast as messages",
		evidence: "pmodels/mpich#7550 (2025, in no release known to us); measured to be right with 4.0.2 (1 to 4 and 8 ranks)",
	},
	{
		kind: QuirkNoPersistent, vendor: derived, colls: []backend.Coll{backend.Gather, backend.Allgather, backend.Scatter, backend.Bcast},
		wrong:    "derivatives of MPICH may have the defects of its persistent collectives above",
		does:     "run these as messages",
		evidence: "not tried; we do not know which MPICH a release derives from",
	},
	{
		kind: QuirkNoInPlace, vendor: anyMPICH, from: "3.4", before: "4.2", colls: []backend.Coll{backend.Reduce}, inPlace: true,
		wrong:    "MPI_Reduce in place, above 2 KiB, crashes the process on a root other than rank 0",
		does:     "copy the input instead of working in place",
		evidence: "measured with 4.0.2 (2 to 5 ranks; the nonblocking and persistent forms are right); pmodels/mpich#6540 (4.0.2, 4.1.1), corrected by #6543 in May 2023",
	},
	{
		kind: QuirkNoNative, vendor: anyMPICH, from: "3.4", before: "4.0", colls: []backend.Coll{backend.Reduce},
		wrong:    "MPI_Reduce crashes if the receive buffer is null on a rank other than the root",
		does:     "run Reduce as messages",
		evidence: "pmodels/mpich#5700 (3.4.2); measured to be right with 4.0.2",
	},
	{
		kind: QuirkWrongOp, vendor: anyMPICH,
		ops:      []backend.OpCode{backend.OpMin, backend.OpMax},
		kinds:    []backend.Kind{backend.Uint8, backend.Uint16, backend.Uint32, backend.Uint64},
		wrong:    "MPI_MIN and MPI_MAX compare unsigned integers of 8 to 64 bits as if they were signed",
		does:     "use operations in Go",
		evidence: "measured with 4.0.2 (MPI_UINT8_T to MPI_UINT64_T and MPI_UNSIGNED_CHAR); other releases not tried",
	},
	{
		kind: QuirkWrongOp, vendor: anyOpenMPI,
		ops:      []backend.OpCode{backend.OpSum},
		kinds:    []backend.Kind{backend.Int8, backend.Int16, backend.Uint8, backend.Uint16},
		wrong:    "MPI_SUM of integers of 8 and 16 bits saturates instead of wrapping around, where it uses the vector instructions of x86",
		does:     "use operations in Go",
		evidence: "measured with 4.1.4; other releases not tried",
	},
	{
		kind: QuirkNoInPlace, vendor: anyMPICH, colls: []backend.Coll{backend.ReduceScatter}, inPlace: true,
		wrong:    "MPI_Reduce_scatter in place with different counts ends the process with a failed assertion (memory ranges overlap). This holds for the blocking, nonblocking and persistent forms",
		does:     "copy the input instead of working in place",
		evidence: "measured with 4.0.2 (4 and 8 ranks, 20 011 to 20 014 numbers of 8 bytes); other releases not tried",
	},
	{
		kind: QuirkNoInPlace, vendor: anyOpenMPI, before: "4.1.3", colls: []backend.Coll{backend.Alltoallv}, inPlace: true,
		wrong:    "MPI_Alltoallv in place gives wrong results",
		does:     "copy the input instead of working in place",
		evidence: "release notes of Open MPI 4.1.3",
	},
	{
		kind: QuirkNoInPlace, vendor: anyOpenMPI, from: "6.0a1", colls: []backend.Coll{backend.Reduce, backend.Allreduce}, inPlace: true,
		wrong:    "MPI_Allreduce in place crashes the process if the component acoll is chosen",
		does:     "copy the input instead of working in place",
		evidence: "open-mpi/ompi#13736, #14439 (open)",
	},
	{
		kind: QuirkNoStartall, vendor: anyMPICH, before: "4.2",
		wrong:    "in builds with the device ch3, MPI_Startall of persistent collectives reads uninitialized memory",
		does:     "start them one by one",
		evidence: "pmodels/mpich#6738, #6739",
	},
	{
		kind: QuirkNoCancelSend, vendor: anyMPICH,
		wrong:    "MPI_Cancel of a send does nothing, and MPI_Wait does not return until the message is received",
		does:     "do not cancel; an abandoned send keeps its buffer, and its communicator is broken",
		evidence: "pmodels/mpich#5775, #2266, #2270 (will not be changed; MPI-4 deprecates it)",
	},
	{
		kind: QuirkNoCancelSend, vendor: anyOpenMPI,
		wrong:    "MPI_Cancel of a send does nothing, and MPI_Wait does not return until the message is received",
		does:     "do not cancel; an abandoned send keeps its buffer, and its communicator is broken",
		evidence: "open-mpi/ompi#9626, #8078",
	},
	{
		kind: QuirkNoCancelAny, vendor: "MPICH", from: "5.0.0a1", before: "5.0.1",
		wrong:    "MPI_Cancel of a receive from any source does not work",
		does:     "do not cancel; an abandoned receive keeps its buffer, and its communicator is broken",
		evidence: "release notes of MPICH 5.0.1; measured to be right with 4.0.2",
	},
	{
		kind: QuirkNoCancelRestart, vendor: "Cray MPICH",
		wrong:    "MPI_Cancel of a persistent receive crashes",
		does:     "start a new nonblocking receive at each start",
		evidence: "ICLDisco/parsec#519",
	},
	{
		kind: QuirkNoMultiple, vendor: anyOpenMPI, before: "3.0",
		wrong:    "MPI_THREAD_MULTIPLE hangs",
		does:     "ask for MPI_THREAD_SERIALIZED; Init fails unless the program asked for it or allows a lower level",
		evidence: "open-mpi/ompi#594, #1408; Open MPI's documentation: robust from 3.0 on",
	},
	{
		kind: QuirkAlone, vendor: anyMPICH, from: "4.0",
		wrong:    "on a communicator of one rank, messages that two threads send and receive hang",
		does:     "in a job of one rank, make one call at a time. Communicators of one rank in larger jobs are not protected",
		evidence: "measured with 4.0.2: a C program of two threads stops after 1 to some thousand messages",
	},
	{
		kind: QuirkNilBuffer, vendor: anyOpenMPI,
		wrong:    "a null buffer with a count above 0 crashes the process",
		does:     "check arguments before the call",
		evidence: "measured with 4.1.4",
	},
	{
		kind: QuirkSilentMismatch, vendor: anyMPICH,
		wrong:    "of 9 collectives that the ranks call differently, none is an error on every rank, 4 end with wrong results and no error, and 2 never end. Unequal lengths may also end the job, whatever the error handler",
		does:     "compare the calls beforehand if Config.Check is set",
		evidence: "measured with 4.0.2; the end of the job with 4.2.1 (Fatal error in internal_Allgather: Message truncated)",
	},
	{
		kind: QuirkSilentMismatch, vendor: anyOpenMPI,
		wrong:    "of 9 collectives that the ranks call differently, 1 is an error on every rank, 5 end with wrong results and no error, and 2 never end",
		does:     "compare the calls beforehand if Config.Check is set, and always if a buffer could be overrun (see above)",
		evidence: "measured with 4.1.4",
	},
	{
		kind: QuirkSignals, vendor: anyMPICH,
		wrong:    "when the library is loaded, UCX replaces the signal stack and the handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGHUP. MPI_Init replaces that of SIGUSR1. A nil dereference is then no longer a panic, and SIGHUP and SIGUSR1 end the program",
		does:     "set UCX_HANDLE_ERRORS and UCX_DEBUG_SIGNO before loading; after loading and after MPI_Init, restore every handler that has changed",
		evidence: "measured with 4.0.2 and UCX 1.13.1",
	},
	{
		kind: QuirkSignals, vendor: anyOpenMPI,
		wrong:    "UCX and PSM2, where the library uses them, replace signal handlers. Open MPI itself leaves Go's alone",
		does:     "as for MPICH",
		evidence: "measured with 4.1.4, which by default uses neither on one node",
	},
	{
		kind: QuirkOwed, vendor: anyMPICH,
		wrong:    "MPI_Finalize waits until abandoned sends are received. With a newer UCX it ends the process with a failed assertion",
		does:     "when the world is closed, receive and discard what the others have sent; a rank that still owes a message after 5 s does not call MPI_Finalize",
		evidence: "measured with 4.0.2 over UCX 1.13.1, and 4.2.1 over UCX 1.18.1",
	},
	{
		kind: QuirkExit, vendor: "MPICH",
		wrong:    "a function registered with atexit tells the launcher that a rank ended well. A Go program never calls it. So mpiexec kills the ranks that are still in MPI_Finalize, and the job fails",
		does:     "after MPI_Finalize, call what the library registered for the end of the process",
		evidence: "measured with 4.2.1 (of jobs with 3 ranks on 2 processors about a third failed); 4.0.2 tells the launcher in MPI_Finalize",
	},
	{
		kind: QuirkULFM, vendor: anyMPICH, from: "3.4",
		wrong:    "in builds with the device ch4, MPIX_Comm_revoke, MPIX_Comm_agree, MPIX_Comm_shrink and MPIX_Comm_failure_ack end the process with a failed assertion, even if no rank has failed",
		does:     "call them only if the library reports the device ch3",
		evidence: "measured with 4.0.2 (ch4:ucx, 2 and 4 ranks); the code is the same in the development branch of 2023 (src/mpid/ch4/src/ch4_comm.c); pmodels/mpich#3483 and #7706 are in no release known to us",
	},
	{
		kind: QuirkCUDACrash, vendor: anyOpenMPI, before: "5.0",
		wrong:    "OMPI_MCA_opal_cuda_support=1 crashes MPI_Init of a library that was built without CUDA",
		does:     "do not set it; Config.MPI.CUDA \"on\" needs it in the environment",
		evidence: "measured with 4.1.4",
	},
	{
		kind: QuirkBuiltCUDA, vendor: anyOpenMPI, before: "5.0",
		wrong:    "MPIX_Query_cuda_support reports whether the library was built with CUDA, not whether it is switched on. Builds that switch it off in a parameter file, such as conda's, answer yes and crash on device memory",
		does:     "believe the answer only if OMPI_MCA_opal_cuda_support or OMPI_MCA_mpi_cuda_support is on in the environment",
		evidence: "the code of 4.1 (ompi/mpiext/cuda returns OPAL_CUDA_SUPPORT) and the parameters of conda-forge's package; a build with CUDA was not tried",
	},
}

// Quirks are the defects of one library.
type Quirks []quirk

// QuirksIn returns the known defects of a maker's release, as far as it is known. Anything unknown is assumed to be the worst.
func QuirksIn(m Maker, r Release) Quirks {
	var of Quirks
	for _, q := range quirkTable {
		if q.concerns(m) && q.concernsRelease(m, r) {
			of = append(of, q)
		}
	}
	return of
}

// concerns reports whether a row is about a maker, whatever the version.
func (q *quirk) concerns(by Maker) bool {
	switch q.vendor {
	case anyMPICH:
		return by.mpich()
	case anyOpenMPI:
		return by.openmpi()
	case derived:
		return by.mpich() && by != MPICH
	}
	m := Of(mpifind.Unknown, q.vendor, Release{})
	return by == m || by == Unknown || by == UnknownMPICH && m.mpich()
}

// concernsRelease reports whether a row that concerns a maker is about a release of it. The bounds
// of a row are in one maker's numbering; libraries of other makers count as within them.
func (q *quirk) concernsRelease(m Maker, r Release) bool {
	numbered := m == Of(mpifind.Unknown, q.vendor, Release{}) || q.vendor == anyMPICH && m == MPICH || q.vendor == anyOpenMPI && m == OpenMPI
	return !numbered || r.within(q.from, q.before)
}

// Has reports whether the library has a quirk of a kind.
func (qs Quirks) Has(kind QuirkKind) bool {
	return slices.ContainsFunc(qs, func(q quirk) bool { return q.kind == kind })
}

// Overruns reports whether a long message may be written past the end of a shorter receive.
func (qs Quirks) Overruns() bool { return qs.Has(QuirkOverrun) }

// Persistent reports whether the library's own persistent form of a collective is sound, in place
// or not.
func (qs Quirks) Persistent(coll backend.Coll, inPlace bool) bool {
	return qs.Native(coll) && qs.sound(QuirkNoPersistent, coll, inPlace) && qs.sound(QuirkNoInPlace, coll, inPlace)
}

// Long reports whether the library's own nonblocking collective is sound above 2^31-1 bytes.
func (qs Quirks) Long(coll backend.Coll) bool { return qs.sound(QuirkNoLong, coll, true) }

// Native reports whether the library's own collective is sound at all.
func (qs Quirks) Native(coll backend.Coll) bool { return qs.sound(QuirkNoNative, coll, true) }

// InPlace reports whether a collective may be called with MPI_IN_PLACE, in any form.
func (qs Quirks) InPlace(coll backend.Coll) bool { return qs.sound(QuirkNoInPlace, coll, true) }

func (qs Quirks) sound(kind QuirkKind, coll backend.Coll, inPlace bool) bool {
	return !slices.ContainsFunc(qs, func(q quirk) bool {
		return q.kind == kind && slices.Contains(q.colls, coll) && (inPlace || !q.inPlace)
	})
}

// Multiple reports whether MPI_THREAD_MULTIPLE is sound if it is granted.
func (qs Quirks) Multiple() bool { return !qs.Has(QuirkNoMultiple) }

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
