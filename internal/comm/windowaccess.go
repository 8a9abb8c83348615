package comm

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Access is one access of a window. Its kind says what it does with In and Out:
//
//   - Put writes In, Get reads Out.
//   - Accumulate, GetAccumulate and FetchAndOp combine the part with In by Op. Out, if it is not nil, receives
//     the old elements.
//   - CompareAndSwap has the element that it expects in the first half of In and the new one in the second.
type Access struct {
	Kind       flight.Kind
	Op         *backend.Op
	Rank, Disp int
	In, Out    []byte
	Err        error // in the arguments
}

// answersDue is after how many requests a rank waits until they are done, so that no queue grows long.
const answersDue = 256

// unanswered counts the requests without an answer that were sent to a rank, and those that are known to be done.
type unanswered struct{ sent, done word.Uint32 }

// due returns how many requests are not known to be done.
func (r *unanswered) due() uint32 {
	done := r.done.Load()
	return r.sent.Load() - done
}

// finish notes that the first n requests are done. Another goroutine may have noted more.
func (r *unanswered) finish(n uint32) {
	for was := r.done.Load(); int32(n-was) > 0 && !r.done.CompareAndSwap(was, n); was = r.done.Load() {
	}
}

// message is a request or an answer. Its buffer is in use until it is sent.
type message struct {
	req backend.Request
	buf [requestMost]byte
}

// newMessage makes a message for the pool of a window.
func (s *windowCore) newMessage() any {
	m := new(message)
	m.req.Notify = func(*backend.Request) { s.transmitted(m) }
	return m
}

// Do carries out an access.
func (w *Window) Do(op string, a Access) error {
	err := w.enter(a.Rank)
	if err == nil {
		if err = w.check(&a); err == nil && a.Rank != backend.ProcNull {
			k := w.s.core
			t := k.record(k.message(a.Kind, backend.Blocking, len(a.In)+len(a.Out), w.s.elem.ID, 0, a.Rank))
			err = w.access(&a)
			k.recorder.End(t, err)
		}
		w.s.leave()
	}
	return w.Failed(op, a.Rank, err)
}

// check checks the arguments of an access of a rank that exists, and turns Disp into an offset in the part.
func (w *Window) check(a *Access) error {
	s := w.s
	if a.Err != nil || a.Rank == backend.ProcNull {
		return a.Err
	}
	size, n := s.elem.Size, max(len(a.In), len(a.Out))
	if a.Kind == flight.CompareAndSwap {
		n = len(a.Out)
	}
	if a.Disp < 0 || a.Disp > s.counts[a.Rank] || n/size > s.counts[a.Rank]-a.Disp {
		return fault(backend.ErrWin, "%d elements at displacement %d are outside the %d elements of rank %d in %s", n/size, a.Disp, s.counts[a.Rank], a.Rank, s.name)
	}
	a.Disp *= size
	return nil
}

// access carries out an access whose arguments are right, in memory or by messages.
func (w *Window) access(a *Access) error {
	switch s := w.s; {
	case len(a.In)+len(a.Out) == 0 || a.Rank == backend.ProcNull:
		return nil
	case s.parts[a.Rank].Here():
		x := w.waiter()
		return s.apply(&s.parts[a.Rank], requestOf[a.Kind], a.Op, a.Disp, a.In, a.Out, x.expired)
	}
	return w.withDeadline().send(a)
}

// waiter is a goroutine that may wait for another rank's access: an operation of this rank, inside origin, or one that
// serves another rank, inside target.
type waiter struct {
	s     *windowCore
	gate  *gate.Gate
	until until
}

// waiter returns that of an operation of this rank.
func (w *Window) waiter() waiter {
	return waiter{w.s, &w.s.origin, until{bound: w.c.bound, bc: w.s.core.bc}}
}

// until says why an operation that waits has to end: its time is up, or the communicator has ended.
type until struct {
	bound *backend.Bound
	bc    backend.Comm
	start time.Time // of the first err
}

