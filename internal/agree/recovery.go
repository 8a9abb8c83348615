package agree

import (
	"errors"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
)

// Comm is what a Recovery needs of a communicator, besides what it gives itself.
type Comm interface {
	backend.Comm

	// ID returns the communicator's id, and Ranks the number of the job's ranks.
	ID() uint32
	Ranks() int

	// Failed returns the world ranks that this rank has found to be lost, and Left those that it has
	// seen leave in good order, in ascending order. A rank is Failed before any operation ends because
	// of its loss.
	Failed() []int
	Left() []int

	// Declare makes a rank of the job lost, by its world rank: here, and on every rank that can be
	// reached. Its links are closed. Declaring a lost rank again does nothing.
	Declare(rank int, why error) error

	// Control makes a control communicator: the same ranks in the same order, over which they agree on
	// how to go on after a loss. Neither losses nor Break of this communicator end it.
	//
	// An operation with a rank that is lost, or that has closed the control communicator, ends with
	// ErrPeerLost; a receive does so only after everything that arrived from the rank has been
	// received. Operations with other ranks go on. An error that ends all communicators ends this one
	// too, and Broken returns it. The declaration that the own rank is lost is such an error.
	//
	// It carries messages from a named source only: no collectives and no AnySource. Control exchanges
	// no messages. A message from a member that has made its own already waits until this one is made.
	Control(id uint32) (backend.Comm, error)

	// Acknowledge does what Derive does, on a communicator that may have ended or be broken. The new
	// communicator has acknowledged the losses that its parent has, and those of the given world ranks
	// besides.
	Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error)
}

// ControlID is a bit that is set in the ids of control communicators only.
const ControlID = 1 << 31

// The kinds of agreements.
const (
	agreeFlag  uint32 = 1 << iota // Agree
	agreeLost                     // Shrink: on the lost ranks and a context id
	agreeClaim                    // Shrink: that all have claimed the id, and no other rank is lost
	agreeMade                     // Shrink: that all have made the communicator
)

// Recovery carries out the agreements of a communicator, which embeds it. One goroutine at a time may
// call Agree and Shrink.
type Recovery struct {
	Of Comm // the communicator, set before the first call

	doing   string     // the call that timed out; empty if none did
	current *Agreement // the one that has not ended; nil if there is none
	seq     uint32     // of the last agreement
	gone    Set        // members that no longer take part
	links   []link
	sends   []*backend.Request // may be under way
	shrink  shrinking

	mu      sync.Mutex // guards the fields below
	control backend.Comm
	made    backend.Comm // by a Shrink that has not ended
	closed  bool
}

// link receives the messages of one member.
type link struct {
	req    backend.Request
	buf    []byte
	posted bool
}

// Lost implements backend.Recovery.
func (r *Recovery) Lost() []int {
	lost := append(r.Of.Failed(), r.Of.Left()...)
	slices.Sort(lost)
	return lost
}

// Revoke implements backend.Recovery.
func (r *Recovery) Revoke(err error) error {
	r.Of.Break(err)
	return nil
}

// Agree implements backend.Recovery.
func (r *Recovery) Agree(b *backend.Bound, flag int) (int, error) {
	if err := r.open("Agree"); err != nil {
		return 0, err
	}
	rec, err := r.agree(b, agreeFlag, func() (uint64, uint32) { return uint64(flag), 0 })
	if err != nil {
		return 0, err
	}
	return int(rec.Flags), nil
}

// open makes the control communicator at the first call. The lock is not held meanwhile: that may call functions of the
// program.
func (r *Recovery) open(call string) error {
	r.mu.Lock()
	made, closed := r.control != nil, r.closed
	r.mu.Unlock()
	if !made && !closed {
		control, err := r.Of.Control(r.Of.ID() | ControlID)
		if err != nil {
			return err
		}
		r.gone, r.links = NewSet(r.Of.Size()), make([]link, r.Of.Size())
		r.mu.Lock()
		if closed = r.closed; !closed {
			r.control = control
		}
		r.mu.Unlock()
		if closed {
			_ = control.Close()
		}
	}
	if closed {
		return backend.CommClosed
	}
	if r.doing != "" && r.doing != call {
		return backend.Faultf(backend.ErrRequest, "the last %s timed out and has not ended; call %[1]s again to continue it", r.doing)
	}
	r.doing = call
	return nil
}

