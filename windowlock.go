package cohort

import (
	"github.com/cohort-hpc/cohort/internal/comm"
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
type LockGuard comm.Guard

// LockAllGuard is the locks that the calling rank holds on the parts of all ranks.
type LockAllGuard comm.Guard

// Lock waits until the calling rank holds the lock of a rank's part (MPI_Win_lock). A lock excludes other
// locks of the part, and nothing else: operations need none, and those of ranks without one go on.
//
// The goroutines of a rank together hold each lock at most once. A rank that waits for an exclusive
// lock goes before ranks that request the lock later to share it.
//
// Not collective, but Lock waits while other ranks hold a lock that excludes this one.
//
// Errors: [ErrRank]; [ErrWin] for an unknown kind, and if the rank already holds the lock or another of
// its goroutines waits for it; [ErrClosed]; [ErrPeerLost].
//
// Deadline: [ErrTimeout] names the rank that holds the lock. For the part of a rank on another node, it names the one
// that held the lock when this rank asked for it.
func (w *Window[T]) Lock(kind LockKind, rank int) (*LockGuard, error) {
	g, err := (*untyped)(w).lock(kind, rank) // a value, so that it can be on the caller's stack
	if err != nil {
		return nil, err
	}
	return (*LockGuard)(&g), nil
}

// LockAll waits until the calling rank holds a shared lock of every part (MPI_Win_lock_all).
//
// Not collective, but LockAll waits while another rank holds an exclusive lock.
//
// Errors: those of Lock.
//
// Deadline: as for Lock.
func (w *Window[T]) LockAll() (*LockAllGuard, error) {
	g, err := (*untyped)(w).lockAll()
	if err != nil {
		return nil, err
	}
	return (*LockAllGuard)(&g), nil
}

// Neither lock nor lockAll is inlined, so that Lock and LockAll are.
//
//go:noinline
func (w *untyped) lock(kind LockKind, rank int) (comm.Guard, error) {
	return w.base().Lock(window.Kind(kind), rank)
}

//go:noinline
func (w *untyped) lockAll() (comm.Guard, error) { return w.base().LockAll() }

// Flush is [Window.Flush] under the lock, for the part that it locks (MPI_Win_flush).
//
// Not collective.
//
// Errors: [ErrWin] after Unlock; [ErrClosed].
func (g *LockGuard) Flush() error {
	b := (*comm.Guard)(g)
	return b.Flush("flush", b.Rank())
}

// Unlock releases the lock (MPI_Win_unlock). The next rank that gets it sees what this one has written to the part
// before.
//
// Not collective.
//
// Errors: [ErrWin] if the lock has been released; [ErrClosed].
func (g *LockGuard) Unlock() error { return (*comm.Guard)(g).Unlock() }

// Flush is [Window.Flush] under the locks (MPI_Win_flush).
//
// Not collective.
//
// Errors: [ErrRank]; [ErrWin] after Unlock; [ErrClosed].
func (g *LockAllGuard) Flush(rank int) error { return (*comm.Guard)(g).Flush("flush", rank) }

// FlushAll is [Window.FlushAll] under the locks (MPI_Win_flush_all).
//
// Not collective.
//
// Errors: [ErrWin] after Unlock; [ErrClosed].
func (g *LockAllGuard) FlushAll() error { return (*comm.Guard)(g).Flush("flushall", Undefined) }

// Unlock releases all the locks (MPI_Win_unlock_all). The next ranks that get one of them see what this one has written
// to the part before.
//
// Not collective.
//
// Errors: [ErrWin] if the locks have been released; [ErrClosed].
func (g *LockAllGuard) Unlock() error { return (*comm.Guard)(g).Unlock() }
