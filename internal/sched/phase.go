package sched

// phase says in one word how far an operation is. Its check and its data phase run side by side, so the word has a part
// for each. Only the goroutine that runs a part changes it. Once neither part runs, one goroutine goes on alone
// (conclude).
//
//	part   state      means                                                        entered from     by
//	check  unchecked  the caller has made sure that all ranks make the same call   any              start
//	       checking   the ranks exchange the fingerprints of their calls           any              start
//	       passed     the calls are the same                                       checking         exchanged
//	       failed     they differ, or the exchange has failed                      checking         exchanged
//	data   noData     the arguments are wrong, or the check alone does the work    any              start
//	       moving     the rounds of the schedule run                               any              start
//	       landed     they have ended                                              moving           moved
//	       comparing  the ranks exchange the first length that was wrong           landed           conclude
//	       silent     the operation has failed, and no message of it is pending    all but moving   finish
//
// The verdict beside it says how the operation ends:
//
//	verdict  means                                                          entered from  by
//	nil      nothing has decided yet                                        any           start
//	success  the operation has ended, and nothing uses its buffers          new, nil      newOp, finish
//	error    it has failed or was given up; messages may be pending, until  nil, error    fail, End
//	         the phase is silent
//
// Success, the first failure, and the deadline compete to set it. Only the goroutine that has set it to an error breaks
// the communicator. End may replace the error of another rank's deadline by its own.
//
// Invariant: an operation that ends without an error has not broken its communicator.
type phase uint32

// The states of the check.
const (
	unchecked phase = iota
	checking
	passed
	failed

	checkMask phase = 3
)

// The states of the data phase.
const (
	noData phase = iota << 2
	moving
	landed
	comparing
	silent
)

func (p phase) check() phase { return p & checkMask }
func (p phase) data() phase  { return p &^ checkMask }

// now returns the phase.
func (o *Op) now() phase { return phase(o.phase.Load()) }

// step changes one part from one state to another. If neither part runs then, it concludes.
func (o *Op) step(from, to phase) {
	if p := phase(o.phase.Add(uint32(to - from))); p.check() != checking && p.data() != moving {
		o.conclude()
	}
}

// enter changes the state of the data phase once neither part runs.
func (o *Op) enter(data phase) { o.phase.Store(uint32(o.now().check() | data)) }

// verdict is how an operation ends.
type verdict struct{ err error }

var success = new(verdict)

// decide sets how the operation ends, and reports whether nothing else has done so before.
func (o *Op) decide(v *verdict) bool { return o.verdict.CompareAndSwap(nil, v) }

// finish ends an operation that has no message pending. Nothing of it may be touched afterwards: the
// waiting goroutine may start it again.
func (o *Op) finish() {
	if !o.decide(success) {
		o.enter(silent)
	}
}

// Ready reports whether the operation is complete, or was never started.
func (o *Op) Ready() bool {
	v := o.verdict.Load()
	return v == success || v != nil && o.now().data() == silent
}

// Err returns how the operation ended, once it is Ready.
func (o *Op) Err() error { return o.verdict.Load().err }