// Close ends the agreements of a communicator that is being closed: the others see that this rank takes
// no part. It closes the communicator that an unfinished Shrink has made: others may have got theirs.
func (r *Recovery) Close() {
	r.mu.Lock()
	r.closed = true
	control := r.control
	r.mu.Unlock() // closing calls Notify functions
	r.discard()
	if control != nil {
		_ = control.Close()
	}
}

// takeMade returns the communicator that Shrink has made, nil if Close has taken it. Close no longer closes it.
func (r *Recovery) takeMade() (made backend.Comm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	made, r.made = r.made, nil
	return made
}

// discard closes the communicator that Shrink has made and does not return.
func (r *Recovery) discard() {
	if made := r.takeMade(); made != nil {
		_ = made.Close()
	}
}

// agree makes an agreement, or continues the one that timed out. It calls propose for this rank's
// contribution when an agreement begins.
func (r *Recovery) agree(b *backend.Bound, kind uint32, propose func() (flags uint64, number uint32)) (rec Record, err error) {
	if r.current == nil {
		err = r.begin(kind, propose)
	}
	if err == nil {
		err = r.run(b)
	}
	if code := backend.Code(err); code != backend.Code(backend.ErrTimeout) && code != backend.Code(backend.ErrCanceled) {
		r.doing = "" // there is nothing to continue
	}
	if err != nil {
		return rec, err
	}
	rec, _ = r.current.Decided()
	r.gone.AddAll(r.current.Dead())
	r.gone.AddAll(rec.Gone)
	r.current = nil
	known := r.Lost()
	for _, w := range rec.Lost.List() {
		if w == r.Of.WorldRank(r.Of.Rank()) {
			return rec, r.excluded()
		}
		if !slices.Contains(known, w) {
			_ = r.Of.Declare(w, errors.New("the survivors agreed that it is lost"))
		}
	}
	r.learn(b, rec.Gone)
	if rec.Kinds != kind {
		return rec, backend.Faultf(backend.ErrMismatch, "some ranks called Agree and others Shrink")
	}
	return rec, nil
}

// begin begins an agreement with this rank's contribution.
func (r *Recovery) begin(kind uint32, propose func() (flags uint64, number uint32)) error {
	if err := r.control.Broken(); err != nil { // the job has ended, and there may be no rank left to report it
		return err
	}
	rec := Record{Kinds: kind, Lost: NewSet(r.Of.Ranks()), Gone: NewSet(r.Of.Size())}
	for _, w := range r.Of.Failed() {
		rec.Lost.Add(w)
	}
	left := r.Of.Left() // not failed, and other ranks may not know of it yet
	for m := range r.Of.Size() {
		if w := r.Of.WorldRank(m); rec.Lost.Has(w) || slices.Contains(left, w) {
			r.gone.Add(m)
		}
	}
	if r.gone.Has(r.Of.Rank()) {
		return r.excluded()
	}
	rec.Gone.AddAll(r.gone)
	rec.Flags, rec.Number = propose()
	r.seq++
	r.current = New(r.Of.Rank(), r.Of.Size(), r.Of.Ranks(), r.seq, rec, r.gone)
	return nil
}

// excluded returns the error for a rank that the others continue without.
func (r *Recovery) excluded() error {
	if err := r.control.Broken(); err != nil {
		return err
	}
	return backend.Faultf(backend.ErrPeerLost, "the other ranks have declared this one lost")
}

