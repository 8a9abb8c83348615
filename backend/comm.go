package backend

import (
	"context"
	"errors"
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// Special ranks and tags. The numbers are cohort's; a backend over a library
// that uses others translates.
const (
	AnySource = -1         // receive from any rank
	ProcNull  = -2         // no rank at all; the layer above handles it
	AnyTag    = -1 << 31   // receive any user tag, never a negative one
	NoTag     = AnyTag + 1 // no message has it: a probe for it only finds out whether one can come
	MaxTag    = 1<<31 - 1
)

// Mode says what a send is. It completes when the buffer can be used again.
type Mode struct {
	Synchronous bool  // it completes when, besides, a receive has matched the message
	Elems       Elems // what the message says about its elements
}

// The modes of MPI, for messages that say nothing about their elements.
var (
	Standard    = Mode{}
	Synchronous = Mode{Synchronous: true}
)

// Of returns the mode of a send of such elements.
func (m Mode) Of(e Elems) Mode {
	m.Elems = e
	return m
}

// Status describes a message that was received or probed.
type Status struct {
	Source int // rank of the sender
	Tag    int
	Bytes  int   // length of the message as sent
	Elems  Elems // as sent; 0 if the backend does not carry them
}

// Caps describes what a backend can do, for users. The strings about a library are empty
// for backends without one.
type Caps struct {
	Backend       string // local, shm, tcp, mpi, or the name it was registered under
	Library       string // the library's name and version
	Standard      string // the version of the standard the library implements, such as "MPI 4.0"
	Processes     bool   // every rank is a process
	SharedMemory  bool   // ranks on one node can share windows
	Deterministic bool   // reductions use coll's fixed order
	NativeColl    bool   // blocking collectives run without messages
	SingleCopy    bool   // large messages are copied only once
	Pieces        int    // the shortest message, in bytes, that is packed while it is sent (Request.Parts); 0: none
	MaxTag        int    // the largest user tag
	CancelSend    bool   // a send that has not matched can be canceled
	Checked       bool   // mismatched collective calls are detected
	ThreadLevel   string // the library's thread level, by MPI's name
	LargeCounts   string // how more than 2^31-1 elements are sent: native or derived types
	Persistent    string // how persistent collectives run: native or schedules
	DeviceMemory  string // whether the library accepts GPU memory: yes, no or unknown
}

// Grace is how long an operation that was given up may go on using its buffers before its communicator breaks.
const Grace = 20 * time.Millisecond

// Bound limits how long an operation may take. A nil *Bound sets no limit.
type Bound struct {
	Ctx     context.Context // nil: no limit
	Timeout time.Duration   // of each operation; 0: no limit
	Since   time.Time       // when an operation of several calls began; zero: each call begins one
	World   *World          // whose context may be the reason why Ctx has ended; nil: none

	// Ends asks for a message or a probe that ends when the communicator is closed or breaks, also where it would wait
	// inside a library. One that is Limited does.
	Ends bool

	// Background asks an Await to make progress only while no other goroutine waits. It lets a backend
	// serve this process's other operations first, and may be ignored.
	Background bool
}

// World is what the first communicator of a job is to a rank: when its context has ended, the rank can do nothing more.
type World struct {
	Ctx   context.Context
	Rank  int         // in the job
	Alone func() bool // called once Ctx has been canceled: reports that the contexts of the other ranks go on
}

// Limited reports whether b can ever end an operation.
func (b *Bound) Limited() bool {
	return b != nil && (b.Timeout > 0 || b.Ctx != nil && b.Ctx.Done() != nil)
}

// Deadline returns when an operation begun at start, or at b.Since, must end. The
// result is false if it has no deadline.
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
		if !b.Since.IsZero() {
			start = b.Since
		}
		if t := start.Add(b.Timeout); !ok || t.Before(d) {
			d, ok = t, true
		}
	}
	return d, ok
}

var errDeadline = &Fault{Sentinel: ErrTimeout, Text: "the context's deadline has passed"}