// err returns nil while the operation may go on.
func (u *until) err() error {
	if u.start.IsZero() {
		u.start = time.Now()
	}
	if err := u.bound.Err(u.start); err != nil {
		return err
	}
	if err := u.bc.Broken(); err != nil {
		return &backend.Broken{Cause: err}
	}
	// A probe finds out that a rank is lost, which ends every operation, and makes the progress without
	// which other ranks may not get to unlock. No message has this tag.
	_, _, err := u.bc.Probe(nil, backend.AnySource, backend.NoTag, false)
	if allLeft(err) {
		return nil
	}
	return err
}

// expired returns why the goroutine can wait no longer. A rank that is lost may have been in the access.
func (x *waiter) expired() error {
	s := x.s
	if x.gate.IsShut() {
		return errNotOpen
	}
	if err := s.failure(); err != nil {
		return err
	}
	err := x.until.err()
	if x.gate == &s.target && !errors.Is(err, backend.ErrPeerLost) {
		return nil // the window does not end with the communicator that it is for
	}
	return err
}

// accessMost is how many bytes of a part in memory are accessed before another look at the deadline.
const accessMost = 1 << 20

// apply carries out an access of a part in memory. A wait for another rank's access, and a long access, end with the error of
// expired.
func (s *windowCore) apply(p *window.Part, kind requestKind, op *backend.Op, at int, in, out []byte, expired func() error) error {
	if kind == requestCompareAndSwap {
		return p.CompareSwap(at, in[:len(out)], in[len(out):], out, expired)
	}
	most := max(s.elem.Size, accessMost-accessMost%s.elem.Size)
	for {
		n := min(most, max(len(in), len(out)))
		from, to := in[:min(n, len(in))], out[:min(n, len(out))]
		switch kind {
		case requestPut:
			p.Put(at, from)
		case requestGet:
			p.Get(at, to)
		default:
			if err := p.Reduce(op.Apply, s.elem.Size, at, from, to, expired); err != nil {
				return err
			}
		}
		in, out, at = in[len(from):], out[len(to):], at+n
		if len(in)+len(out) == 0 {
			return nil
		}
		if err := expired(); err != nil {
			return err
		}
	}
}

// send carries out an access by requests to the part's rank.
func (w *Window) send(a *Access) error {
	s := w.s
	most := requestMost - requestSize
	if a.Kind != flight.Put {
		most -= most % s.elem.Size // requests have whole elements
	}
	h := windowRequest{kind: requestOf[a.Kind], at: uint64(a.Disp), n: uint64(len(a.Out))}
	if a.Op != nil {
		h.op = a.Op.Code
	}
	in, out := a.In, a.Out
	for {
		n := min(len(in), most)
		answer := out
		if a.Kind == flight.GetAccumulate || a.Kind == flight.FetchAndOp {
			answer = out[:n]
		}
		if err := w.ask(h, a.Rank, in[:n], answer); err != nil {
			return err
		}
		in, h.at = in[n:], h.at+uint64(n)
		if len(in) == 0 {
			return nil
		}
		if out != nil {
			out = out[n:]
		}
	}
}

// ask sends a request, and receives its answer if out is not nil.
func (w *Window) ask(h windowRequest, rank int, in, out []byte) error {
	if err := w.post(&h, rank, in, out != nil); err != nil {
		return err
	}
	if out != nil {
		return w.answer(&h, rank, out)
	}
	q := &w.s.unanswered[rank]
	q.sent.Add(1)
	if q.due() >= answersDue {
		return w.flush(rank)
	}
	return nil
}

