package comm

import (
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Set is several requests. Its methods ignore nil requests and those whose completion has been returned
// before, or is returned by another goroutine meanwhile.
type Set struct {
	reqs  []*Request    // wait replaces those that it ignores by nil
	held  []*Request    // while a goroutine waits for the set, those of which it has a hold
	bound backend.Bound // of the request whose deadline comes first, while wait waits
	end   time.Time     // that deadline, if it is known
	peer  int           // the other rank of a request under way
}

var sets = sync.Pool{New: func() any { return new(Set) }}

// NewSet returns an empty set from a pool. Put returns it there.
func NewSet() *Set { return sets.Get().(*Set) }

// Put empties the set and returns it to the pool.
func (s *Set) Put() {
	clear(s.reqs)
	s.reqs, s.bound = s.reqs[:0], backend.Bound{}
	sets.Put(s)
}

// Add adds a request.
func (s *Set) Add(q *Request) { s.reqs = append(s.reqs, q) }

// WaitAll waits until all requests are complete and returns their errors joined.
func (s *Set) WaitAll() error {
	defer s.holdAll().leaveAll()
	var errs []error
	held := s.held
	for _, q := range s.reqs {
		mine := len(held) > 0 && held[0] == q
		if !q.live() {
			if mine {
				held = held[1:]
			}
			continue
		}
		var err error
		if mine { // wait ends this hold
			held[0], held = nil, held[1:]
			_, err = q.wait(phaseReturned)
		} else {
			_, err = q.Wait()
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// holdAll begins a hold of each request, until leaveAll. So Close knows that a goroutine waits for it.
func (s *Set) holdAll() *Set {
	for _, q := range s.reqs {
		if q != nil && q.hold() {
			s.held = append(s.held, q)
		}
	}
	return s
}

// leaveAll ends the holds that are left.
func (s *Set) leaveAll() {
	for _, q := range s.held {
		if q != nil {
			q.leave()
		}
	}
	clear(s.held)
	s.held = s.held[:0]
}

// WaitAny waits until a request is complete and returns its index, -1 if there is none.
func (s *Set) WaitAny() (int, backend.Status, error) {
	defer s.holdAll().leaveAll()
	for s.wait() {
		for i, q := range s.reqs {
			if st, took, err := q.collect(); took {
				return i, st, err
			}
		}
	}
	return -1, backend.Status{}, nil
}

// WaitSome waits until a request is complete and returns the indices of all that are.
func (s *Set) WaitSome() (done []int, err error) {
	defer s.holdAll().leaveAll()
	for len(done) == 0 && s.wait() {
		done, err = s.collect()
	}
	return done, err
}

// TestAll makes progress and reports whether all requests are complete, with their errors if they are.
func (s *Set) TestAll() (bool, error) {
	for _, q := range s.reqs {
		if q.live() && !q.advance() {
			return false, nil
		}
	}
	return true, s.WaitAll()
}

// TestAny makes progress and returns a complete request, or -1 and whether there is none to wait for.
func (s *Set) TestAny() (int, backend.Status, bool, error) {
	some := false
	for i, q := range s.reqs {
		if !q.live() {
			continue
		}
		q.advance()
		if st, took, err := q.collect(); took {
			return i, st, true, err
		}
		some = some || q.live()
	}
	return -1, backend.Status{}, !some, nil
}

// TestSome makes progress and returns the indices of the complete requests.
func (s *Set) TestSome() ([]int, error) {
	for _, q := range s.reqs {
		if q.live() {
			q.advance()
		}
	}
	return s.collect()
}

// live reports whether a set considers q.
func (q *Request) live() bool { return q != nil && q.phase() != phaseReturned }

// Succeeded reports whether the operation has ended without an error. The caller returns its completion then.
func (q *Request) Succeeded() bool {
	if q == nil || q.pass() {
		return true
	}
	if !q.phase().stored() {
		return false
	}
	word.Reading(&q.result)
	if q.failure != nil {
		return false
	}
	q.markReturned()
	return true
}

// advance makes progress and reports whether the result is stored.
func (q *Request) advance() bool {
	if !q.hold() {
		return true
	}
	_, done, _ := q.test(phaseEnded)
	return done
}

// collect returns the result of a complete operation, unless another goroutine does.
func (q *Request) collect() (st backend.Status, took bool, err error) {
	switch {
	case q == nil:
		return st, false, nil
	case !q.hold():
		if took = q.markReturned(); took {
			st, err = q.get()
		}
		return st, took, err
	case q.complete() && q.claim():
		st, err = q.settle(phaseReturned)
		return st, true, err
	}
	q.leave()
	return st, false, nil
}

// collect returns the indices and joined errors of all complete requests.
func (s *Set) collect() ([]int, error) {
	var done []int
	var errs []error
	for i, q := range s.reqs {
		_, took, err := q.collect()
		if took {
			done = append(done, i)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

// ready reports whether the operation is complete, or another goroutine has ended it. Held, unless it has ended.
func (q *Request) ready() bool {
	return q.phase() != phaseOpen || q.complete()
}

// Ready implements backend.Pending: a request is ready, or the context of one has ended.
func (s *Set) Ready() bool {
	for _, q := range s.reqs {
		if q != nil && (q.ready() || q.c.bound != nil && q.c.bound.Ctx != nil && q.c.bound.Ctx.Err() != nil) {
			return true
		}
	}
	return false
}

// slice is how long a wait for requests of several jobs stays in one job before it polls the
// others. Only a goroutine with requests of several ranks of one process waits so.
const slice = 200 * time.Microsecond

// wait waits until there is a result to collect. It returns false if there is none to wait for. It ends the
// first operation whose deadline passes.
func (s *Set) wait() bool {
	var t flight.Ticket // of the wait, once it has begun
	var k *core
	defer func() {
		if t != 0 {
			k.recorder.End(t, nil)
		}
	}()
	for {
		var first *Request
		several := false
		s.bound, s.end = backend.Bound{}, time.Time{}
		for i, q := range s.reqs {
			switch {
			case q == nil:
				continue
			case !q.live():
				s.reqs[i] = nil
				continue
			case !q.hold() || s.look(q):
				return true
			case first == nil:
				first = q
			}
			several = several || q.c.core.job != first.c.core.job
		}
		if first == nil {
			return false
		}
		if t == 0 {
			k = first.c.core
			t = k.record(k.message(flight.WaitAny, backend.Blocking, len(s.reqs), 0, 0, s.peer))
		}
		var b *backend.Bound
		if s.bound.Limited() {
			b = &s.bound
		}
		if several {
			for _, q := range s.reqs {
				if q != nil {
					q.c.core.bc.Poll()
				}
			}
			b = &backend.Bound{Timeout: slice}
		}
		_ = first.c.core.bc.Await(b, s) // look finds the deadline that has passed
	}
}

// look reports whether q has a result to collect, and ends it if its deadline has passed. Otherwise it notes
// the deadline if that is the first of the set. It ends the caller's hold of q.
func (s *Set) look(q *Request) (ready bool) {
	for q.phase() == phaseClaimed { // the goroutine that ends it may leave it to others to return its result
		_ = q.c.core.bc.Await(nil, (*decided)(q)) // has no limit
	}
	if q.phase() == phaseOpen && !q.complete() {
		if why := q.limit.Err(time.Time{}); why != nil && q.claim() {
			_, _ = q.giveUp(why, phaseEnded) // the result is to be collected
			return true
		}
		end, timed := q.limit.Deadline(time.Time{})
		if q.limit != nil && (!s.bound.Limited() || timed && (s.end.IsZero() || end.Before(s.end))) {
			s.bound, s.end = *q.limit, end
		}
		s.peer = q.peer
	} else {
		ready = q.phase() != phaseReturned
	}
	q.leave()
	return ready
}
