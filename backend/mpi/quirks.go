package mpi

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// quirkKind is the kind of a defect, as far as cohort acts on it.
type quirkKind uint8

const (
	quirkOverrun         quirkKind = iota + 1 // a long message is written past the end of a shorter receive
	quirkSilentCut                            // a message longer than its receive is cut without an error
	quirkNoLength                             // a message longer than its receive is lost, and its length unknown
	quirkNoLong                               // some nonblocking collectives fail above 2^31-1 bytes
	quirkNoPersistent                         // some persistent collectives are wrong
	quirkNoInPlace                            // some collectives are wrong in place, in all forms
	quirkNoNative                             // some collectives are wrong, in all forms
	quirkWrongOp                              // some reductions of some types give wrong results
	quirkNoCancelSend                         // a send cannot be canceled: waiting for it afterwards may never end
	quirkNoCancelAny                          // a receive from any source cannot be canceled
	quirkNoCancelRestart                      // a persistent receive cannot be canceled
	quirkNoStartall                           // starting several persistent collectives in one call is wrong
	quirkNoMultiple                           // MPI_THREAD_MULTIPLE is granted and not sound
	quirkNilBuffer                            // a null buffer with a count crashes
	quirkSilentMismatch                       // mismatched calls end without an error, or never
	quirkSignals                              // replaced signal handlers break a Go program
	quirkULFM                                 // the ULFM functions end the process
	quirkCUDACrash                            // asking for CUDA crashes a library built without it
	quirkAlone                                // messages of several threads on a communicator of one rank hang
	quirkBuiltCUDA                            // its answer about device memory is how it was built
	quirkOwed                                 // MPI_Finalize waits until all sends are received
	quirkExit                                 // an atexit function reports the end of a rank to the launcher
)