// post sends a request, which gets a tag if an answer is expected.
func (w *Window) post(h *windowRequest, rank int, in []byte, answered bool) error {
	s := w.s
	if answered {
		tag, err := s.takeTag()
		if err != nil {
			return err
		}
		h.tag = int32(tag)
	}
	m := s.messages.Get().(*message)
	view.Of[windowRequest](m.buf[:])[0] = *h
	n := requestSize + copy(m.buf[requestSize:], in)
	err := s.remote.core.bc.Send(w.c.bound, m.buf[:n], rank, requestTag, backend.Standard)
	if err == nil { // the message is not in use any more
		s.messages.Put(m)
	} else if answered { // the request is not sent, or the communicator is broken
		s.putTag(int(h.tag))
	}
	return err
}

// answer receives the answer to a request, which ends when the window is closed.
func (w *Window) answer(h *windowRequest, rank int, out []byte) error {
	s := w.s
	st, err := s.remote.core.bc.Recv(w.c.ends(), out, rank, int(h.tag))
	if err != nil {
		s.disown(rank, int(h.tag))
		return err
	}
	s.putTag(int(h.tag))
	if st.Bytes != len(out) {
		return fault(backend.ErrInternal, "rank %d answered with %d bytes, want %d", rank, st.Bytes, len(out))
	}
	return nil
}

// takeTag returns a tag for an answer.
func (s *windowCore) takeTag() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spareTags); n > 0 {
		tag := s.spareTags[n-1]
		s.spareTags = s.spareTags[:n-1]
		return tag, nil
	}
	if s.lastTag >= s.departureTag()-1 {
		return 0, fault(backend.ErrBusy, "%d accesses of %s wait for an answer; wait for some first", s.lastTag, s.name)
	}
	s.lastTag++
	return s.lastTag, nil
}

func (s *windowCore) putTag(tag int) {
	s.mu.Lock()
	s.spareTags = append(s.spareTags, tag)
	s.mu.Unlock()
}

// disown receives and drops an answer for which the caller does not wait any more. Then its tag can be used again.
func (s *windowCore) disown(rank, tag int) {
	r := &backend.Request{Notify: func(r *backend.Request) { s.putTag(tag) }}
	r.Begin()
	s.remote.core.bc.Irecv(r, nil, rank, tag)
}

// Flush completes this rank's accesses of the part of a rank.
func (w *Window) Flush(rank int) error { return w.flushes("flush", rank, w.enter(rank)) }

// FlushAll completes this rank's accesses.
func (w *Window) FlushAll() error {
	return w.flushes("flushall", Undefined, w.enter(backend.ProcNull))
}

// flushes completes the accesses of the part of a rank, or of all parts for Undefined, and leaves the operation. err is
// the error of enter.
func (w *Window) flushes(op string, rank int, err error) error {
	if err == nil {
		if w = w.withDeadline(); rank == Undefined {
			err = w.flushAll()
		} else if err = w.awaitRputs(rank); err == nil {
			err = w.flush(rank)
		}
		w.s.leave()
	}
	return w.Failed(op, rank, err)
}

// flushAll asks all ranks before it waits for the first one.
func (w *Window) flushAll() (err error) {
	if w.s.remote == nil {
		return nil
	}
	var few [16]flushRequest
	all := few[:0]
	for r := range w.s.counts {
		var f flushRequest
		if err = w.awaitRputs(r); err == nil {
			f, err = w.beginFlush(r)
		}
		if err != nil {
			break
		}
		if f.tag > 0 {
			all = append(all, f)
		}
	}
	for i := range all {
		err = cmp.Or(err, w.endFlush(&all[i]))
	}
	return err
}

// awaitRputs waits until no Rputs to the part of a rank are under way.
func (w *Window) awaitRputs(rank int) error {
	s := w.s
	if s.atHand(rank) {
		return nil
	}
	s.mu.Lock()
	s.rputs[rank] = slices.DeleteFunc(s.rputs[rank], (*transfer).Ready)
	due := slices.Clone(s.rputs[rank])
	s.mu.Unlock()
	for _, t := range due {
		if err := s.core.bc.Await(w.c.bound, t); err != nil {
			return err
		}
	}
	return nil
}

