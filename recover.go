package cohort

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The kinds of agreements.
const (
	agreeFlag  uint32 = 1 << iota // Agree
	agreeLost                     // Shrink: on the lost ranks and a context id
	agreeClaim                    // Shrink: that all have claimed the id, and no other rank is lost
	agreeMade                     // Shrink: that all have made the communicator
)

// Agree returns the bitwise and of the flags of all participating ranks of c. The result is the same
// on all of them, even on a rank that fails right after Agree has returned. Agree works on a
// communicator that has lost ranks, is broken, or has been revoked. When it returns, every rank knows
// all failures that any of them knew before.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it. If
// a rank fails during the call, either all results include its flag or none does.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Shrink; [ErrBusy]; [ErrRequest] if the last Shrink timed
// out; [ErrNotSupported] on mpi if the library cannot continue after failures, or if the flag has more
// than 32 bits.
//
// Deadline: [ErrTimeout] names ranks that have not arrived. The agreement has not ended then, because
// other ranks may already use this rank's flag. Call Agree again to continue it; the flag of the first
// call counts.
func (c *Comm) Agree(flag int) (int, error) {
	fail := func(err error) (int, error) { return 0, c.failed("agree", Undefined, Undefined, err) }
	if bc, ok := c.recoverer(); ok {
		return c.agreeBy(bc, flag, fail)
	}
	r, err := c.recovering("Agree")
	if err != nil {
		return fail(err)
	}
	defer c.core.busy.Store(false)
	t := r.note(flight.Agree)
	rec, err := r.agree(c.bound, agreeFlag, func() (uint64, uint32) { return uint64(flag), 0 })
	c.core.ended(t, err)
	if err != nil {
		return fail(err)
	}
	return int(rec.Flags), nil
}

