package comm

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/word"
)

// life decides what can begin in a communicator, and which goroutine closes it. Nothing begins once Close has begun. In
// a broken communicator, of which the backend knows, only Agree, Shrink, Revoke, Close and methods that need no other
// rank work.
//
// A goroutine that makes or closes a window together with the other ranks makes a change. It is inside the gate, and
// Close waits for it. If this rank closed the communicator in between, the others would wait for it in the library.
// Independently of changes, one goroutine at a time has taken the communicator for a collective. Close does not wait
// for that goroutine, but ends its collective.
//
// All goroutines write the word collective. The bit taken belongs to the goroutine that has set it. Close sets the bit
// closing, and nobody clears it.
//
// Invariant: nothing begins after quiesce. Close closes every window that a change has made.
type life struct {
	collective word.Uint32
	changes    gate.Gate
}

const (
	taken   = 1 << iota // a goroutine is in a collective
	closing             // Close has begun
)

var (
	errClosed = backend.CommClosed
	errBusy   = fault(backend.ErrBusy, "another goroutine is in a collective on this communicator; use Dup to give each its own")
)

// ended reports whether Close has begun.
func (l *life) ended() bool { return l.collective.Load()&closing != 0 }

// refuse returns the error of an operation that cannot begin: that the communicator is closed or broken, or else the
// argument error bad.
func (k *core) refuse(bad error) error {
	if k.life.ended() {
		return errClosed
	}
	if err := k.bc.Broken(); err != nil {
		return &backend.Broken{Cause: err}
	}
	return bad
}

// take reserves the communicator for the caller's collective.
func (l *life) take() error {
	for {
		switch w := l.collective.Load(); {
		case w&closing != 0:
			return errClosed
		case w&taken != 0:
			return errBusy
		case l.collective.CompareAndSwap(w, taken):
			return nil
		}
	}
}

// leave ends what take has begun.
func (l *life) leave() { l.collective.Add(^uint32(taken - 1)) }

// quiesce begins Close. It returns false if another Close has begun.
func (l *life) quiesce() bool {
	l.collective.Or(closing)
	return l.changes.Shut()
}

// takeLast takes the communicator for Close, for good. It returns false if a goroutine is still in a collective.
func (l *life) takeLast() bool { return l.collective.Or(taken)&taken == 0 }

// remaining returns the time until end, and at least a millisecond, because a limit of 0 means no limit.
func remaining(end time.Time) time.Duration { return max(time.Until(end), time.Millisecond) }
