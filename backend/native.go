package backend

// Native is implemented by a Comm that does blocking collectives itself.
type Native interface {
	// Collective makes one blocking collective call. Calls on one communicator come
	// one at a time.
	//
	// A Native that is not a Planner first compares the calls of all ranks
	// (Call.Fingerprint). If they differ it breaks the communicator and returns
	// Mismatch on every rank; a rank whose Call has an Err returns that Err. done
	// false with a nil error means that the calls agree and that the caller runs
	// this one as a schedule.
	//
	// A Planner may make a call without comparing, and then returns the Call's Err
	// itself. done false with a nil error means that the caller does what Plan says.
	//
	// Ranks that make the same call get the same done.
	Collective(b *Bound, c *Call) (done bool, err error)
}

// Plan says how to run a call that Native.Collective has not done.
type Plan uint8

// The plans. The exchange of fingerprints is itself a barrier, so a Barrier needs
// no more than PlanChecked.
const (
	PlanSchedule      Plan = iota // run a schedule: the calls have been compared already
	PlanChecked                   // run a schedule and exchange fingerprints at the same time
	PlanAgree                     // exchange fingerprints, then call Agreed, or run a schedule if a call is Bounded
	PlanAgreeSchedule             // exchange fingerprints, then run a schedule
)

// Planner is implemented by a Native that does not compare the ranks' calls
// itself.
type Planner interface {
	Native
	// Plan is called after Collective has returned done false. Ranks that make the
	// same call get the same plan.
	Plan(c *Call) Plan
	// Agreed makes a call after all ranks' calls have been found equal and none of
	// them can end early. done false with a nil error means that the caller runs a
	// schedule; done is the same on all ranks.
	Agreed(b *Bound, c *Call) (done bool, err error)
}

// Operation is a nonblocking or persistent collective. Ready may be called by any
// goroutine, the other methods by one goroutine at a time.
type Operation interface {
	Pending
	// Start starts a persistent operation. The operation is Ready when it is called.
	Start()
	// Err returns how the operation ended. It may be called once Ready.
	Err() error
	// End gives the operation up because of why, and breaks its communicator. It
	// returns nil if the operation has then ended: with that error, unless it had
	// completed before. Otherwise it returns the error, the operation is still
	// under way, and its buffers still belong to it.
	End(why error) error
	// Release frees the operation. It must be Ready, and is not used afterwards.
	Release()
}

// Starter is implemented by a Comm that does nonblocking and persistent
// collectives itself. As with Native, calls come one at a time and in the same
// order on all ranks.
type Starter interface {
	// StartCollective starts a nonblocking collective. It may keep the Call until
	// the operation is complete. If it returns neither an operation nor an error,
	// the caller runs a schedule, which compares the ranks' calls. Ranks that make
	// the same call get the same answer. A Starter that does not compare calls
	// returns the Call's Err.
	StartCollective(c *Call) (Operation, error)
	// PrepareCollective makes a persistent collective after all ranks' calls have
	// been found equal. It may keep the Call until Release. If it returns neither
	// an operation nor an error, on all ranks, the caller prepares a schedule.
	PrepareCollective(c *Call) (Operation, error)
}
