package backend

// Collectives is implemented by a Comm that carries out collectives, or steps of them, better than
// schedules over messages do. Each method may leave its call to the layer above. Calls on one
// communicator come one at a time and in the same order on all ranks, and ranks that make the same call
// get the same answer.
type Collectives interface {
	// Collective makes one blocking collective call, or returns how the layer above makes it.
	//
	// A backend that returns PlanSchedule compares the calls of all ranks first (Call.Fingerprint). If
	// they differ it breaks the communicator and returns Mismatch on every rank; a rank whose Call has
	// an Err returns that Err. Any other call may be made without a comparison, and then a rank returns
	// its Call's Err itself.
	//
	// For a collective that it does not know a backend returns PlanChecked.
	//
	// After PlanAgree, Collective gets the same call once more, with Agreed set, and makes it. A Bound with a Timeout has Since.
	Collective(b *Bound, c *Call) (Plan, error)

	// StartCollective starts a nonblocking collective, or makes a persistent one after all ranks' calls
	// have been found equal (Call.Form). It keeps no pointer to the Call. If it returns neither an
	// operation nor an error, the caller runs a schedule, which compares the calls of a nonblocking
	// collective. A backend that does not compare them returns the Call's Err.
	StartCollective(c *Call) (Operation, error)

	// Exchange does an Irecv of in from source and an Isend of out to dest. Begin has made both requests
	// active. Each buffer has at most SeenSize bytes, and both messages have the same negative tag. The
	// message may be held back, to be sent together with the next one.
	Exchange(recv, send *Request, in, out []byte, source, dest, tag int)

	// Flush sends messages that were held back. Await and Poll do so too.
	Flush()
}

// Plan says how to go on with a blocking collective call.
type Plan uint8

// The plans. The exchange of fingerprints is itself a barrier, so a Barrier needs no more than
// PlanChecked.
const (
	PlanDone     Plan = iota // the call has been made
	PlanSchedule             // run a schedule: the calls have been compared already
	PlanChecked              // run a schedule and exchange fingerprints at the same time
	PlanAgree                // exchange fingerprints, then call again, or run a schedule if a call is Bounded
)

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
