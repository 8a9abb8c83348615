//go:build cgo && linux

package mpi

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// process is what all communicators of this process share.
type process struct {
	lib    *libmpi.Library
	level  libmpi.Level
	maxTag int
	folds  folds
	maker  mpiquirks.Implementation
	quirks mpiquirks.Quirks
	owned  bool // cohort initialized MPI and finalizes it
	thread *thread
	ending atomic.Pointer[func(end func()) error] // see comm.End

	agreed        bool // blocking collectives are preceded by the exchange of fingerprints
	checked       bool // any rank asked for checks
	bounded       bool // operations of any rank can end early
	deterministic bool
	oneThread     bool // on some rank only one thread may call MPI: it enters no collective before all ranks have come to it
	polled        bool // no blocking call may be made: one call at a time
	guard         bool // receives are guarded
	noLength      bool // the length of a message that is too long is unknown
	small         int  // bytes of a collective that fit into eager messages
	large         bool // the library takes counts above 2^31-1
	persistent    bool // it has persistent collectives
	drains        bool // the ranks receive all messages before they finalize MPI; see drain

	kept struct { // buffers that the library may still write to
		sync.Mutex
		bufs [][]byte
	}

	departed struct { // the world ranks that have closed the world, and when this rank learned of it
		sync.Mutex
		at map[int]time.Time
	}

	nodes    []int    // node of each world rank
	hosts    []string // name of each node; only this one's until the ranks have agreed
	world    *comm
	parent   libmpi.Comm // all other communicators are made on it, and cohort sends nothing there
	engine   engine
	failed   atomic.Pointer[failure] // a rank has failed
	calling  sync.Mutex              // held during a call that excludes all others; see together
	sampler  sampler
	copied   uint32 // bytes that rest has counted
	sound    sound
	types    types
	ops      ops
	settings []mpiquirks.Setting
	caps     backend.Caps

	whyDevice  string // why caps.DeviceMemory is what it is
	direct     uint32 // the deviceColls
	added      bool   // GOMAXPROCS was raised
	unprofiled bool   // Profiling was requested, and the library has none
}

// keep keeps the buffers of a failed collective alive: the library may still receive into them.
func (p *process) keep(bufs ...[]byte) {
	p.kept.Lock()
	p.kept.bufs = append(p.kept.bufs, bufs...)
	p.kept.Unlock()
}

// folds maps tags below 0 to tags of ctl: those of collectives to one half of the range, those of persistent ones to a
// quarter, then notices, and those of CreateGroup to the rest. A tag of a collective repeats after as many operations of
// its kind as there are tags; by then the earlier operation is long complete. Those of CreateGroup all have their own.
type folds struct{ calls, persistent int }

func newFolds(maxTag int) folds {
	bits := 0
	for bits < 30 && 1<<(bits+1) <= maxTag {
		bits++
	}
	return folds{calls: 1 << (bits - 1), persistent: 1 << (bits - 2)}
}

const (
	firstPersistent = 1 << 30   // of -1-tag; see backend.PersistentTag
	firstGroup      = 3<<29 + 1 // of -1-tag; see backend.GroupTag
	notices         = 16        // more than the tags of notices
)

func (f folds) tag(t int) int {
	u := -1 - t
	if u < firstPersistent {
		return u & (f.calls - 1)
	}
	if u >= firstGroup {
		return f.notice() + notices + min(u-firstGroup, f.persistent-notices-1) // the last one is that of NoTag
	}
	return f.calls + (u-firstPersistent)&(f.persistent-1)
}

// notice is the tag of notices that the communicator is broken.
func (f folds) notice() int { return f.calls + f.persistent }

// report and answer are the tags of the messages about retired communicators.
func (f folds) report() int { return f.notice() + 1 }
func (f folds) answer() int { return f.notice() + 2 }

// failure is the tag of the message of a rank that fails.
func (f folds) failure() int { return f.notice() + 3 }

// last is the tag of the reports in a round of drain.
func (f folds) last(round int) int { return f.notice() + 4 + round }

// commit is the tag of the messages of transactions; see together.
func (f folds) commit() int { return f.notice() + 6 }

const controlTags = 7 // from notice to commit

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

// sound lists which of the library's collectives may be used.
type sound [backend.NeighborAlltoallv + 1]struct {
	native, persistent, long bool
	inPlace                  [backend.Persistent + 1]bool // by form
}

func newSound(q mpiquirks.Quirks) (s sound) {
	for c := range s {
		coll := backend.Coll(c)
		s[c].native, s[c].persistent, s[c].long = q.Native(coll), q.Persistent(coll), q.Long(coll)
		for form := range s[c].inPlace {
			s[c].inPlace[form] = q.InPlace(coll, backend.Form(form))
		}
	}
	return s
}

// addProcessor raises GOMAXPROCS from 1 to 2. With one, as on a rank that is bound to a core, Go's
// scheduler takes the processor from a call into the library that lasts 20 µs, and gives it to a
// thread that looks for other work. That thread runs on the core of the call, and delays it. While
// there is an idle processor, the scheduler leaves calls alone for 10 ms. A program that is started
// with the variable GOMAXPROCS keeps its value.
func (p *process) addProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
		p.added = true
	}
}

// removeProcessor undoes addProcessor, unless the program has changed GOMAXPROCS since.
func (p *process) removeProcessor() {
	if p.added && runtime.GOMAXPROCS(0) == 2 {
		runtime.SetDefaultGOMAXPROCS()
	}
}
