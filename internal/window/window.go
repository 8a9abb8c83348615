package window

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Window is one rank's end of a window. It is safe for use by many goroutines.
type Window struct {
	comm backend.Comm
	rank int
	mem  backend.Memory
	lay  Layout

	gate.Gate // whoever uses the memory is inside; Close shuts it

	// Views of the memory, which stay set after Close.
	bytes []byte
	locks []lock

	mu      word.Mutex // guards the fields below
	holds   []hold     // by rank
	tickets uint64
}

// hold is a lock that this rank holds or waits for, if ticket is not 0.
type hold struct {
	ticket uint64
	kind   Kind
}

// New returns a window over the memory that the ranks of comm share, with the given layout.
func New(comm backend.Comm, mem backend.Memory, lay Layout) *Window {
	w := &Window{comm: comm, rank: comm.Rank(), mem: mem, lay: lay, bytes: mem.Bytes(), holds: make([]hold, len(lay.Sizes))}
	w.locks = view.Of[lock](w.bytes[:len(lay.Sizes)*lockSize])
	return w
}

// Size returns the length in bytes of the part of a rank, 0 for a rank that does not exist.
func (w *Window) Size(rank int) int {
	if rank < 0 || rank >= len(w.lay.Sizes) {
		return 0
	}
	return w.lay.Sizes[rank]
}

// Part returns the part of a rank.
func (w *Window) Part(rank int) ([]byte, error) {
	if w.IsShut() {
		return nil, errClosed
	}
	if rank < 0 || rank >= len(w.lay.Sizes) {
		return nil, w.badRank(rank)
	}
	lo := w.lay.Offsets[rank]
	hi := lo + w.lay.Sizes[rank]
	return w.bytes[lo:hi:hi], nil
}

// Sync makes what this rank has written visible before what it writes later, and lets it
// see what others have made visible: the gate's operations, which are atomic, are a barrier.
func (w *Window) Sync() error {
	if !w.Enter() {
		return errClosed
	}
	w.Leave()
	return nil
}

// Unlocked returns an error if this rank holds a lock.
func (w *Window) Unlocked() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.held(); r >= 0 {
		return backend.Faultf(backend.ErrWin, "this rank holds the lock of rank %d's part; unlock first", r)
	}
	return nil
}

// held returns the first rank whose part this rank has locked, -1 if there is none.
func (w *Window) held() int {
	return slices.IndexFunc(w.holds, func(h hold) bool { return h.ticket != 0 })
}

// Lock locks the part of a rank and returns a ticket, with which it is unlocked.
func (w *Window) Lock(b *backend.Bound, kind Kind, rank int) (uint64, error) {
	if rank < 0 || rank >= len(w.locks) {
		return 0, w.badRank(rank)
	}
	if kind != Shared && kind != Exclusive {
		return 0, backend.Faultf(backend.ErrWin, "invalid lock kind %d; want LockShared or LockExclusive", uint8(kind))
	}
	return w.lock(b, kind, rank, rank+1)
}

// LockAll takes the shared locks of the parts of all ranks.
func (w *Window) LockAll(b *backend.Bound) (uint64, error) { return w.lock(b, Shared, 0, len(w.locks)) }

// lock takes the locks of ranks lo to hi-1.
func (w *Window) lock(b *backend.Bound, kind Kind, lo, hi int) (uint64, error) {
	if !w.Enter() {
		return 0, errClosed
	}
	defer w.Leave()
	ticket, err := w.claim(kind, lo, hi)
	if err != nil {
		return 0, err
	}
	until := Until{Bound: b, Comm: w.comm}
	expired := func() error {
		if w.IsShut() {
			return errClosed
		}
		return until.Err()
	}
	for r := lo; r < hi; r++ {
		if err := w.locks[r].take(kind, w.rank, expired); err != nil {
			err = backend.While(err, fmt.Sprintf("the lock of rank %d's part: %s", r, w.locks[r].holder()))
			for q := lo; q < r; q++ {
				w.locks[q].release(kind)
			}
			w.mu.Lock()
			clear(w.holds[lo:hi])
			w.mu.Unlock()
			return 0, err
		}
	}
	return ticket, nil
}