// quirk is a defect or trap of some versions of libraries.
type quirk struct {
	kind         quirkKind
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
		kind: quirkOverrun, vendor: anyOpenMPI,
		wrong:    "the library writes a message longer than its receive past the end of the buffer, if the message is long enough for rendezvous. It returns MPI_ERR_TRUNCATE afterwards",
		does:     "receive short messages in a separate buffer; learn the length of longer ones first; compare the ranks' calls before a collective, or run it as messages",
		evidence: "measured with 4.1.4; the code is the same in 5.0.10 and in the development branch",
	},
	{
		kind: quirkSilentCut, vendor: anyOpenMPI,
		wrong:    "a rank sends itself a message below 1000 bytes that is longer than a receive posted before. The message is cut and there is no error",
		does:     "receive in a buffer that is longer than asked for, or learn the length first",
		evidence: "measured with 4.1.4; other releases not tried",
	},
	{
		kind: quirkNoLength, vendor: anyMPICH,
		wrong:    "of a message longer than its receive, the library writes only those pieces that arrive separately and fit, mostly none. Source and tag in the status are right, the length is never set",
		does:     "return ErrTruncate with source and tag, without the length",
		evidence: "measured with 4.0.2 over UCX (50 to 1 000 000 bytes, from the same and another rank, posted before and after; of 8187 bytes for 8180 the first 8168 arrive); other devices not tried",
	},
	{
		kind: quirkNoLong, vendor: anyMPICH, colls: []backend.Coll{backend.Bcast},
		wrong:    "MPI_Ibcast and MPI_Bcast_init of more than 2^31-1 bytes return an error on the receiving ranks, although all data arrives. Large counts and derived types make no difference",
		does:     "run these as messages",
		evidence: "measured with 4.0.2 (2 ranks; 11 other nonblocking collectives are right); other releases not tried",
	},
	{
		kind: quirkNoPersistent, vendor: "MPICH", from: "4.0", before: "4.3", colls: []backend.Coll{backend.Gather},
		wrong:    "MPI_Gather_init sends what the buffers held when it was called, not when the operation is started",
		does:     "run persistent Gather as messages",
		evidence: "measured with 4.0.2 (1 to 4 and 8 ranks); pmodels/mpich#7078 (4.1.2), corrected by #7081 in August 2024",
	},
	{
		kind: quirkNoPersistent, vendor: "MPICH", from: "4.0", before: "4.2", colls: []backend.Coll{backend.Allgather},
		wrong:    "if the number of ranks is a power of two, MPI_Allgather_init gives wrong results from its second start on",
		does:     "run persistent Allgather as messages",
		evidence: "measured with 4.0.2 (2, 4 and 8 ranks); pmodels/mpich#6423, corrected by #6425 in March 2023",
	},
	{
		kind: quirkNoPersistent, vendor: "MPICH", from: "4.0", colls: []backend.Coll{backend.Scatter},
		wrong:    "from its second start on, MPI_Scatter_init receives nothing (2 ranks) or fails (3 and more). With 4.2 it never ends in place",
		does:     "run persistent Scatter as messages",
		evidence: "measured with 4.0.2 (2 to 4 and 8 ranks); pmodels/mpich#7607, #7550 (in no release known to us); the compatibility notes of cobre-rs/ferrompi (4.2.0, 4.2.1, 4.2.3)",
	},
	{
		kind: quirkNoPersistent, vendor: "MPICH", from: "4.1", colls: []backend.Coll{backend.Bcast},
		wrong:    "MPI_Bcast_init of long data on many ranks gives wrong results from its second start on",
		does:     "run persistent Bcast as messages",
		evidence: "pmodels/mpich#7550 (2025, in no release known to us); measured to be right with 4.0.2 (1 to 4 and 8 ranks)",
	},
	{
		kind: quirkNoPersistent, vendor: derived, colls: []backend.Coll{backend.Gather, backend.Allgather, backend.Scatter, backend.Bcast},
		wrong:    "derivatives of MPICH may have the defects of its persistent collectives above",
		does:     "run these as messages",
		evidence: "not tried; we do not know which MPICH a release derives from",
	},
	{
		kind: quirkNoInPlace, vendor: anyMPICH, from: "3.4", before: "4.2", colls: []backend.Coll{backend.Reduce}, inPlace: true,
		wrong:    "MPI_Reduce in place, above 2 KiB, crashes the process on a root other than rank 0",
		does:     "copy the input instead of working in place",
		evidence: "measured with 4.0.2 (2 to 5 ranks; the nonblocking and persistent forms are right); pmodels/mpich#6540 (4.0.2, 4.1.1), corrected by #6543 in May 2023",
	},
	{
		kind: quirkNoNative, vendor: anyMPICH, from: "3.4", before: "4.0", colls: []backend.Coll{backend.Reduce},
		wrong:    "MPI_Reduce crashes if the receive buffer is null on a rank other than the root",
		does:     "run Reduce as messages",
		evidence: "pmodels/mpich#5700 (3.4.2); measured to be right with 4.0.2",
	},
	{
		kind: quirkWrongOp, vendor: anyMPICH,
		ops:      []backend.OpCode{backend.OpMin, backend.OpMax},
		kinds:    []backend.Kind{backend.Uint8, backend.Uint16, backend.Uint32, backend.Uint64},
		wrong:    "MPI_MIN and MPI_MAX compare unsigned integers of 8 to 64 bits as if they were signed",
		does:     "use operations in Go",
		evidence: "measured with 4.0.2 (MPI_UINT8_T to MPI_UINT64_T and MPI_UNSIGNED_CHAR); other releases not tried",
	},
	{
		kind: quirkWrongOp, vendor: anyOpenMPI,
		ops:      []backend.OpCode{backend.OpSum},
		kinds:    []backend.Kind{backend.Int8, backend.Int16, backend.Uint8, backend.Uint16},
		wrong:    "MPI_SUM of integers of 8 and 16 bits saturates instead of wrapping around, where it uses the vector instructions of x86",
		does:     "use operations in Go",
		evidence: "measured with 4.1.4; other releases not tried",
	},
	{
		kind: quirkNoInPlace, vendor: anyMPICH, colls: []backend.Coll{backend.ReduceScatter}, inPlace: true,
		wrong:    "MPI_Reduce_scatter in place with different counts ends the process with a failed assertion (memory ranges overlap). This holds for the blocking, nonblocking and persistent forms",
		does:     "copy the input instead of working in place",
		evidence: "measured with 4.0.2 (4 and 8 ranks, 20 011 to 20 014 numbers of 8 bytes); other releases not tried",
	},
	{
		kind: quirkNoInPlace, vendor: anyOpenMPI, before: "4.1.3", colls: []backend.Coll{backend.Alltoallv}, inPlace: true,
		wrong:    "MPI_Alltoallv in place gives wrong results",
		does:     "copy the input instead of working in place",
		evidence: "release notes of Open MPI 4.1.3",
	},
	{
		kind: quirkNoInPlace, vendor: anyOpenMPI, from: "6.0a1", colls: []backend.Coll{backend.Reduce, backend.Allreduce}, inPlace: true,
		wrong:    "MPI_Allreduce in place crashes the process if the component acoll is chosen",
		does:     "copy the input instead of working in place",
		evidence: "open-mpi/ompi#13736, #14439 (open)",
	},
	{
		kind: quirkNoStartall, vendor: anyMPICH, before: "4.2",
		wrong:    "in builds with the device ch3, MPI_Startall of persistent collectives reads uninitialized memory",
		does:     "start them one by one",
		evidence: "pmodels/mpich#6738, #6739",
	},
	{
		kind: quirkNoCancelSend, vendor: anyMPICH,
		wrong:    "MPI_Cancel of a send does nothing, and MPI_Wait does not return until the message is received",
		does:     "do not cancel; an abandoned send keeps its buffer, and its communicator is broken",
		evidence: "pmodels/mpich#5775, #2266, #2270 (will not be changed; MPI-4 deprecates it)",
	},
	{
		kind: quirkNoCancelSend, vendor: anyOpenMPI,
		wrong:    "MPI_Cancel of a send does nothing, and MPI_Wait does not return until the message is received",
		does:     "do not cancel; an abandoned send keeps its buffer, and its communicator is broken",
		evidence: "open-mpi/ompi#9626, #8078",
	},
	{
		kind: quirkNoCancelAny, vendor: "MPICH", from: "5.0.0a1", before: "5.0.1",
		wrong:    "MPI_Cancel of a receive from any source does not work",
		does:     "do not cancel; an abandoned receive keeps its buffer, and its communicator is broken",
		evidence: "release notes of MPICH 5.0.1; measured to be right with 4.0.2",
	},
	{
		kind: quirkNoCancelRestart, vendor: "Cray MPICH",
		wrong:    "MPI_Cancel of a persistent receive crashes",
		does:     "start a new nonblocking receive at each start",
		evidence: "ICLDisco/parsec#519",
	},
	{
		kind: quirkNoMultiple, vendor: anyOpenMPI, before: "3.0",
		wrong:    "MPI_THREAD_MULTIPLE hangs",
		does:     "ask for MPI_THREAD_SERIALIZED; Init fails unless the program asked for it or allows a lower level",
		evidence: "open-mpi/ompi#594, #1408; Open MPI's documentation: robust from 3.0 on",
	},
	{
		kind: quirkAlone, vendor: anyMPICH, from: "4.0",
		wrong:    "on a communicator of one rank, messages that two threads send and receive hang",
		does:     "in a job of one rank, make one call at a time. Communicators of one rank in larger jobs are not protected",
		evidence: "measured with 4.0.2: a C program of two threads stops after 1 to some thousand messages",
	},
	{
		kind: quirkNilBuffer, vendor: anyOpenMPI,
		wrong:    "a null buffer with a count above 0 crashes the process",
		does:     "check arguments before the call",
		evidence: "measured with 4.1.4",
	},
	{
		kind: quirkSilentMismatch, vendor: anyMPICH,
		wrong:    "of 9 collectives that the ranks call differently, none is an error on every rank, 4 end with wrong results and no error, and 2 never end. Unequal lengths may also end the job, whatever the error handler",
		does:     "compare the calls beforehand if Config.Check is set",
		evidence: "measured with 4.0.2; the end of the job with 4.2.1 (Fatal error in internal_Allgather: Message truncated)",
	},
	{
		kind: quirkSilentMismatch, vendor: anyOpenMPI,
		wrong:    "of 9 collectives that the ranks call differently, 1 is an error on every rank, 5 end with wrong results and no error, and 2 never end",
		does:     "compare the calls beforehand if Config.Check is set, and always if a buffer could be overrun (see above)",
		evidence: "measured with 4.1.4",
	},
	{
		kind: quirkSignals, vendor: anyMPICH,
		wrong:    "when the library is loaded, UCX replaces the signal stack and the handlers of SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGHUP. MPI_Init replaces that of SIGUSR1. A nil dereference is then no longer a panic, and SIGHUP and SIGUSR1 end the program",
		does:     "set UCX_HANDLE_ERRORS and UCX_DEBUG_SIGNO before loading; after loading and after MPI_Init, restore every handler that has changed",
		evidence: "measured with 4.0.2 and UCX 1.13.1",
	},
	{
		kind: quirkSignals, vendor: anyOpenMPI,
		wrong:    "UCX and PSM2, where the library uses them, replace signal handlers. Open MPI itself leaves Go's alone",
		does:     "as for MPICH",
		evidence: "measured with 4.1.4, which by default uses neither on one node",
	},
	{
		kind: quirkOwed, vendor: anyMPICH,
		wrong:    "MPI_Finalize waits until abandoned sends are received. With a newer UCX it ends the process with a failed assertion",
		does:     "when the world is closed, receive and discard what the others have sent; a rank that still owes a message after 5 s does not call MPI_Finalize",
		evidence: "measured with 4.0.2 over UCX 1.13.1, and 4.2.1 over UCX 1.18.1",
	},
	{
		kind: quirkExit, vendor: "MPICH",
		wrong:    "a function registered with atexit tells the launcher that a rank ended well. A Go program never calls it. So mpiexec kills the ranks that are still in MPI_Finalize, and the job fails",
		does:     "after MPI_Finalize, call what the library registered for the end of the process",
		evidence: "measured with 4.2.1 (of jobs with 3 ranks on 2 processors about a third failed); 4.0.2 tells the launcher in MPI_Finalize",
	},
	{
		kind: quirkULFM, vendor: anyMPICH, from: "3.4",
		wrong:    "in builds with the device ch4, MPIX_Comm_revoke, MPIX_Comm_agree, MPIX_Comm_shrink and MPIX_Comm_failure_ack end the process with a failed assertion, even if no rank has failed",
		does:     "call them only if the library reports the device ch3",
		evidence: "measured with 4.0.2 (ch4:ucx, 2 and 4 ranks); the code is the same in the development branch of 2023 (src/mpid/ch4/src/ch4_comm.c); pmodels/mpich#3483 and #7706 are in no release known to us",
	},
	{
		kind: quirkCUDACrash, vendor: anyOpenMPI, before: "5.0",
		wrong:    "OMPI_MCA_opal_cuda_support=1 crashes MPI_Init of a library that was built without CUDA",
		does:     "do not set it; Config.MPI.CUDA \"on\" needs it in the environment",
		evidence: "measured with 4.1.4",
	},
	{
		kind: quirkBuiltCUDA, vendor: anyOpenMPI, before: "5.0",
		wrong:    "MPIX_Query_cuda_support reports whether the library was built with CUDA, not whether it is switched on. Builds that switch it off in a parameter file, such as conda's, answer yes and crash on device memory",
		does:     "believe the answer only if OMPI_MCA_opal_cuda_support or OMPI_MCA_mpi_cuda_support is on in the environment",
		evidence: "the code of 4.1 (ompi/mpiext/cuda returns OPAL_CUDA_SUPPORT) and the parameters of conda-forge's package; a build with CUDA was not tried",
	},
}

