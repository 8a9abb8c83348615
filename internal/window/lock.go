package window

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Kind says how a part is locked.
type Kind uint8

// The kinds.
const (
	Shared    Kind = iota + 1 // several ranks may hold it, to read
	Exclusive                 // one rank may hold it
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// LockState says who holds the lock of a part, and how many ranks wait to hold it exclusively. 0 is a free lock.
type LockState uint64

// A state is the sum of what its ranks add to it. Each rank holds a lock, or waits for it, at most once.
const (
	sharer LockState = 1       // a rank holds it shared
	waiter LockState = 1 << 21 // a rank waits to hold it exclusively
	owner  LockState = 1 << 42 // rank 0 holds it exclusively; twice this: rank 1, and so on
)

// taken returns what a rank that takes the lock adds to the state.
func taken(kind Kind, rank int) LockState {
	if kind == Exclusive {
		return owner * LockState(rank+1)
	}
	return sharer
}

// excludes reports whether the lock cannot be taken. A rank that wants it exclusively goes before those that come later
// to share it.
func (s LockState) excludes(kind Kind) bool {
	if kind == Exclusive {
		return s >= owner || s%waiter != 0
	}
	return s >= waiter
}

// String says who holds the lock.
func (s LockState) String() string {
	switch {
	case s >= owner:
		return fmt.Sprintf("rank %d holds it exclusively", s/owner-1)
	case s%waiter != 0:
		return fmt.Sprintf("held shared %d times", s%waiter)
	}
	return "others wait for it"
}

const headSize = 64 + 4*stripes

// head has the locks of one part, in the memory that the ranks share. All ranks that map it write its words. The zero
// head has no lock taken.
//
// Invariant: the lock of the part, and each of the stripes, excludes. A rank that waits for one of them sleeps on its
// bell, and whoever lets it go on rings the bell.
type head struct {
	state   word.Uint64 // a LockState
	bell    wait.Bell   // for those that wait for the part's lock
	striped wait.Bell   // for those that wait for a stripe
	_       [40]byte
	stripes [stripes]word.Uint32 // 1: locked
}

func heads(b []byte) []head { return view.Of[head](b) }

// A waiter checks looks times, yields its processor yields times, and then sleeps for at most nap at a time. Before each
// sleep it checks whether it may go on waiting: a rank that dies rings nobody.
const (
	looks  = 200
	yields = 20
	nap    = time.Millisecond
)

// await waits until try succeeds, or returns the error of expired.
func await(bell *wait.Bell, try func() bool, expired func() error) error {
	for i := 0; !try(); i++ {
		switch {
		case i < word.Spins(looks):
			shmem.Pause()
		case i < word.Spins(looks+yields):
			word.Yield()
			shmem.Yield()
		default:
			seen := bell.Arm()
			got, err := try(), error(nil)
			if !got {
				if err = expired(); err == nil {
					bell.Sleep(seen, nap)
				}
			}
			if bell.Disarm(); got || err != nil {
				return err
			}
		}
	}
	return nil
}

// LockState returns the state of the part's lock.
func (p *Part) LockState() LockState { return LockState(p.head.state.Load()) }

// TryLock takes the part's lock for a rank, unless the state that it returns excludes that.
func (p *Part) TryLock(kind Kind, rank int) (LockState, bool) {
	for {
		s := p.LockState()
		if s.excludes(kind) {
			return s, false
		}
		if p.head.state.CompareAndSwap(uint64(s), uint64(s+taken(kind, rank))) {
			return s, true
		}
	}
}

// Lock waits for the part's lock until expired returns an error.
func (p *Part) Lock(kind Kind, rank int, expired func() error) error {
	if _, got := p.TryLock(kind, rank); got {
		return nil
	}
	h := p.head
	if kind == Exclusive {
		h.state.Add(uint64(waiter))
		defer func() {
			// Ranks that want to share it may have waited for this one.
			if s := LockState(h.state.Add(^uint64(waiter - 1))); s%owner < waiter {
				h.bell.Ring()
			}
		}()
	}
	return await(&h.bell, func() bool {
		_, got := p.TryLock(kind, rank)
		return got
	}, expired)
}

// Unlock releases the part's lock, which the rank holds.
func (p *Part) Unlock(kind Kind, rank int) {
	if s := LockState(p.head.state.Add(-uint64(taken(kind, rank)))); s%waiter == 0 {
		p.head.bell.Ring()
	}
}

// Ring makes those that wait for the part's lock ask whether they may go on waiting.
func (p *Part) Ring() { p.head.bell.Ring() }

// stripe takes the lock of an element that is longer than a word. The rank that holds it needs it for a moment only,
// unless it dies.
func (p *Part) stripe(at int, expired func() error) (*word.Uint32, error) {
	s := &p.head.stripes[at/8%stripes]
	err := await(&p.head.striped, func() bool { return s.CompareAndSwap(0, 1) }, expired)
	return s, err
}

// release releases the lock of an element.
func (p *Part) release(s *word.Uint32) {
	s.Store(0)
	p.head.striped.Ring()
}
