package cohort

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// What the ranks are agreeing for.
const (
	agreeFlag  uint32 = 1 << iota // Agree
	agreeLost                     // Shrink: who is lost, and a context id
	agreeClaim                    // whether all have claimed it, and nobody else is lost
	agreeMade                     // whether all have made the communicator
)

// Agree returns the bitwise and of the flags of all ranks of c that take part, which is the same on
// all of them: also on one that is lost as soon as it has returned. It works on a communicator that
// a loss has ended, that is broken, or that has been revoked. When it returns, all ranks know of the
// losses that any of them knew of before.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it. A
// rank that is lost on the way takes part or not, for all the same.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Shrink; [ErrBusy]; [ErrNotSupported] on mpi where the library
// does not go on after losses, or on mpi for a flag of more than 32 bits.
//
// Deadline: [ErrTimeout], which names ranks that have not come. The agreement is not over then, for
// the others may have gone on with this rank's flag: call Agree again, and it goes on where it was,
// with the flag of the first call.
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

// Lost returns the ranks of c that are known here to be lost, or to have left the job in good order,
// in ascending order; nil if none are. Other ranks may know more, or less, until the next Agree or
// Shrink.
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

// Revoke ends what other ranks wait for on c, and all that is called on it later, with [ErrBroken]
// that names the calling rank (on mpi it names none): so a rank that has learnt of a failure gets the others, who may wait for
// something else, to where they learn of it too. Agree and Shrink still work.
//
// Local: one rank is enough, and it does not wait.
//
// Errors: [ErrNotSupported] on mpi where the library does not go on after losses.
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

// survivor returns the backend's way to go on after losses.
func (c *Comm) survivor() (backend.Survivor, error) {
	s, ok := c.core.bc.(backend.Survivor)
	if !ok {
		return nil, fault(ErrNotSupported, fmt.Sprintf("a job of backend %s does not go on after a loss; those of local, shm and tcp do", c.Backend()))
	}
	return s, nil
}

// recovery is what a communicator needs for agreements. The rank whose collective it is uses it.
type recovery struct {
	k       *core
	bc      backend.Survivor // the communicator's
	control backend.Comm
	doing   string           // the call whose time ran out; empty if none did
	current *agree.Agreement // not over yet
	seq     uint32           // of the last one
	gone    agree.Set        // members that take no part any more
	links   []link
	sends   []*backend.Request // that may be under way
	shrink  shrinking
}

// link is where messages of one member come in.
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
		return nil, fault(ErrRequest, fmt.Sprintf("the last %s has not ended, its time ran out: call %s again to go on with it", r.doing, r.doing))
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

// agree makes an agreement, or goes on with the one whose time ran out. What this rank brings is
// asked for when it begins.
func (r *recovery) agree(b *backend.Bound, kind uint32, bring func() (flags uint64, number uint32)) (rec agree.Record, err error) {
	if r.current == nil {
		err = r.begin(kind, bring)
	}
	if err == nil {
		err = r.run(b)
	}
	if code := backend.Code(err); code != backend.Code(ErrTimeout) && code != backend.Code(ErrCanceled) {
		r.doing = "" // there is nothing to go on with
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
			r.bc.Declare(w, errors.New("the survivors have agreed on it"))
		}
	}
	if rec.Kinds != kind {
		return rec, fault(ErrMismatch, "some ranks called Agree and others Shrink")
	}
	return rec, nil
}

// note has the flight recorder note a call that begins an agreement, or goes on with one.
func (r *recovery) note(kind flight.Kind) flight.Ticket {
	seq := r.seq
	if r.current == nil {
		seq++
	}
	return r.k.recorder.Begin(r.k.message(kind, backend.Blocking), 0, flight.Pair(0, 0), flight.Pair(^uint32(0), seq)) // no peer
}

// begin begins an agreement with what this rank knows.
func (r *recovery) begin(kind uint32, bring func() (flags uint64, number uint32)) error {
	if err := r.control.Broken(); err != nil { // the job has ended, though nobody may be left to hear it from
		return err
	}
	ranks := r.k.job.world.size
	rec := agree.Record{Kinds: kind, Lost: agree.NewSet(ranks), Gone: agree.NewSet(r.k.size)}
	for _, w := range r.bc.Lost() {
		rec.Lost.Add(w)
	}
	left := r.bc.Left() // which is no loss: others may not have heard of it yet
	for m := range r.k.size {
		if w := r.bc.WorldRank(m); rec.Lost.Has(w) || slices.Contains(left, w) {
			r.gone.Add(m)
		}
	}
	if r.gone.Has(r.k.rank) {
		return r.excluded()
	}
	rec.Gone.AddAll(r.gone)
	rec.Flags, rec.Number = bring()
	r.seq++
	r.current = agree.New(r.k.rank, r.k.size, ranks, r.seq, rec, r.gone)
	return nil
}

// excluded is the error of a rank that the others go on without.
func (r *recovery) excluded() error {
	if err := r.control.Broken(); err != nil {
		return err
	}
	return fault(ErrPeerLost, "the other ranks have declared this one lost")
}

// run exchanges messages until the agreement is decided and everybody has been told.
func (r *recovery) run(b *backend.Bound) error {
	for {
		r.send()
		if _, ok := r.current.Decided(); ok {
			break
		}
		took, err := r.receive()
		if err == nil && !took {
			err = r.named(r.control.Await(b, wanted{r}), "not come")
		}
		if err != nil {
			return err
		}
	}
	if err := r.named(r.control.Await(b, (*sent)(r)), "taken the outcome"); err != nil {
		return err
	}
	r.sends = nil
	return nil
}

// send starts sending what there is to send.
func (r *recovery) send() {
	msg, to := r.current.Next()
	for _, m := range to {
		req := new(backend.Request)
		req.Begin()
		r.control.Isend(req, msg, m, 0, backend.Standard)
		if !req.Ready() { // and if it failed, the receive will say so
			r.sends = append(r.sends, req)
		}
	}
}

// receive takes one message, or loss, of those that have come and are wanted.
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

// take takes what has come from member m.
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
	if err := r.control.Broken(); err != nil { // not the member: the job, or this rank
		return err
	}
	r.gone.Add(m)
	r.current.Lose(m)
	return nil
}

// wanted is ready when a message that is wanted has come.
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

// sent is ready when everything has been sent.
type sent recovery

// Ready implements backend.Pending.
func (s *sent) Ready() bool {
	return !slices.ContainsFunc(s.sends, func(q *backend.Request) bool { return !q.Ready() })
}

// named adds to the error of a Bound who has not done what is waited for.
func (r *recovery) named(err error, what string) error {
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
	return fault(f.Sentinel, f.Text+": "+lateText(late, what))
}

func lateText(late []string, what string) string {
	const most = 8
	switch n := len(late); {
	case n == 0:
		return "not all ranks have " + what
	case n == 1:
		return "rank " + late[0] + " has " + what
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
	return s + " have " + what
}