// Err returns nil if an operation begun at start, or at b.Since, may go on. Otherwise it returns
// a Fault of ErrTimeout or ErrCanceled that says why the operation must end.
func (b *Bound) Err(start time.Time) error {
	if b == nil {
		return nil
	}
	if b.Ctx != nil {
		switch err := b.Ctx.Err(); {
		case err == nil:
		case errors.Is(err, context.DeadlineExceeded):
			return errDeadline
		default:
			f := &Fault{Sentinel: ErrCanceled, Text: Harmless(context.Cause(b.Ctx)).Error()}
			if w := b.World; w != nil && w.Ctx.Err() != nil && w.Alone() {
				f.Over = w.Rank + 1
			}
			return f
		}
	}
	if d, ok := b.Deadline(start); ok && !time.Now().Before(d) {
		if !b.Since.IsZero() {
			start = b.Since
		}
		if start.IsZero() { // only the context has a deadline, and has not noticed yet
			return errDeadline
		}
		return Faultf(ErrTimeout, "after %v", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// Pending is something that becomes ready: a request, or a set of requests.
// Ready never waits for another rank, and stays true once it is true. A waiter
// calls it often. It may take a lock that others hold for short times, and may take
// the steps of the operation that have become possible: combine elements, send
// messages, wake other ranks. While the goroutine that waits in Await sleeps,
// another goroutine of the process may call Ready in its place, one at a time. A
// layer that makes something ready without a request of the backend then calls
// Wake.
type Pending interface{ Ready() bool }

// Spinner is implemented by a Pending for which a waiter looks faster by itself
// than in Await. Soon calls Ready for a few microseconds and returns its last
// result. Await calls it first where every rank has a processor to itself. A
// backend may ignore it.
type Spinner interface{ Soon() bool }

const (
	reqIdle uint32 = iota
	reqActive
	reqDone
)

// Request is one operation in progress. The layer above allocates it, calls
// Begin, and passes it to one Isend, Irecv or Imrecv at a time. After completion
// it may be used again. Status and Err are valid once Ready returns true.
type Request struct {
	state  uint32
	Status Status
	Err    error

	// Notify, if not nil, is called once for each completion, in the goroutine
	// that completed the request and with no lock held. It may start operations
	// but must not wait.
	Notify func(*Request)

	// Parts may be set for an Isend or Irecv with a buffer of Caps.Pieces bytes or more. The backend then
	// packs the message that it sends, piece by piece, and its buffer is memory for that. It may unpack the
	// message that it receives, as a whole; otherwise the message is in the buffer.
	Parts Parts

	// Owner is the layer above's record of the operation, nil if the program does not know of the request.
	Owner any

	// Impl is the backend's record of the operation. The backend may keep it
	// across uses of the request, which saves an allocation.
	Impl any
}

// PartMax is the length in bytes of the longest element that Parts may have.
const PartMax = 4 << 10

// Parts packs or unpacks a message whose elements are not contiguous in memory, from its first byte to its
// last. The backend may call it with a lock held.
type Parts interface {
	// Pack copies the next elements to dst, as many as it has room for, and returns their bytes. There is
	// room for PartMax bytes, or for all.
	Pack(dst []byte) int
	// Unpack takes the next elements from src, as many as are complete, and returns their bytes.
	Unpack(src []byte) int
	// Scattered reports whether blocks are so short that packing takes longer than sending.
	Scattered() bool
}

// Begin makes the request active.
func (r *Request) Begin() {
	r.Status, r.Err = Status{}, nil
	word.ReleaseUint32(&r.state, reqActive)
}

// Ready reports whether the request has completed.
func (r *Request) Ready() bool { return word.LoadUint32(&r.state) == reqDone }

// Active reports whether the request has begun and not completed.
func (r *Request) Active() bool { return word.LoadUint32(&r.state) == reqActive }

// Complete ends the request and calls Notify. Only the backend calls it, once
// for each Begin and without holding a lock. The backend wakes waiters
// afterwards. A backend that must publish the completion while it holds locks
// calls Finish, and then Notify itself once it has released them.
func (r *Request) Complete(st Status, err error) {
	notify := r.Notify // r may be in use again as soon as it has completed
	r.Finish(st, err)
	if notify != nil {
		notify(r)
	}
}

// Finish ends the request as Complete does, without calling Notify.
func (r *Request) Finish(st Status, err error) {
	word.Writing(r)
	r.Status, r.Err = st, err
	word.StoreUint32(&r.state, reqDone)
}

// FinishAtOnce is Finish in the call that starts the operation, so that no goroutine waits for it yet.
func (r *Request) FinishAtOnce(st Status, err error) {
	word.Writing(r)
	r.Status, r.Err = st, err
	word.ReleaseUint32(&r.state, reqDone)
}

// Matched is a message that Mprobe took out of the queues and that has not been
// received yet.
type Matched any

// Withdrawer is implemented by a Comm that has to ask the receiver whether a
// canceled send has matched (Comm.Cancel).
type Withdrawer interface {
	// GiveUp ends a canceled send with err if the receiver has not answered. Its
	// buffer is not read any more. It returns false if the send is still under way,
	// because the message has matched.
	GiveUp(r *Request, err error) bool
}

// Comm is one rank's end of one communicator. All methods are safe for
// concurrent use. The caller has checked the arguments: ranks are in range and
// never ProcNull, tags are valid, the communicator is not closed.
//
// Errors are Faults. On a broken communicator, the operation that broke it
// returns the error given to Break; all others return [Broken]. In a job that
// has lost a rank, operations return ErrPeerLost naming that rank.
type Comm interface {
	Rank() int
	Size() int
	Caps() Caps
	// WorldRank converts a rank of this communicator to the rank of the same
	// process in the job's first communicator.
	WorldRank(rank int) int
	// NodeOf returns a number that is equal for ranks on the same node.
	NodeOf(rank int) int
	// HostOf returns the name of the node that a rank runs on, or "" if the name is
	// unknown. It does not communicate. Several nodes may have the same name.
	HostOf(rank int) string
	// Diagnostics returns what the backend found and set when it joined the job, one
	// fact a line, or nil.
	Diagnostics() []string
	// OnWait registers two functions. An operation calls f in its own goroutine
	// when it has polled without success and is about to sleep for the first time.
	// Where operations wait inside a library and cannot do so, a goroutine calls
	// all from time to time. OnWait is called on the job's first communicator,
	// before the first operation. The functions are quick and do not call the
	// backend.
	OnWait(f, all func())

	// Send returns when buf may be used again; in Synchronous mode, when besides a
	// receive has matched the message.
	Send(b *Bound, buf []byte, dest, tag int, mode Mode) error
	// Recv receives into buf. If the message is longer than buf, Recv returns
	// ErrTruncate and a Status with the length that was sent.
	Recv(b *Bound, buf []byte, source, tag int) (Status, error)
	// Isend starts a send on a request that Begin has made active. An error
	// completes the request.
	Isend(r *Request, buf []byte, dest, tag int, mode Mode)
	// Irecv starts a receive in the same way.
	Irecv(r *Request, buf []byte, source, tag int)
	// Await makes progress until p is ready and then returns nil. If b ends first,
	// it returns b's error and p is still pending. A broken communicator or a lost
	// rank completes the requests concerned, so Await does not return such errors.
	Await(b *Bound, p Pending) error
	// Poll makes what progress is possible without waiting.
	Poll()
	// Cancel cancels a request whose message has not matched. It returns true if
	// the request completes with ErrCanceled, and false if the request is complete
	// or soon will be. A send that the peer may be reading cannot be canceled. The backend may have to
	// ask the peer: then Cancel returns false, and the answer completes the request. If the
	// sender withdraws a message that a canceled receive has matched, the receive
	// completes with ErrCanceled. Cancel may wait for a goroutine that completes the
	// request, unless it has a Notify: a Notify function cancels only such requests.
	Cancel(r *Request) bool

	// Probe returns the status of the first message that Recv with the same
	// arguments would take. If there is none it waits, or returns false if block
	// is false.
	Probe(b *Bound, source, tag int, block bool) (Status, bool, error)
	// Mprobe does the same and takes the message out of the queues.
	Mprobe(b *Bound, source, tag int, block bool) (Matched, Status, bool, error)
	// Imrecv starts to receive a message that Mprobe returned.
	Imrecv(r *Request, m Matched, buf []byte)

	// Derive makes a communicator of some of this one's ranks, in the order given.
	// The caller is one of them. Every member calls Derive with the same arguments.
	// The id is unique among the communicators that have a rank in common. Where the
	// members must make it together, Derive waits for them until b ends.
	Derive(b *Bound, members []int, id uint32) (Comm, error)
	// Settled says that this rank makes no more communicators with ids below the given one. The backend may drop what has
	// arrived for them. Settled is called on the first communicator of the job, by several goroutines at a time, and
	// perhaps after Close.
	Settled(below uint32)

	// Break makes the communicator unusable on every rank: pending and later
	// operations end with an error that wraps err's sentinel and text. If several
	// ranks call it, the first call counts. It does not wait. Derived communicators
	// are not affected.
	Break(err error)
	// Broken returns the error that the communicator was broken with, or nil. It may first read what has arrived from
	// the other ranks.
	Broken() error
	// Wake makes every goroutine that is in an operation of this process, Await included, check
	// again whether what it waits for is ready and whether its Bound has ended.
	Wake()
	// UnderWay calls f for every request of this communicator that is under way, with the lock held under which it
	// completes. moves says that it is a send, or a receive whose message has matched.
	UnderWay(f func(r *Request, moves bool))
	// Declare makes a rank of the job lost, by its world rank. An ErrPeerLost gives the text that operations return. Without
	// Recovery it is ErrNotSupported for other ranks than the calling one.
	//
	// A rank that fails declares itself lost, and then closes its first communicator. The others' pending and later
	// operations end with why, also those inside a collective. An MPI library may end the job some time after that.
	Declare(rank int, why error) error
	// Abort ends the job. Every operation of every rank fails with ErrPeerLost,
	// and the error names this rank and the code.
	Abort(code int) error
	// Close releases the communicator. Closing the first communicator of the job
	// leaves the job in good order. Closing twice is harmless.
	Close() error
}