// run exchanges messages until the agreement is decided and all members have the result.
func (r *Recovery) run(b *backend.Bound) error {
	for {
		r.send()
		if _, ok := r.current.Decided(); ok {
			break
		}
		took, err := r.receive()
		if err == nil && !took {
			err = r.named(r.control.Await(b, wanted{r}), "arrived")
		}
		if err != nil {
			return err
		}
	}
	if err := r.named(r.control.Await(b, (*sent)(r)), "received the result"); err != nil {
		return err
	}
	r.sends = nil
	return nil
}

// send starts sending the agreement's next message.
func (r *Recovery) send() {
	msg, to := r.current.Next()
	for _, m := range to {
		req := new(backend.Request)
		req.Begin()
		r.control.Isend(req, msg, m, 0, backend.Standard)
		if !req.Ready() { // if it failed, the receive reports it
			r.sends = append(r.sends, req)
		}
	}
}

// receive takes one message that the agreement waits for, or one failure. It returns false if none has
// arrived.
func (r *Recovery) receive() (took bool, err error) {
	for m := range r.links {
		if !r.current.Wants(m) {
			continue
		}
		l := &r.links[m]
		if !l.posted {
			r.post(m, l)
		}
		if l.req.Ready() {
			l.posted = false
			return true, r.take(m, l)
		}
	}
	return false, nil
}

// post posts the receive of member m's next message.
func (r *Recovery) post(m int, l *link) {
	if l.buf == nil {
		l.buf = make([]byte, Size(r.Of.Size(), r.Of.Ranks()))
	}
	l.posted = true
	l.req.Begin()
	r.control.Irecv(&l.req, l.buf, m, 0)
}

// learn waits until this rank has seen itself that members are gone, so that Lost is the same on all ranks.
// If b ends first, it sees the others later.
func (r *Recovery) learn(b *backend.Bound, gone Set) {
	for _, m := range gone.List() {
		l := &r.links[m]
		for ended := m == r.Of.Rank(); !ended; {
			if !l.posted {
				r.post(m, l)
			}
			if r.control.Await(b, &l.req) != nil {
				return
			}
			l.posted = false
			ended = l.req.Err != nil
		}
	}
}

// take passes the message of member m, or its failure, to the agreement.
func (r *Recovery) take(m int, l *link) error {
	switch err := l.req.Err; {
	case err == nil:
		err := r.current.Receive(m, l.buf[:l.req.Status.Bytes])
		switch {
		case errors.Is(err, ErrExcluded):
			return r.excluded()
		case err != nil:
			return backend.Faultf(backend.ErrInternal, "%v", err)
		}
		return nil
	case !errors.Is(err, backend.ErrPeerLost):
		return err
	}
	if err := r.control.Broken(); err != nil { // the job or this rank has failed, not the member
		return err
	}
	r.gone.Add(m)
	r.current.Lose(m)
	return nil
}

// wanted is ready when a message that the agreement waits for has arrived.
type wanted struct{ r *Recovery }

// Ready implements backend.Pending.
func (w wanted) Ready() bool {
	for m := range w.r.links {
		if l := &w.r.links[m]; l.posted && l.req.Ready() && w.r.current.Wants(m) {
			return true
		}
	}
	return false
}

// sent is ready when all messages have been sent.
type sent Recovery

// Ready implements backend.Pending.
func (s *sent) Ready() bool {
	return !slices.ContainsFunc(s.sends, func(q *backend.Request) bool { return !q.Ready() })
}

// named adds the ranks that are late to the error of a Bound. done says what they have not done.
func (r *Recovery) named(err error, done string) error {
	var f *backend.Fault
	if err == nil || !errors.As(err, &f) {
		return err
	}
	var late []int
	for m := range r.links {
		if r.current.Wants(m) {
			late = append(late, m)
		}
	}
	text := "not all ranks have " + done
	switch len(late) {
	case 0:
	case 1:
		text = backend.RankList(late) + " has not " + done
	default:
		text = backend.RankList(late) + " have not " + done
	}
	return backend.Faultf(f.Sentinel, "%s: %s", f.Text, text)
}
