package backend

// Native is implemented by a Comm that does blocking collectives itself.
type Native interface {
	// Collective makes one blocking collective call. Calls of one communicator
	// come one at a time. Unless the Native is a Planner it first makes sure in
	// all cases that every rank makes the same call (Call.Fingerprint); if not, it
	// breaks the communicator and returns Mismatch on every rank, and on a rank
	// whose Call has Err that Err. done false with a nil error means: all ranks
	// make the same call, run it as a schedule; of a Planner: do what Plan says.
	// That decision is the same on all ranks whose calls are the same.
	//
	// A Planner that makes a call without a check returns a Call's Err itself.
	Collective(b *Bound, c *Call) (done bool, err error)
}

// Plan says how a call that Native.Collective has not done is to be run.
type Plan uint8

// The plans. The exchange of fingerprints is itself a barrier, so that a Barrier
// needs no more than PlanChecked.
const (
	PlanSchedule      Plan = iota // as a schedule: the ranks have agreed already
	PlanChecked                   // as a schedule, the ranks exchanging fingerprints while the data flow
	PlanAgree                     // exchange fingerprints first; then natively by Agreed or, if a rank's call is Bounded, as a schedule
	PlanAgreeSchedule             // exchange fingerprints first; then as a schedule
)

// Planner is implemented by a Native that does not check calls itself.
type Planner interface {
	Native
	// Plan is asked after Collective has not done a call. It is the same on all
	// ranks whose calls are the same.
	Plan(c *Call) Plan
	// Agreed makes a call on which all ranks have agreed, and which none of them
	// can end early. done false with a nil error: run it as a schedule. That
	// decision is the same on all ranks.
	Agreed(b *Bound, c *Call) (done bool, err error)
}

// Operation is a collective that runs without a goroutine of the caller's: a
// nonblocking one, or a persistent one. Start and what is called after Ready
// come from one goroutine at a time; Ready may be called by any.
type Operation interface {
	Pending
	// Start starts a persistent operation, which is Ready.
	Start()
	// Err returns how the operation ended, once it is Ready.
	Err() error
	// End breaks the operation off because of why, and its communicator with it:
	// nil if the operation has then ended, with that error unless it was complete
	// before; else the error, and the operation is still under way, its buffers
	// belonging to it.
	End(why error) error
	// Release hands the operation back: a nonblocking one that is Ready and not
	// looked at any more, or a persistent one that is Ready and freed.
	Release()
}

// Starter is implemented by a Comm that does nonblocking and persistent
// collectives itself. Calls come as Native's do, one at a time and in the same
// order on all ranks.
type Starter interface {
	// StartCollective starts a nonblocking collective. It may keep the Call until
	// the operation is complete. No error and no operation mean: run it as a
	// schedule, which checks it; that decision is the same on all ranks whose
	// calls are the same. A Starter that does not check returns a Call's Err.
	StartCollective(c *Call) (Operation, error)
	// PrepareCollective makes a persistent collective on which all ranks have
	// agreed; it may keep the Call until Release. No error and no operation mean:
	// prepare it as a schedule; that decision is the same on all ranks.
	PrepareCollective(c *Call) (Operation, error)
}
