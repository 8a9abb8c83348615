//go:build cgo && linux

package mpi

import (
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// process is what all communicators of this process share.
type process struct {
	lib    *libmpi.Library
	level  libmpi.Level
	asked  libmpi.Level // what the level was to be
	maxTag int
	folds  folds
	maker  maker
	quirks quirks
	owned  bool // MPI was initialised here, and is finalized here
	thread *thread

	agreed        bool // blocking collectives are preceded by the exchange of fingerprints
	checked       bool // because somebody asked for checks
	bounded       bool // because any rank's operations can end early
	deterministic bool
	polled        bool // no blocking call may be made: calls come one at a time
	guard         bool // receives are guarded
	blind         bool // how long a message is that was too long is not known
	small         int  // bytes of a collective that fit into eager messages
	large         bool // the library counts above 2^31-1
	persistent    bool // it has persistent collectives
	recovers      bool // it goes on after a loss
	drains        bool // all ranks receive what is left over before they end MPI; see drain
	whyNot        string

	kept struct { // buffers that the library may still write
		sync.Mutex
		bufs [][]byte
	}

	nodes    []int    // node of each world rank
	hosts    []string // name of each node; until the ranks have agreed, of this one
	world    *comm
	engine   engine
	sampler  sampler
	sound    sound
	types    types
	ops      ops
	settings []Setting
	asks     Settings
	caps     backend.Caps

	whyDevice  string // why caps.DeviceMemory is what it is
	unprofiled bool   // Profiling was asked for, of which the library has none
}

// keep keeps the buffers of a collective that failed: receives of it may be pending.
func (p *process) keep(bufs ...[]byte) {
	p.kept.Lock()
	p.kept.bufs = append(p.kept.bufs, bufs...)
	p.kept.Unlock()
}

// folds maps tags below 0 to those of ctl: collectives' in one half of the range,
// persistent ones' in a quarter, notices above. Tags of one kind repeat after as
// many operations as there are tags, by when the earlier ones are long over.
type folds struct{ calls, persistent int }

func newFolds(maxTag int) folds {
	bits := 0
	for bits < 30 && 1<<(bits+1) <= maxTag {
		bits++
	}
	return folds{calls: 1 << (bits - 1), persistent: 1 << (bits - 2)}
}

const firstPersistent = 1 << 30 // of -1-tag; see backend.PersistentTag

func (f folds) tag(t int) int {
	u := -1 - t
	if u < firstPersistent {
		return u & (f.calls - 1)
	}
	return f.calls + (u-firstPersistent)&(f.persistent-1)
}

// notice is the tag of notices that a communicator is broken.
func (f folds) notice() int { return f.calls + f.persistent }

// last is the tag of what ranks tell when the world is closed, in a round of drain.
func (f folds) last(round int) int { return f.notice() + 1 + round }

// thread runs functions on one thread that nothing else runs on.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{make(chan func())}
	go t.run()
	return t
}

func (t *thread) run() {
	lockThread()
	for f := range t.work {
		f()
	}
	// The thread ends with the goroutine, which does not unlock it: the library may
	// have changed it.
}

// do runs f and waits for it.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() { defer close(done); f() }
	<-done
}

func (t *thread) end() { close(t.work) }

// sound is what of the library's collectives can be used, looked up beforehand.
type sound [backend.Exscan + 1]struct{ native, inPlace, persistent, long bool }

func newSound(q quirks) (s sound) {
	for c := range s {
		coll := backend.Coll(c)
		// Who works in place is known to each rank only: where either is wrong,
		// neither is the library's.
		s[c].native, s[c].inPlace, s[c].long = q.native(coll), q.inPlace(coll), q.long(coll)
		s[c].persistent = q.persistent(coll, false) && q.persistent(coll, true)
	}
	return s
}
