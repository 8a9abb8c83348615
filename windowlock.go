package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/window"
)

// LockKind is how the part of a window is locked.
type LockKind uint8

// The kinds of locks (MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE).
const (
	LockShared    = LockKind(window.Shared)    // several ranks may have it, to read
	LockExclusive = LockKind(window.Exclusive) // one rank may have it, to write
)

// String names the kind: shared, exclusive.
func (k LockKind) String() string { return window.Kind(k).String() }

// LockGuard is a lock that the calling rank has on the part of a rank.
type LockGuard struct {
	s      *shared
	rank   int
	ticket uint64
}

// LockAllGuard is the locks that the calling rank has on the parts of all ranks.
type LockAllGuard struct {
	s      *shared
	ticket uint64
}

// Lock waits until the calling rank has the lock of a rank's part (MPI_Win_lock).
// Locks order accesses among ranks that use them: nothing keeps a rank without
// one from reading and writing.
//
// A rank has each lock once at most, whatever its goroutines. Who waits to have a
// lock exclusively goes before those who come to share it.
//
// Errors: [ErrRank]; [ErrWin] for a kind that does not exist, and if the rank has
// the lock already or another of its goroutines waits for it; [ErrClosed].
//
// Deadline: [ErrTimeout], which says who has the lock.
func (w *SharedWindow[T]) Lock(kind LockKind, rank int) (*LockGuard, error) {
	g, err := (*untyped)(w).lock(kind, rank) // a value, so that the caller's stack can have it
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// LockAll waits until the calling rank shares the locks of all parts
// (MPI_Win_lock_all).
//
// Errors and deadline: as those of Lock.
func (w *SharedWindow[T]) LockAll() (*LockAllGuard, error) {
	g, err := (*untyped)(w).lockAll()
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// untyped is a window of no type, to which one of any type can be converted where
// it costs nothing. Calls of base cost too much for Lock and LockAll to be inlined,
// and then their guards would be on the heap.
type untyped struct{ s *shared }

func (w *untyped) base() *shared {
	if w == nil {
		return nil
	}
	return w.s
}

func (w *untyped) lock(kind LockKind, rank int) (LockGuard, error) {
	s := w.base()
	if s == nil {
		return LockGuard{}, s.failed("lock", rank, noWindow)
	}
	t := s.begin(flight.Lock, rank)
	ticket, err := s.win.Lock(s.c.bound, window.Kind(kind), rank)
	s.c.core.ended(t, err)
	if err != nil {
		return LockGuard{}, s.failed("lock", rank, err)
	}
	return LockGuard{s, rank, ticket}, nil
}

func (w *untyped) lockAll() (LockAllGuard, error) {
	s := w.base()
	if s == nil {
		return LockAllGuard{}, s.failed("lockall", Undefined, noWindow)
	}
	t := s.begin(flight.LockAll, Undefined)
	ticket, err := s.win.LockAll(s.c.bound)
	s.c.core.ended(t, err)
	if err != nil {
		return LockAllGuard{}, s.failed("lockall", Undefined, err)
	}
	return LockAllGuard{s, ticket}, nil
}

// begin has the flight recorder note a lock.
func (s *shared) begin(kind flight.Kind, rank int) flight.Ticket {
	k := s.c.core
	return k.recorder.Begin(k.message(kind, backend.Blocking), 0, 0, flight.Pair(uint32(int32(rank)), uint32(s.number)))
}

var noLock = fault(ErrWin, "the lock is nil")

// Flush is Sync, under the lock (MPI_Win_flush).
//
// Errors: [ErrWin] after Unlock, [ErrClosed].
func (g *LockGuard) Flush() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("flush", Undefined, noLock)
	}
	if err := g.s.win.Flush(g.rank, g.rank, g.ticket); err != nil {
		return g.s.failed("flush", g.rank, err)
	}
	return nil
}

// Unlock makes what was written visible to whoever locks next, and gives the lock
// back (MPI_Win_unlock).
//
// Errors: [ErrWin] if that was done before, [ErrClosed].
func (g *LockGuard) Unlock() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("unlock", Undefined, noLock)
	}
	if err := g.s.win.Unlock(g.rank, g.ticket); err != nil {
		return g.s.failed("unlock", g.rank, err)
	}
	return nil
}

// Flush is Sync, under the locks, for what concerns one rank's part.
//
// Errors: [ErrRank]; [ErrWin] after Unlock, [ErrClosed].
func (g *LockAllGuard) Flush(rank int) error { return g.flush("flush", rank, rank) }

// FlushAll is Flush for the parts of all ranks (MPI_Win_flush_all).
//
// Errors: [ErrWin] after Unlock, [ErrClosed].
func (g *LockAllGuard) FlushAll() error { return g.flush("flushall", 0, Undefined) }

func (g *LockAllGuard) flush(op string, rank, peer int) error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed(op, peer, noLock)
	}
	if err := g.s.win.Flush(rank, 0, g.ticket); err != nil {
		return g.s.failed(op, peer, err)
	}
	return nil
}

// Unlock gives all the locks back (MPI_Win_unlock_all).
//
// Errors: [ErrWin] if that was done before, [ErrClosed].
func (g *LockAllGuard) Unlock() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("unlock", Undefined, noLock)
	}
	if err := g.s.win.UnlockAll(g.ticket); err != nil {
		return g.s.failed("unlock", Undefined, err)
	}
	return nil
}
