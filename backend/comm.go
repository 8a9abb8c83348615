package backend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Special ranks and tags. They are cohort's own numbers; a backend over a
// library with other ones translates.
const (
	AnySource = -1       // receive from any rank
	ProcNull  = -2       // a partner that does not exist (handled above the backend)
	AnyTag    = -1 << 31 // receive any user tag; never a negative one
	MaxTag    = 1<<31 - 1
)

// Mode is how a send completes.
type Mode uint8

const (
	Standard    Mode = iota // complete when the buffer can be used again
	Synchronous             // complete when, besides, the receive has matched
)

// Status says what was received or probed.
type Status struct {
	Source int
	Tag    int
	Bytes  int
}

// Caps says what a backend does itself.
type Caps struct {
	Backend       string // local, shm, tcp, mpi
	Library       string // the library beneath, empty for built-in ones
	Standard      string // the version of the standard that the library has, such as "MPI 4.0"
	Processes     bool   // ranks are processes of their own
	SharedMemory  bool   // ranks of a node can share windows
	Deterministic bool   // reductions have coll's fixed order
	NativeColl    bool   // blocking collectives without messages
	SingleCopy    bool   // large messages move with one copy
	MaxTag        int    // the largest user tag
	CancelSend    bool   // a send that has not matched can be taken back when its time is up
	Checked       bool   // mismatched collectives are found
	ThreadLevel   string // how many threads the library beneath takes, as MPI names it; empty for built-in ones
	LargeCounts   string // how more than 2^31-1 elements travel (native, derived types); empty for built-in ones
	Persistent    string // how persistent collectives run: native or schedules
	DeviceMemory  string // whether the library beneath says that it takes a GPU's memory: yes, no, or unknown; empty for built-in ones

	// DeviceColls has a bit for each blocking collective (1<<Coll) whose buffers the library gets as
	// they are, without the backend's looking into them, whatever limits other ranks' calls have: all
	// longer than DeviceLeast bytes, of more than one rank, and of reductions those that [DeviceOp] names.
	DeviceColls uint32
}

// DeviceLeast is up to which length in bytes backends may copy what they give to a library.
const DeviceLeast = 4 << 10

// DeviceOp reports whether a reduction is the library's own, where it is at all, so that no function of
// Go's is called for its operands.
func DeviceOp(op OpCode, kind Kind) bool {
	switch kind {
	case Int32, Int64:
		return op == OpSum || op == OpProd || op == OpMin || op == OpMax
	case Float32, Float64:
		return op == OpSum || op == OpProd
	}
	return false
}

// Bound limits how long an operation may take. A nil *Bound is no limit.
type Bound struct {
	Ctx     context.Context // nil: no limit
	Timeout time.Duration   // of each operation; 0: none
}

// Limited reports whether b can end an operation at all.
func (b *Bound) Limited() bool {
	return b != nil && (b.Timeout > 0 || b.Ctx != nil && b.Ctx.Done() != nil)
}

// Deadline returns when an operation begun at start must end, and whether there
// is such a time.
func (b *Bound) Deadline(start time.Time) (time.Time, bool) {
	if b == nil {
		return time.Time{}, false
	}
	var d time.Time
	ok := false
	if b.Ctx != nil {
		d, ok = b.Ctx.Deadline()
	}
	if b.Timeout > 0 {
		if t := start.Add(b.Timeout); !ok || t.Before(d) {
			d, ok = t, true
		}
	}
	return d, ok
}

// Err returns why an operation begun at start must end now, nil if it may go
// on: a Fault of ErrTimeout or ErrCanceled.
func (b *Bound) Err(start time.Time) error {
	if b == nil {
		return nil
	}
	if b.Ctx != nil {
		switch err := b.Ctx.Err(); {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			return &Fault{ErrTimeout, "the context's deadline has passed"}
		default:
			return &Fault{ErrCanceled, context.Cause(b.Ctx).Error()}
		}
	}
	if d, ok := b.Deadline(start); ok && !time.Now().Before(d) {
		return &Fault{ErrTimeout, fmt.Sprintf("after %v", time.Since(start).Round(time.Millisecond))}
	}
	return nil
}

// Pending is something that becomes ready: a request, or a set of them.
// Ready must be cheap, must not block, and stays true once true.
type Pending interface{ Ready() bool }

const (
	reqIdle uint32 = iota
	reqActive
	reqDone
)

// Request is one operation in progress. The layer above allocates it, calls
// Begin, and hands it to one Isend, Irecv or Imrecv at a time; after completion
// it may be used again. Status and Err are valid once Ready.
type Request struct {
	state  atomic.Uint32
	Status Status
	Err    error

	// Notify, if not nil, is called once for each completion, by whichever
	// goroutine completed the request, with no lock held. It may start
	// operations but must not wait.
	Notify func(*Request)

	// Impl is the backend's own record of the operation; it may keep it across
	// uses of the request to avoid an allocation.
	Impl any
}

// Begin makes the request active.
func (r *Request) Begin() {
	r.Status, r.Err = Status{}, nil
	r.state.Store(reqActive)
}