// quirks are the defects of one library.
type quirks []quirk

// quirksIn returns the known defects of a maker's release, as far as it is known. Anything unknown is assumed to be the worst.
func quirksIn(m maker, r release) quirks {
	var of quirks
	for _, q := range quirkTable {
		if q.concerns(m) && q.concernsRelease(m, r) {
			of = append(of, q)
		}
	}
	return of
}

// concerns reports whether a row is about a maker, whatever the version.
func (q *quirk) concerns(by maker) bool {
	switch q.vendor {
	case anyMPICH:
		return by.mpich()
	case anyOpenMPI:
		return by.openmpi()
	case derived:
		return by.mpich() && by != makeMPICH
	}
	m := makerOf("", q.vendor, release{})
	return by == m || by == makeUnknown || by == makeUnknownMPICH && m.mpich()
}

// concernsRelease reports whether a row that concerns a maker is about a release of it. The bounds
// of a row are in one maker's numbering; libraries of other makers count as within them.
func (q *quirk) concernsRelease(m maker, r release) bool {
	numbered := m == makerOf("", q.vendor, release{}) || q.vendor == anyMPICH && m == makeMPICH || q.vendor == anyOpenMPI && m == makeOpenMPI
	return !numbered || r.within(q.from, q.before)
}

// has reports whether the library has a quirk of a kind.
func (qs quirks) has(kind quirkKind) bool {
	return slices.ContainsFunc(qs, func(q quirk) bool { return q.kind == kind })
}

