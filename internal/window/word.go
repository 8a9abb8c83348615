package window

import "fmt"

// LockState is the lock of a part as ranks on other nodes take it too, in one word that they exchange. Rank r
// that holds it exclusively is in the upper half as r+1. The lower half counts the ranks that share it. Its
// top bit says that a rank waits for the lock exclusively, so that ranks that come later do not share it.
type LockState uint64

const lockWanted LockState = 1 << 31

// Take returns the state that a rank stores next to get the lock, and whether the rank then has it.
func (s LockState) Take(kind Kind, rank int) (next LockState, has bool) {
	switch {
	case kind == Exclusive && s&^lockWanted == 0:
		return LockState(rank+1) << 32, true
	case kind == Exclusive:
		return s | lockWanted, false
	case s>>32 == 0 && s&lockWanted == 0:
		return s + 1, true
	}
	return s, false
}

// GiveUp returns the state after a rank has stopped waiting. Other ranks that wait say so again.
func (s LockState) GiveUp(kind Kind) LockState {
	if kind == Exclusive {
		s &^= lockWanted
	}
	return s
}

// Release returns the state after a rank has released the lock.
func (s LockState) Release(kind Kind) LockState {
	if kind == Exclusive {
		return s & lockWanted
	}
	return s - 1
}

// String says who holds the lock.
func (s LockState) String() string {
	switch n := s &^ lockWanted; {
	case n>>32 != 0:
		return fmt.Sprintf("rank %d holds it exclusively", n>>32-1)
	case n != 0:
		return fmt.Sprintf("held shared %d times", n)
	}
	return "no rank held it when it was last seen"
}