// Ready reports whether the request has completed.
func (r *Request) Ready() bool { return r.state.Load() == reqDone }

// Active reports whether the request has begun and not completed.
func (r *Request) Active() bool { return r.state.Load() == reqActive }

// Complete ends the request and calls Notify. Only the backend calls it, once
// for each Begin and without holding a lock; who waits must be woken by the
// backend after it. Where the completion has to be seen before locks can be let
// go, a backend uses Finish and calls Notify itself later.
func (r *Request) Complete(st Status, err error) {
	notify := r.Notify // r may be in use again as soon as it is done
	r.Finish(st, err)
	if notify != nil {
		notify(r)
	}
}

// Finish is Complete without the call of Notify.
func (r *Request) Finish(st Status, err error) {
	r.Status, r.Err = st, err
	r.state.Store(reqDone)
}

// Matched is a message taken out of the queues by Mprobe, still to be received.
type Matched any

// Comm is one rank's end of one communicator. All methods are safe for use by
// many goroutines at once. Arguments have been checked by the caller: ranks are
// in range (never ProcNull), tags valid, the communicator not closed.
//
// Errors are Faults. Operations of a broken communicator return the error given
// to Break (wrapped in ErrBroken where it is not the operation that broke it),
// and operations of a job that lost a rank return ErrPeerLost naming it.
type Comm interface {
	Rank() int
	Size() int
	Caps() Caps
	// WorldRank returns the rank in the job's first communicator of a rank of this one.
	WorldRank(rank int) int
	// NodeOf returns a number that is equal for ranks on the same node.
	NodeOf(rank int) int

	// Send returns when buf may be used again, Synchronous ones when the
	// receive has matched.
	Send(b *Bound, buf []byte, dest, tag int, mode Mode) error
	// Recv receives into buf. A longer message gives ErrTruncate with the
	// status of what was sent.
	Recv(b *Bound, buf []byte, source, tag int) (Status, error)
	// Isend and Irecv start an operation on a begun request; errors complete it.
	Isend(r *Request, buf []byte, dest, tag int, mode Mode)
	Irecv(r *Request, buf []byte, source, tag int)
	// Await makes progress until p is ready: nil, or the Bound's error with p
	// still pending. A broken communicator or lost rank completes its requests,
	// so Await does not return their errors.
	Await(b *Bound, p Pending) error
	// Poll makes what progress is possible without waiting.
	Poll()
	// Cancel takes back a request whose message has not matched: true, and the
	// request completes with ErrCanceled. False: it is complete or will be soon;
	// a send is never canceled once the peer may be reading it.
	Cancel(r *Request) bool

	// Probe returns the status of the first message that Recv with the same
	// arguments would take. With block false it returns false if there is none.
	Probe(b *Bound, source, tag int, block bool) (Status, bool, error)
	// Mprobe does the same and takes the message out of the queues.
	Mprobe(b *Bound, source, tag int, block bool) (Matched, Status, bool, error)
	// Imrecv receives a message taken by Mprobe.
	Imrecv(r *Request, m Matched, buf []byte)

	// Derive makes a communicator of some of this one's ranks, in the given
	// order, the caller's among them. Every member calls it with the same
	// arguments; id is unique among the communicators that share a rank.
	// It exchanges no messages.
	Derive(members []int, id uint32) (Comm, error)

	// Break makes the communicator unusable on every rank: pending and later
	// operations end with an error that wraps err's sentinel and text. The first
	// call anywhere wins. It does not wait. Derived communicators are not affected.
	Break(err error)
	// Broken returns the error the communicator was broken with, nil if it was not.
	Broken() error
	// Wake makes every waiter of this process look at its Bound again.
	Wake()
	// Abort ends the job: every operation of every rank fails with ErrPeerLost
	// that names this rank and the code.
	Abort(code int) error
	// Close releases the communicator. On the first communicator of the job it
	// leaves the job in good order. Closing twice is harmless.
	Close() error
}

// Exchanger is implemented by a Comm that starts a short send and a short receive
// faster together.
type Exchanger interface {
	// Exchange is Irecv of in from source and Isend of out to dest, both begun, both
	// no longer than SeenSize and under the same tag below 0.
	Exchange(recv, send *Request, in, out []byte, source, dest, tag int)
}

// Flusher is implemented by an Exchanger that may keep the message of an Exchange
// back, so that it goes together with what is sent next.
type Flusher interface {
	// Flush sends what was kept back. Await and Poll do too.
	Flush()
}

// Announcer is implemented by a Comm whose operations all say when they begin to wait, or of which
// that is said soon.
type Announcer interface {
	// OnWait has f called by every operation of the job that has looked in vain for what it needs, in
	// its goroutine, before that sleeps for the first time; and all now and then, by a goroutine of
	// its own, where operations wait out of sight in a library. It is set before the first operation,
	// on the job's first communicator. The functions are quick, and call nothing of the backend.
	OnWait(f, all func())
}

// Diagnoser is implemented by a Comm that has to tell what it found and set when
// it joined the job.
type Diagnoser interface {
	// Diagnostics returns one fact a line, of the whole job, not of one communicator.
	Diagnostics() []string
}