// overruns reports whether a long message may be written past the end of a shorter receive.
func (qs quirks) overruns() bool { return qs.has(quirkOverrun) }

// persistent reports whether the library's own persistent form of a collective is sound, in place
// or not.
func (qs quirks) persistent(coll backend.Coll, inPlace bool) bool {
	return qs.native(coll) && qs.sound(quirkNoPersistent, coll, inPlace) && qs.sound(quirkNoInPlace, coll, inPlace)
}

// long reports whether the library's own nonblocking collective is sound above 2^31-1 bytes.
func (qs quirks) long(coll backend.Coll) bool { return qs.sound(quirkNoLong, coll, true) }

// native reports whether the library's own collective is sound at all.
func (qs quirks) native(coll backend.Coll) bool { return qs.sound(quirkNoNative, coll, true) }

// inPlace reports whether a collective may be called with MPI_IN_PLACE, in any form.
func (qs quirks) inPlace(coll backend.Coll) bool { return qs.sound(quirkNoInPlace, coll, true) }

func (qs quirks) sound(kind quirkKind, coll backend.Coll, inPlace bool) bool {
	return !slices.ContainsFunc(qs, func(q quirk) bool {
		return q.kind == kind && slices.Contains(q.colls, coll) && (inPlace || !q.inPlace)
	})
}

// multiple reports whether MPI_THREAD_MULTIPLE is sound if it is granted.
func (qs quirks) multiple() bool { return !qs.has(quirkNoMultiple) }
