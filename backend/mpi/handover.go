package mpi

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// handover passes the end of a call from the goroutine that makes the call to the one that waits for it, unless that one
// gives up first.
//
// The maker writes made and err, and then, by one compare-and-swap, state from callUnderWay to
// callEnded. The waiter writes state from callUnderWay to callLeft in the same way.
//
// Invariant: one of the two has the end. It is the waiter if await returns true, and otherwise the maker, whose end returns
// false.
type handover struct {
	state word.Uint32
	news  *word.Parker // where the waiter sleeps
	made  bool
	err   error
}

const (
	callUnderWay uint32 = iota
	callEnded           // and the waiter has the end
	callLeft            // the waiter has given up
)

func newHandover() *handover { return &handover{news: word.NewParker()} }

// end gives the end of the call to the waiter. It returns false if the waiter has given up.
func (h *handover) end(made bool, err error) bool {
	h.made, h.err = made, err
	if !h.state.CompareAndSwap(callUnderWay, callEnded) {
		return false
	}
	h.news.Unpark()
	return true
}

// await waits for the end until over, and then for limit. It returns false if it has given up. Whoever makes over true
// wakes the waiter.
func (h *handover) await(over func() bool, limit time.Duration) bool {
	for h.state.Load() == callUnderWay && !over() {
		h.news.Park(0)
	}
	for until := time.Now().Add(limit); h.state.Load() == callUnderWay && h.news.Park(max(time.Until(until), 1)); {
	}
	return !h.state.CompareAndSwap(callUnderWay, callLeft)
}
