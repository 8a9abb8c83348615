package comm

import "github.com/cohort-hpc/cohort/internal/word"

// completion decides in one word how an operation ends and which goroutine returns its result. The lowest bits of
// the word are a phase, the others the number of holds. A goroutine has a hold while it uses the operation's record.
//
//	phase      means                                               entered from         by
//	complete   ended without an error when it was started, and     new
//	           nobody has returned that; it has no record
//	ended      the result is stored, and nobody has returned it    claimed              publish
//	returned   the result is stored and has been returned          claimed, ended,      publish, pass,
//	                                                               complete             markReturned
//	open       the operation is under way or complete              new, starting,       open, reopen
//	                                                               claimed
//	claimed    one goroutine decides the result and stores it, or  open                 claim, unwaited
//	           Close looks at the operation
//	starting   one goroutine starts a persistent operation again   returned             restart
//	retired    returned; another record has the next start         returned             restart
//	abandoned  returned; the persistent operation is under way     claimed              publish
//	closed     returned; the persistent operation is closed        returned, abandoned  Close
//	released   closed, and its operation is the backend's again    closed, no holds     release
//
// Invariant: of all goroutines that find an operation complete or want to give it up, one claims it and stores
// the result for all. One goroutine is the first to return the result. The record is in use until the result is
// stored and all holds have ended. An operation that is given up while it is under way keeps one hold. The word of one
// that is complete changes only to returned, and there are no holds.
type completion struct{ word uint32 }

type phase uint32

const (
	phaseComplete phase = iota // the zero value
	phaseEnded
	phaseReturned
	phaseOpen
	phaseClaimed
	phaseStarting
	phaseRetired
	phaseAbandoned
	phaseClosed
	phaseReleased

	phaseMask = 15
	oneHold   = 16
)

func phaseOf(word uint32) phase { return phase(word & phaseMask) }

func (s *completion) phase() phase { return phaseOf(word.LoadUint32(&s.word)) }

// stored reports whether there is a result.
func (p phase) stored() bool { return p != phaseOpen && p != phaseClaimed && p != phaseStarting }

// open opens a new operation.
func (s *completion) open() { word.ReleaseUint32(&s.word, uint32(phaseOpen)) }

// hold begins a hold. It returns false if the result is stored.
func (s *completion) hold() bool {
	for {
		w := word.LoadUint32(&s.word)
		if phaseOf(w).stored() {
			return false
		}
		if word.CompareAndSwapUint32(&s.word, w, w+oneHold) {
			return true
		}
	}
}

// pin begins a hold in any phase. It is for persistent operations, whose record stays in use.
func (s *completion) pin() { word.AddUint32(&s.word, oneHold) }

// drop ends a hold, and reports whether the result is stored and nobody uses the record any more.
func (s *completion) drop() (free bool) {
	const minus = ^uint32(oneHold - 1)
	w := word.AddUint32(&s.word, minus)
	return w < oneHold && phaseOf(w).stored()
}

// move changes the phase from one to another. It returns false if the word has a different phase.
func (s *completion) move(from, to phase) bool {
	for {
		w := word.LoadUint32(&s.word)
		if phaseOf(w) != from {
			return false
		}
		if word.CompareAndSwapUint32(&s.word, w, w+uint32(to-from)) {
			return true
		}
	}
}

// claim lets the caller, which has a hold, decide the result. If it returns true, the caller must publish the result.
func (s *completion) claim() bool { return s.move(phaseOpen, phaseClaimed) }

// publish ends the claim after the caller has stored the result. It also ends the caller's hold, unless keep leaves
// the hold to the operation. It reports whether nobody uses the record any more, and whether others have holds, who
// may be waiting for the result.
func (s *completion) publish(to phase, keep bool) (free, others bool) {
	holds := uint32(0)
	if !keep {
		holds = oneHold
	}
	w := word.AddUint32(&s.word, uint32(to-phaseClaimed)-holds)
	return w < oneHold, w >= 2*oneHold-holds
}

// markReturned notes that the stored result is returned, and reports whether the caller is the first to return it.
func (s *completion) markReturned() bool {
	return s.move(phaseComplete, phaseReturned) || s.move(phaseEnded, phaseReturned)
}

// pass notes that an operation is returned which was complete when it was started, and reports whether it was. Others may
// return it at the same time. A plain store is enough, because the word changes to nothing else.
func (s *completion) pass() bool {
	if s.phase() != phaseComplete {
		return false
	}
	word.ReleaseUint32(&s.word, uint32(phaseReturned))
	return true
}

// restart reserves a persistent operation that is not under way for the caller to start. If another goroutine still
// has a hold from the last start, the operation needs another record, which must be in the phase starting.
func (s *completion) restart() (mine, another bool) {
	if word.CompareAndSwapUint32(&s.word, uint32(phaseReturned), uint32(phaseStarting)) {
		return true, false
	}
	return false, s.move(phaseReturned, phaseRetired)
}

// release reports whether the caller must give a closed operation back to the backend, because nobody uses it.
func (s *completion) release() bool {
	return word.CompareAndSwapUint32(&s.word, uint32(phaseClosed), uint32(phaseReleased))
}

// reopen opens an operation that the caller has started again, or has claimed. It reports whether any goroutine has a
// hold: it may be waiting for that.
func (s *completion) reopen(from phase) (held bool) {
	return word.AddUint32(&s.word, uint32(phaseOpen-from)) >= oneHold
}
