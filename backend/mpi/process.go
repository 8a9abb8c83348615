//go:build cgo && linux

package mpi

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// process is what all communicators of this process share. Open fills in the first block, which then stays as it is. Any
// goroutine may use the second.
type process struct {
	lib    library
	job    job
	tags   tags
	types  types
	ops    ops
	caps   backend.Caps
	device device
	world  *comm
	parent libmpi.Comm // all other communicators are made on it, and cohort sends nothing there

	engine   engine
	sampler  sampler
	calling  sync.Mutex // held during a call that excludes all others; see together
	copied   uint32     // bytes that rest has counted
	failed   atomic.Pointer[failure]
	departed departures
	ending   ending
}

// library is the MPI library of this process, and what is known about it.
type library struct {
	*libmpi.Library
	implementation mpiquirks.Implementation
	quirks         mpiquirks.Quirks
	settings       []mpiquirks.Setting // of its environment
	unprofiled     bool                // Profiling was requested, and the library has none

	level      libmpi.Level
	maxTag     int
	large      bool // it takes counts above 2^31-1
	persistent bool // it has persistent collectives
	guard      bool // it writes past the end of a receive buffer, so receives are guarded; see the package's documentation
	colls      usableColls
}

// job is what the ranks agreed on when they joined. It is the same on all of them.
type job struct {
	agreement     agreement
	deterministic bool
	oneThread     bool     // on some rank only one thread may call MPI: it enters no collective before all ranks have come to it
	polled        bool     // on some rank calls exclude each other, so none may block
	drains        bool     // cohort finalizes MPI on all ranks, which receive all messages before; see drain
	tuned         bool     // on some rank the environment chooses Open MPI's algorithms; see isTuned
	small         int      // bytes of a collective that fit into eager messages
	nodes         []int    // node of each world rank
	hosts         []string // name of each node; only this one's until the ranks have agreed
}

// agreement says when the ranks exchange fingerprints before a blocking collective. That of the job is the largest that a
// rank asks for.
type agreement byte

const (
	agreeNever   agreement = iota
	agreeToEnd             // always: operations of some rank can end early, and the others learn why
	agreeToCheck           // always: some rank asked for checks
)

// agrees reports whether blocking collectives are preceded by the exchange of fingerprints.
func (j *job) agrees() bool { return j.agreement != agreeNever }

// checked reports whether any rank asked for checks.
func (j *job) checked() bool { return j.agreement == agreeToCheck }

// device says what the library does with device memory.
type device struct {
	why   string // why caps.DeviceMemory is what it is
	colls uint32 // see deviceColls
}

// ending is what the world's Close needs (close.go).
type ending struct {
	foreign bool                                   // other code initialized MPI, and finalizes it
	thread  *thread                                // the one that initialized MPI; nil if it is the program's own
	run     atomic.Pointer[func(end func()) error] // see comm.End
	added   bool                                   // GOMAXPROCS was raised

	kept struct { // buffers that the library may still write to
		sync.Mutex
		bufs [][]byte
	}
}

// keep keeps the buffers of a failed collective alive: the library may still receive into them.
func (p *process) keep(bufs ...[]byte) {
	kept := &p.ending.kept
	kept.Lock()
	kept.bufs = append(kept.bufs, bufs...)
	kept.Unlock()
}

// usableColls says which of the library's collectives give right results, and how.
type usableColls [backend.NeighborAlltoallv + 1]struct {
	native     bool                         // the library's function may be used at all
	persistent bool                         // also its persistent form
	long       bool                         // the other forms also above 2^31-1 bytes
	inPlace    [backend.Persistent + 1]bool // with MPI_IN_PLACE, by form
}

func newUsableColls(q mpiquirks.Quirks) (u usableColls) {
	for c := range u {
		coll := backend.Coll(c)
		u[c].native, u[c].persistent, u[c].long = q.Native(coll), q.Persistent(coll), q.Long(coll)
		for form := range u[c].inPlace {
			u[c].inPlace[form] = q.InPlace(coll, backend.Form(form))
		}
	}
	return u
}

// thread runs functions on an OS thread that nothing else uses.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{make(chan func())}
	go t.run()
	return t
}

func (t *thread) run() {
	runtime.LockOSThread()
	for f := range t.work {
		f()
	}
	// The goroutine does not unlock its thread, which ends with it: the library may have changed it.
}

// do runs f and waits for it.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { defer close(done); f() }
	<-done
}

// end lets the thread end once it has nothing to do.
func (t *thread) end() {
	if t != nil {
		close(t.work)
	}
}

// addProcessor raises GOMAXPROCS from 1 to 2. With one, as on a rank that is bound to a core, Go's
// scheduler takes the processor from a call into the library that lasts 20 µs, and gives it to a
// thread that looks for other work. That thread runs on the core of the call, and delays it. While
// there is an idle processor, the scheduler leaves calls alone for 10 ms. A program that is started
// with the variable GOMAXPROCS keeps its value.
func (p *process) addProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
		p.ending.added = true
	}
}

// removeProcessor undoes addProcessor, unless the program has changed GOMAXPROCS since.
func (p *process) removeProcessor() {
	if p.ending.added && runtime.GOMAXPROCS(0) == 2 {
		runtime.SetDefaultGOMAXPROCS()
	}
}
