package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/window"
)

// LockKind is a kind of lock on a part of a window.
type LockKind uint8

// The kinds of locks (MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE).
const (
	LockShared    = LockKind(window.Shared)    // several ranks may hold it, for reading
	LockExclusive = LockKind(window.Exclusive) // one rank may hold it, for writing
)

// String returns the name of the kind: shared or exclusive.
func (k LockKind) String() string { return window.Kind(k).String() }

// LockGuard is a lock that the calling rank holds on the part of a rank.
type LockGuard struct {
	s      *shared
	rank   int
	ticket uint64
}

// LockAllGuard is the locks that the calling rank holds on the parts of all ranks.
type LockAllGuard struct {
	s      *shared
	ticket uint64
}

// Lock waits until the calling rank holds the lock of a rank's part (MPI_Win_lock). Locks order the
// accesses of ranks that use them. A rank without a lock can still read and write.
//
// The goroutines of a rank together hold each lock at most once. A rank that waits for an exclusive
// lock goes before ranks that request the lock later to share it.
//
// Local, but Lock waits while other ranks hold a lock that excludes this one.
//
// Errors: [ErrRank]; [ErrWin] for an unknown kind, and if the rank already holds the lock or another of
// its goroutines waits for it; [ErrClosed].
//
// Deadline: [ErrTimeout] names the holder of the lock.
func (w *SharedWindow[T]) Lock(kind LockKind, rank int) (*LockGuard, error) {
	g, err := (*untyped)(w).lock(kind, rank) // a value, so that it can be on the caller's stack
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// LockAll waits until the calling rank holds a shared lock of every part (MPI_Win_lock_all).
//
// Local, but LockAll waits while another rank holds an exclusive lock.
//
// Errors and deadline: as for Lock.
func (w *SharedWindow[T]) LockAll() (*LockAllGuard, error) {
	g, err := (*untyped)(w).lockAll()
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// untyped is a window without its type. A window of any type converts to it at no cost. If Lock and
// LockAll called the generic base, they would cost too much to be inlined, and their guards would be on
// the heap.
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

// begin records a lock.
func (s *shared) begin(kind flight.Kind, rank int) flight.Ticket {
	k := s.c.core
	return k.recorder.Begin(k.message(kind, backend.Blocking), 0, 0, flight.Pair(uint32(int32(rank)), uint32(s.number)))
}

var noLock = fault(ErrWin, "the lock is nil")

// Flush is [SharedWindow.Sync] under the lock (MPI_Win_flush).
//
// Local.
//
// Errors: [ErrWin] after Unlock; [ErrClosed].
func (g *LockGuard) Flush() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("flush", Undefined, noLock)
	}
	if err := g.s.win.Flush(g.rank, g.rank, g.ticket); err != nil {
		return g.s.failed("flush", g.rank, err)
	}
	return nil
}

// Unlock makes the calling rank's writes visible to the next holder and releases the lock
// (MPI_Win_unlock).
//
// Local.
//
// Errors: [ErrWin] if the lock has been released; [ErrClosed].
func (g *LockGuard) Unlock() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("unlock", Undefined, noLock)
	}
	if err := g.s.win.Unlock(g.rank, g.ticket); err != nil {
		return g.s.failed("unlock", g.rank, err)
	}
	return nil
}

// Flush is [SharedWindow.Sync] under the locks, for the part of one rank (MPI_Win_flush).
//
// Local.
//
// Errors: [ErrRank]; [ErrWin] after Unlock; [ErrClosed].
func (g *LockAllGuard) Flush(rank int) error { return g.flush("flush", rank, rank) }

// FlushAll is Flush for the parts of all ranks (MPI_Win_flush_all).
//
// Local.
//
// Errors: [ErrWin] after Unlock; [ErrClosed].
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

// Unlock makes the calling rank's writes visible to the next holders and releases all the locks
// (MPI_Win_unlock_all).
//
// Local.
//
// Errors: [ErrWin] if the locks have been released; [ErrClosed].
func (g *LockAllGuard) Unlock() error {
	if g == nil || g.s == nil {
		return (*shared)(nil).failed("unlock", Undefined, noLock)
	}
	if err := g.s.win.UnlockAll(g.ticket); err != nil {
		return g.s.failed("unlock", Undefined, err)
	}
	return nil
}
