package comm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// outstanding is a nonblocking or a persistent collective.
type outstanding struct {
	q *Request // nil: it is persistent
	p *Persistent
}

// request returns the request of the last start.
func (l outstanding) request() *Request {
	if l.p != nil {
		return l.p.last.Load()
	}
	return l.q
}

// over reports whether the collective has ended and is not started again.
func (l outstanding) over() bool {
	p := l.request().phase()
	return p >= phaseClosed || l.p == nil && p.stored()
}

// addOutstanding notes a collective. The caller has taken the communicator.
func (k *core) addOutstanding(l outstanding) {
	if n := len(k.outstanding); n == cap(k.outstanding) {
		if k.outstanding = slices.DeleteFunc(k.outstanding, outstanding.over); len(k.outstanding) > n/2 {
			k.outstanding = slices.Grow(k.outstanding, n)
		}
	}
	k.outstanding = append(k.outstanding, l)
}

// unwaited returns the error of the operations that the program has started and for which no goroutine waits, nil if
// there are none. It names the first and says how many there are. Collectives and messages that are on their way get
// up to a second to complete, but not past end. A collective that has then failed counts only if it tells of a
// mismatch. The rest is not reported after an operation has told of a loss or a mismatch: then the program gives up.
// colls says that the caller has taken the communicator.
//
//  1. Hold the operations under way that no goroutine uses.
//  2. Wait for those that are on their way.
//  3. Claim each one that still no other goroutine holds, note whether it has failed, and open it again.
//  4. Report them.
func (k *core) unwaited(colls bool, end time.Time) error {
	messages, held, moving := k.holdUnderWay(colls)
	b := &backend.Bound{Timeout: min(time.Second, remaining(end)), Since: time.Now()}
	for _, p := range moving {
		_ = k.bc.Await(b, p)
	}
	var mismatch error
	var first *backend.OpError
	text, more := "", 0
	for i, q := range held {
		// If another goroutine has a hold, or has claimed it, it waits for it now or has its result.
		if word.CompareAndSwapUint32(&q.word, uint32(phaseOpen)+oneHold, uint32(phaseClaimed)+oneHold) {
			var err error
			if i >= messages && q.op.Ready() {
				err = q.op.Err()
			}
			switch {
			case errors.Is(err, backend.ErrMismatch) && !k.reported.Load():
				mismatch = q.failed(err)
			case err != nil:
			case first == nil:
				first = &backend.OpError{Op: "close", Comm: k.name, Rank: k.rank, Peer: q.peer, Tag: q.tag}
				text = "the program has not waited for its " + q.operation()
			default:
				more++
			}
			q.reopen(phaseClaimed)
			k.bc.Wake()
		}
		q.leave()
	}
	if mismatch != nil || first == nil || k.givesUp() {
		return mismatch
	}
	if more > 0 {
		text = fmt.Sprintf("%s, and neither for %d more", text, more)
	}
	first.Err = fault(backend.ErrRequest, "%s", text)
	return first
}

// holdUnderWay holds the requests under way that no goroutine uses, so that nobody uses their records again: first
// messages, as many as it says, and then collectives, if colls is set. moving is what is on its way of them.
func (k *core) holdUnderWay(colls bool) (messages int, held []*Request, moving []backend.Pending) {
	hold := func(q *Request) bool {
		if word.CompareAndSwapUint32(&q.word, uint32(phaseOpen), uint32(phaseOpen)+oneHold) {
			held = append(held, q)
			return true
		}
		return slices.Contains(held, q)
	}
	k.bc.UnderWay(func(r *backend.Request, moves bool) {
		q, ok := r.Owner.(*Request)
		if p, message := r.Owner.(*pending); message {
			q, ok = p.request(), true
		}
		if ok && hold(q) && moves {
			moving = append(moving, r)
		}
	})
	messages = len(held)
	if colls {
		for _, l := range k.outstanding {
			if q := l.request(); hold(q) {
				moving = append(moving, q.op)
			}
		}
	}
	return messages, held, moving
}
