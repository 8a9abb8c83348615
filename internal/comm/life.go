package comm

import (
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// State is where a communicator is in its life:
//
//	Open → Quiescing → Closed
//
// A communicator is Broken between Open and Quiescing if an operation has failed in it.
type State uint32

// The states.
const (
	Open      State = iota // operations can begin
	Quiescing              // Close has begun: no operation begins any more, changes under way may end
	Closed                 // the backend's communicator is closed
	Broken                 // open, but operations return ErrBroken; Agree, Shrink and Close work
)

// life is the life of a communicator in one word, so that each step is one atomic operation: the state
// in the lowest bits; whether a goroutine has taken the communicator for a collective; and the number
// of changes under way. A change is the making or the collective closing of a window. If this rank
// closed the communicator in between, the others would wait for it in the library. The backend stores
// whether an open communicator is broken.
type life struct{ word atomic.Uint32 }

const (
	stateBits = 3
	taken     = 1 << 2
	change    = 1 << 3
)

var (
	errClosed       = fault(backend.ErrClosed, "the communicator is closed")
	errBusy         = fault(backend.ErrBusy, "another goroutine is in a collective on this communicator; use Dup to give each its own")
	errInCollective = fault(backend.ErrBusy, "the communicator was closed during a collective")
)

// ended reports whether Close has begun.
func (l *life) ended() bool { return l.word.Load()&stateBits != 0 }

// State returns the state of a communicator that is not nil.
func (c *Comm) State() State { return c.core.state() }

func (k *core) state() State {
	s := State(k.life.word.Load() & stateBits)
	if s == Open && k.bc.Broken() != nil {
		return Broken
	}
	return s
}

// refuse returns the error of an operation that cannot begin: because of the communicator's state, or
// else because of the argument error bad.
func (k *core) refuse(bad error) error {
	switch k.state() {
	case Open:
		return bad
	case Broken:
		return &backend.Broken{Cause: k.bc.Broken()}
	}
	return errClosed
}

// take reserves the communicator for the caller's collective.
func (l *life) take() error {
	for {
		switch w := l.word.Load(); {
		case w&stateBits != 0:
			return errClosed
		case w&taken != 0:
			return errBusy
		case l.word.CompareAndSwap(w, w|taken):
			return nil
		}
	}
}

// leave gives back what the caller has got: taken, change, or both at once.
func (l *life) leave(bits uint32) { l.word.Add(-bits) }

// beginChange begins a change, unless Close has begun. Either Close waits until the
// caller leaves, or beginChange fails.
func (l *life) beginChange() error {
	for {
		switch w := l.word.Load(); {
		case w&stateBits != 0:
			return errClosed
		case l.word.CompareAndSwap(w, w+change):
			return nil
		}
	}
}

// quiesce begins Close. It returns false if another Close has begun.
func (l *life) quiesce() bool {
	for {
		switch w := l.word.Load(); {
		case w&stateBits != 0:
			return false
		case l.word.CompareAndSwap(w, w|uint32(Quiescing)):
			return true
		}
	}
}

// takeLast waits until no change is under way, until end at most. Then it takes the communicator, and
// returns false if a goroutine is still in a collective.
func (l *life) takeLast(end time.Time) bool {
	wait(end, func() bool { return l.word.Load() < change })
	return l.word.Or(taken)&taken == 0
}

// close ends the last state before Closed.
func (l *life) close() { l.word.Add(uint32(Closed - Quiescing)) }

// wait polls until done returns true, until end at most.
func wait(end time.Time, done func() bool) {
	for ; !done() && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
	}
}