// atHand reports whether accesses of the part of a rank take no requests.
func (s *windowCore) atHand(rank int) bool { return rank == backend.ProcNull || s.parts[rank].Here() }

// flush waits until a rank has carried out the requests that this one has sent.
func (w *Window) flush(rank int) error {
	f, err := w.beginFlush(rank)
	if err == nil {
		err = w.endFlush(&f)
	}
	return err
}

// flushRequest is answered when the first requests to a rank are done, as many as sent says. Its tag is 0 if they are
// done already.
type flushRequest struct {
	windowRequest
	rank int
	sent uint32
}

// beginFlush asks a rank for an answer. In memory it does nothing: the gate's operations, which are atomic, are a barrier.
func (w *Window) beginFlush(rank int) (f flushRequest, err error) {
	s := w.s
	if s.atHand(rank) {
		return f, nil
	}
	f = flushRequest{windowRequest{kind: requestFlush}, rank, s.unanswered[rank].sent.Load()}
	if f.sent != s.unanswered[rank].done.Load() {
		err = w.post(&f.windowRequest, rank, nil, true)
	}
	return f, err
}

// endFlush waits for the answer to f.
func (w *Window) endFlush(f *flushRequest) error {
	if f.tag == 0 {
		return nil
	}
	s := w.s
	t := s.core.numbered(flight.Flush, f.rank, uint32(s.number))
	err := s.core.traced(t, func() error { return w.answer(&f.windowRequest, f.rank, nil) })
	if err == nil {
		s.unanswered[f.rank].finish(f.sent)
	}
	return err
}

// transfer is a part of an operation that a goroutine carries out. The transfer of an Rput or Rget is the
// backend.Operation of its request.
type transfer struct {
	s    *windowCore
	done word.Bool
	err  error
}

// Ready implements backend.Operation.
func (t *transfer) Ready() bool { return t.done.Load() }

// Err implements backend.Operation.
func (t *transfer) Err() error { return t.err }

// Start implements backend.Operation.
func (t *transfer) Start() {}

// Release implements backend.Operation.
func (t *transfer) Release() {}

// End waits for the transfer, which has the deadline of its request. If it does not end, the window does. It gets as
// long as Close does: a goroutine on a busy machine waits for its turn.
func (t *transfer) End(why error) error {
	if t.s.core.bc.Await(&backend.Bound{Timeout: QuiesceFor}, t) == nil {
		return nil
	}
	t.s.giveUp(why)
	return why
}

// spawn calls f in a goroutine. The caller is in an operation of the window.
func (s *windowCore) spawn(f func() error) *transfer {
	t := &transfer{s: s}
	s.origin.Stay()
	go func() {
		defer s.leave()
		t.err = f()
		t.done.Store(true)
		s.core.bc.Wake()
	}()
	return t
}

// Request starts an access, and returns its request. An access in memory is complete at once.
func (w *Window) Request(op string, a Access) (*Request, error) {
	if err := w.enter(a.Rank); err != nil {
		return nil, w.Failed(op, a.Rank, err)
	}
	s := w.s
	defer s.leave()
	if err := w.check(&a); err != nil {
		return nil, w.Failed(op, a.Rank, err)
	}
	p := w.c.newPending(op, a.Kind, s.elem, len(a.In)+len(a.Out), a.Rank, Undefined)
	if s.atHand(a.Rank) {
		p.req.Finish(backend.Status{}, w.access(&a))
		return p.started(), nil
	}
	w = &Window{w.withDeadline().c.Ending(), s}
	s.mu.Lock()
	t := s.spawn(func() error {
		err := w.access(&a)
		if isLoss(err) {
			s.fail(err)
		}
		return err
	})
	if all := &s.rputs[a.Rank]; len(*all) == cap(*all) {
		*all = slices.DeleteFunc(*all, (*transfer).Ready)
	}
	s.rputs[a.Rank] = append(s.rputs[a.Rank], t)
	s.mu.Unlock()
	p.op = t
	return p.started(), nil
}