// claim records that the locks belong to this call.
func (w *Window) claim(kind Kind, lo, hi int) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := lo; r < hi; r++ {
		if w.holds[r].ticket != 0 {
			return 0, backend.Faultf(backend.ErrWin, "this rank already holds the lock of rank %d's part, or waits for it", r)
		}
	}
	w.tickets++
	for r := lo; r < hi; r++ {
		w.holds[r] = hold{w.tickets, kind}
	}
	return w.tickets, nil
}

// Unlock releases the lock of a ticket: that of a rank's part, or all locks for rank 0 and the ticket of a
// LockAll.
func (w *Window) Unlock(rank int, ticket uint64) error {
	if err := w.enter(rank, ticket); err != nil {
		return err
	}
	defer w.leave()
	for r := rank; r < len(w.holds) && w.holds[r].ticket == ticket; r++ {
		w.locks[r].release(w.holds[r].kind)
		w.holds[r] = hold{}
	}
	return nil
}

// Flush is Sync for a rank's part under a lock.
func (w *Window) Flush(rank, lock int, ticket uint64) error {
	if rank < 0 || rank >= len(w.locks) {
		return w.badRank(rank)
	}
	if err := w.enter(lock, ticket); err != nil {
		return err
	}
	w.leave()
	return nil
}

// enter enters the gate and locks mu, unless the lock of a part does not belong to the ticket any more.
func (w *Window) enter(rank int, ticket uint64) error {
	if !w.Enter() {
		return errClosed
	}
	w.mu.Lock()
	if ticket == 0 || w.holds[rank].ticket != ticket {
		w.leave()
		return backend.Faultf(backend.ErrWin, "the lock has been released already")
	}
	return nil
}

func (w *Window) leave() {
	w.mu.Unlock()
	w.Leave()
}

// Close releases the locks that this rank holds, with an error that names them, and then the memory. A
// Lock that waits ends with ErrClosed. If the ranks close the memory together, Close calls together
// first, which makes them wait for each other. Only the first call has an effect. If a goroutine is inside for longer
// than limit, its locks stay taken, the memory stays mapped, and together gets an error to pass on.
//
// The locks of a communicator that is broken, or has lost a rank, stay taken: what they guard may be half done. Ranks
// that wait for them get the communicator's error.
func (w *Window) Close(limit time.Duration, together func(bad error) error) error {
	if !w.Shut() {
		return nil
	}
	var err, inside error
	if w.AwaitEmpty(limit) {
		err = w.releaseAll()
	} else {
		inside = backend.Faultf(backend.ErrBusy, "another goroutine has used the window for %v since Close: its memory stays mapped", limit.Round(time.Millisecond))
	}
	if w.mem.Joint() {
		if e := together(inside); cmp.Or(inside, e) != nil {
			w.mem.Abandon()
			return errors.Join(err, e)
		}
	}
	if inside != nil {
		return inside
	}
	return errors.Join(err, w.mem.Close())
}

// Together reports whether the ranks close the memory together.
func (w *Window) Together() bool { return w.mem.Joint() }

// releaseAll releases the locks that this rank holds.
func (w *Window) releaseAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.held()
	if held < 0 {
		return nil
	}
	ended := (&Until{Comm: w.comm}).Err() != nil // also by a loss
	for r, h := range w.holds {
		if h.ticket != 0 && !ended {
			w.locks[r].release(h.kind)
		}
	}
	clear(w.holds)
	return backend.Faultf(backend.ErrWin, "closed while this rank held the lock of rank %d's part", held)
}

// Until says why an operation that waits has to end: its time is up, or the communicator has ended.
type Until struct {
	Bound *backend.Bound
	Comm  backend.Comm
	start time.Time // of the first Err
}

// Err returns nil while the operation may go on.
func (u *Until) Err() error {
	if u.start.IsZero() {
		u.start = time.Now()
	}
	if err := u.Bound.Err(u.start); err != nil {
		return err
	}
	if err := u.Comm.Broken(); err != nil {
		return &backend.Broken{Cause: err}
	}
	// A probe finds out that a rank is lost, which ends every operation, and makes the progress without
	// which other ranks may not get to unlock. No message has this tag.
	_, _, err := u.Comm.Probe(nil, backend.AnySource, backend.AnyTag+1, false)
	return err
}

var errClosed error = &backend.Fault{Sentinel: backend.ErrClosed, Text: "the window is closed"}

func (w *Window) badRank(rank int) error {
	return backend.Faultf(backend.ErrRank, "rank %d of %d", rank, len(w.lay.Sizes))
}
