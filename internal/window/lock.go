package window

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
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

const lockSize = 192

// lock is the lock of one part, in the memory that the ranks share. The zero lock is free.
type lock struct {
	state  word.Uint32 // the number of ranks that hold it shared, or held and the rank that holds it exclusively
	wanted word.Uint32 // how many wait to hold it exclusively
	_      [56]byte
	bell   wait.Bell // for those that wait
}

const held = 1 << 31

// try takes the lock if it is free. Ranks that want it exclusively go before ranks that want to share it.
func (l *lock) try(kind Kind, rank int) bool {
	if kind == Exclusive {
		return l.state.CompareAndSwap(0, held|uint32(rank))
	}
	for l.wanted.Load() == 0 {
		s := l.state.Load()
		if s&held != 0 {
			return false
		}
		if l.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
	return false
}

// release releases the lock.
func (l *lock) release(kind Kind) {
	if kind == Exclusive {
		l.state.Store(0)
	} else if l.state.Add(^uint32(0)) != 0 {
		return
	}
	l.bell.Ring()
}

// A waiter checks looks times and then sleeps for at most nap at a time. After each nap
// it checks whether it may go on waiting: a rank that dies rings nobody.
const (
	looks  = 200
	yields = 20
	nap    = time.Millisecond
)

// take waits for the lock until expired returns an error.
func (l *lock) take(kind Kind, rank int, expired func() error) error {
	if l.try(kind, rank) {
		return nil
	}
	if kind == Exclusive {
		l.wanted.Add(1)
		defer func() {
			// Ranks that want to share it may have waited for this one.
			if l.wanted.Add(^uint32(0)) == 0 {
				l.bell.Ring()
			}
		}()
	}
	for i := 0; !l.try(kind, rank); i++ {
		switch {
		case i < word.Spins(looks):
			shmem.Pause()
		case i < word.Spins(looks+yields):
			word.Yield()
			shmem.Yield()
		default:
			if err := expired(); err != nil {
				return err
			}
			seen := l.bell.Arm()
			got := l.try(kind, rank)
			if !got {
				l.bell.Sleep(seen, nap)
			}
			if l.bell.Disarm(); got {
				return nil
			}
		}
	}
	return nil
}

// holder describes which ranks hold the lock.
func (l *lock) holder() string {
	s := l.state.Load()
	switch {
	case s&held != 0:
		return fmt.Sprintf("rank %d holds it exclusively", s&^held)
	case s > 0:
		return fmt.Sprintf("held shared %d times", s)
	}
	return "others wait for it"
}