// Lost returns, in ascending order, the ranks of c that this rank knows to be lost or to have left
// the job in good order. It is nil if there are none. Other ranks may get other results until the next
// Agree or Shrink.
//
// Local.
func (c *Comm) Lost() []int {
	if c == nil || c.core == nil {
		return nil
	}
	bc, ok := c.core.bc.(interface {
		Lost() []int
		WorldRank(rank int) int
	})
	if !ok {
		return nil
	}
	gone := bc.Lost()
	if s, ok := c.core.bc.(backend.Survivor); ok {
		gone = append(gone, s.Left()...)
	}
	var ranks []int
	for i := range c.core.size {
		if len(gone) > 0 && slices.Contains(gone, bc.WorldRank(i)) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Revoke ends the operations of all ranks on c, pending and later ones, with [ErrBroken]. The error
// names the calling rank, except on mpi. A rank that has learned of a failure calls Revoke so that
// ranks that wait for something else learn of it too. Agree and Shrink still work.
//
// Local: one rank is enough, and Revoke does not wait.
//
// Errors: [ErrClosed]; [ErrNotSupported] on mpi if the library cannot continue after failures.
func (c *Comm) Revoke() error {
	err := c.open()
	why := func() error { return fault(ErrBroken, fmt.Sprintf("rank %d revoked it", c.core.rank)) }
	if err == nil {
		if bc, ok := c.recoverer(); ok {
			err = bc.Revoke(why())
		} else if _, err = c.survivor(); err == nil {
			c.core.bc.Break(why())
		}
	}
	if err != nil {
		return c.failed("revoke", Undefined, Undefined, err)
	}
	return nil
}

// survivor returns the communicator of a backend that can continue after failures.
func (c *Comm) survivor() (backend.Survivor, error) {
	s, ok := c.core.bc.(backend.Survivor)
	if !ok {
		return nil, fault(ErrNotSupported, fmt.Sprintf("backend %s cannot continue after a failure; use local, shm or tcp", c.Backend()))
	}
	return s, nil
}

// recovery is the state of a communicator's agreements. The goroutine that has set core.busy uses it.
type recovery struct {
	k       *core
	bc      backend.Survivor // the communicator's
	control backend.Comm
	doing   string           // the call that timed out; empty if none did
	current *agree.Agreement // the one that has not ended; nil if there is none
	seq     uint32           // of the last agreement
	gone    agree.Set        // members that no longer take part
	links   []link
	sends   []*backend.Request // may be under way
	shrink  shrinking
}

// link receives the messages of one member.
type link struct {
	req    backend.Request
	buf    []byte
	posted bool
}

// recovering takes the communicator for a call of Agree or Shrink.
func (c *Comm) recovering(call string) (*recovery, error) {
	if err := c.take(); err != nil {
		return nil, err
	}
	r, err := c.recoveryFor(call)
	if err != nil {
		c.core.busy.Store(false)
	}
	return r, err
}

func (c *Comm) recoveryFor(call string) (*recovery, error) {
	bc, err := c.survivor()
	if err != nil {
		return nil, err
	}
	k := c.core
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed.Load() {
		return nil, fault(ErrClosed, "the communicator is closed")
	}
	if k.recovery == nil {
		control, err := bc.Control(k.id | controlID)
		if err != nil {
			return nil, err
		}
		k.recovery = &recovery{k: k, bc: bc, control: control, gone: agree.NewSet(k.size), links: make([]link, k.size)}
	}
	r := k.recovery
	if r.doing != "" && r.doing != call {
		return nil, fault(ErrRequest, fmt.Sprintf("the last %s timed out and has not ended; call %s again to continue it", r.doing, r.doing))
	}
	r.doing = call
	return r, nil
}

// close ends the agreements of a communicator that is being closed.
func (r *recovery) close() {
	if r != nil {
		_ = r.control.Close() // the others see that this rank takes no part
	}
}

// agree makes an agreement, or continues the one that timed out. It calls propose for this rank's
// contribution when an agreement begins.
func (r *recovery) agree(b *backend.Bound, kind uint32, propose func() (flags uint64, number uint32)) (rec agree.Record, err error) {
	if r.current == nil {
		err = r.begin(kind, propose)
	}
	if err == nil {
		err = r.run(b)
	}
	if code := backend.Code(err); code != backend.Code(ErrTimeout) && code != backend.Code(ErrCanceled) {
		r.doing = "" // there is nothing to continue
	}
	if err != nil {
		return rec, err
	}
	rec, _ = r.current.Decided()
	r.gone.AddAll(r.current.Dead())
	r.gone.AddAll(rec.Gone)
	r.current = nil
	known := append(r.bc.Lost(), r.bc.Left()...)
	for _, w := range rec.Lost.List() {
		if w == r.bc.WorldRank(r.k.rank) {
			return rec, r.excluded()
		}
		if !slices.Contains(known, w) {
			r.bc.Declare(w, errors.New("the survivors agreed that it is lost"))
		}
	}
	if rec.Kinds != kind {
		return rec, fault(ErrMismatch, "some ranks called Agree and others Shrink")
	}
	return rec, nil
}

// note records a call that begins or continues an agreement.
func (r *recovery) note(kind flight.Kind) flight.Ticket {
	seq := r.seq
	if r.current == nil {
		seq++
	}
	return r.k.recorder.Begin(r.k.message(kind, backend.Blocking), 0, flight.Pair(0, 0), flight.Pair(^uint32(0), seq)) // no peer
}

// begin begins an agreement with this rank's contribution.
func (r *recovery) begin(kind uint32, propose func() (flags uint64, number uint32)) error {
	if err := r.control.Broken(); err != nil { // the job has ended, and there may be no rank left to report it
		return err
	}
	ranks := r.k.job.world.size
	rec := agree.Record{Kinds: kind, Lost: agree.NewSet(ranks), Gone: agree.NewSet(r.k.size)}
	for _, w := range r.bc.Lost() {
		rec.Lost.Add(w)
	}
	left := r.bc.Left() // not failed, and other ranks may not know of it yet
	for m := range r.k.size {
		if w := r.bc.WorldRank(m); rec.Lost.Has(w) || slices.Contains(left, w) {
			r.gone.Add(m)
		}
	}
	if r.gone.Has(r.k.rank) {
		return r.excluded()
	}
	rec.Gone.AddAll(r.gone)
	rec.Flags, rec.Number = propose()
	r.seq++
	r.current = agree.New(r.k.rank, r.k.size, ranks, r.seq, rec, r.gone)
	return nil
}

// excluded returns the error for a rank that the others continue without.
func (r *recovery) excluded() error {
	if err := r.control.Broken(); err != nil {
		return err
	}
	return fault(ErrPeerLost, "the other ranks have declared this one lost")
}

// run exchanges messages until the agreement is decided and all members have the result.
func (r *recovery) run(b *backend.Bound) error {
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
func (r *recovery) send() {
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
func (r *recovery) receive() (took bool, err error) {
	for m := range r.links {
		if !r.current.Wants(m) {
			continue
		}
		l := &r.links[m]
		if !l.posted {
			if l.buf == nil {
				l.buf = make([]byte, agree.Size(r.k.size, r.k.job.world.size))
			}
			l.posted = true
			l.req.Begin()
			r.control.Irecv(&l.req, l.buf, m, 0)
		}
		if l.req.Ready() {
			l.posted = false
			return true, r.take(m, l)
		}
	}
	return false, nil
}

// take passes the message of member m, or its failure, to the agreement.
func (r *recovery) take(m int, l *link) error {
	switch err := l.req.Err; {
	case err == nil:
		err := r.current.Receive(m, l.buf[:l.req.Status.Bytes])
		switch {
		case errors.Is(err, agree.ErrExcluded):
			return r.excluded()
		case err != nil:
			return fault(ErrInternal, err.Error())
		}
		return nil
	case !errors.Is(err, ErrPeerLost):
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
type wanted struct{ r *recovery }

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
type sent recovery

// Ready implements backend.Pending.
func (s *sent) Ready() bool {
	return !slices.ContainsFunc(s.sends, func(q *backend.Request) bool { return !q.Ready() })
}

// named adds the ranks that are late to the error of a Bound. done says what they have not done.
func (r *recovery) named(err error, done string) error {
	var f *backend.Fault
	if err == nil || !errors.As(err, &f) {
		return err
	}
	var late []string
	for m := range r.links {
		if r.current.Wants(m) {
			late = append(late, fmt.Sprint(m))
		}
	}
	return fault(f.Sentinel, f.Text+": "+lateText(late, done))
}

func lateText(late []string, done string) string {
	const most = 8
	switch n := len(late); {
	case n == 0:
		return "not all ranks have " + done
	case n == 1:
		return "rank " + late[0] + " has not " + done
	case n > most:
		late = append(late[:most:most], fmt.Sprintf("%d more", n-most))
	}
	s := "ranks " + late[0]
	for i, r := range late[1:] {
		if i == len(late)-2 {
			s += " and " + r
		} else {
			s += ", " + r
		}
	}
	return s + " have not " + done
}
