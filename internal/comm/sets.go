package comm

import (
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Set is several requests. Its methods ignore nil requests and those whose completion has been returned
// before.
type Set struct{ reqs []*Request }

var sets = sync.Pool{New: func() any { return new(Set) }}

// NewSet returns an empty set from a pool. Put returns it there.
func NewSet() *Set { return sets.Get().(*Set) }

// Put empties the set and returns it to the pool.
func (s *Set) Put() {
	clear(s.reqs)
	s.reqs = s.reqs[:0]
	sets.Put(s)
}

// Add adds a request.
func (s *Set) Add(q *Request) { s.reqs = append(s.reqs, q) }

// WaitAll waits until all requests are complete and returns their errors joined.
func (s *Set) WaitAll() error {
	var errs []error
	for _, q := range s.reqs {
		if !q.live() {
			continue
		}
		if _, err := q.Wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WaitAny waits until a request is complete and returns its index, -1 if there is none.
func (s *Set) WaitAny() (int, backend.Status, error) {
	first, err := s.wait()
	if first < 0 || err != nil {
		return first, backend.Status{}, err
	}
	st, err := s.reqs[first].Wait() // returns at once
	return first, st, err
}

// WaitSome waits until a request is complete and returns the indices of all that are.
func (s *Set) WaitSome() ([]int, error) {
	first, err := s.wait()
	switch {
	case first < 0:
		return nil, nil
	case err != nil:
		return []int{first}, err
	}
	return s.collect()
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
		some = true
		if q.advance() {
			st, err := q.Wait()
			return i, st, true, err
		}
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
func (q *Request) live() bool { return q != nil && !q.reported.Load() }

// advance makes progress and reports whether q is complete.
func (q *Request) advance() bool {
	if !q.hold() {
		return true
	}
	defer q.drop()
	return q.poll()
}

// about returns the other rank of an operation and the start of its timeout; nothing if it is complete.
func (q *Request) about() (peer int, begun time.Time) {
	if !q.hold() {
		return Undefined, begun
	}
	defer q.drop()
	return q.peer, q.begun
}

// expire ends q at its deadline. It returns nil if q is then complete.
func (q *Request) expire(why error) error {
	if !q.hold() {
		return nil
	}
	defer q.drop()
	if q.complete() {
		return nil
	}
	return q.end(why)
}

// collect returns the indices and joined errors of all complete requests.
func (s *Set) collect() ([]int, error) {
	var done []int
	var errs []error
	for i, q := range s.reqs {
		if !q.live() || !q.ready() {
			continue
		}
		done = append(done, i)
		if _, err := q.Wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

// Ready implements backend.Pending: a request is ready, or the context of one has ended.
func (s *Set) Ready() bool {
	for _, q := range s.reqs {
		if q.live() && (q.ready() || q.c.bound != nil && q.c.ctx.Err() != nil) {
			return true
		}
	}
	return false
}

// slice is how long a wait for requests of several jobs stays in one job before it polls the
// others. Only a goroutine with requests of several ranks of one process waits so.
const slice = 200 * time.Microsecond

// wait waits until a live request is complete and returns its index, or -1 if there is none to wait
// for. An error belongs to the request at the index, which is still under way.
func (s *Set) wait() (int, error) {
	var t flight.Ticket // of the wait, once it has begun
	var k *core
	defer func() {
		if t != 0 {
			k.recorder.End(t)
		}
	}()
	for {
		var next *Request // the one to wait for
		several := false
		at := -1
		for i, q := range s.reqs {
			if !q.live() {
				continue
			}
			if q.ready() {
				return i, nil
			}
			if next == nil {
				next, at = q, i
			}
			several = several || q.c.core.job != next.c.core.job
		}
		if next == nil {
			return -1, nil
		}
		// Of several operations with deadlines, the first to expire decides.
		for i, q := range s.reqs {
			if !q.live() || q.c.bound == nil {
				continue
			}
			_, begun := q.about()
			if why := q.c.bound.Err(begun); why != nil {
				return i, q.expire(why)
			}
			if next.c.bound == nil {
				next, at = q, i
			}
		}
		if t == 0 {
			k = next.c.core
			peer, _ := next.about()
			tr := k.message(flight.WaitAny, backend.Blocking, len(s.reqs), 0, 0, peer)
			t = k.recorder.Begin(tr.what, tr.count, tr.typed, tr.place)
		}
		if several {
			for _, q := range s.reqs {
				if q.live() {
					q.c.core.bc.Poll()
				}
			}
			// An expired slice is not an error.
			_ = next.c.core.bc.Await(&backend.Bound{Timeout: slice}, s)
			continue
		}
		if why := next.c.core.bc.Await(next.c.bound, s); why != nil {
			return at, next.expire(why)
		}
	}
}
