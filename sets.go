package cohort

import (
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// WaitAll waits until all requests are complete and returns their errors joined. It ignores nil
// requests and requests whose completion has been returned before.
//
// Errors: those of the operations.
//
// Deadline: as for [Request.Wait], for each request.
func WaitAll(reqs ...*Request) error {
	var errs []error
	for _, q := range reqs {
		if !q.live() {
			continue
		}
		if _, err := q.Wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WaitAny waits until one of the requests is complete and returns its index, status and error. It
// ignores nil requests and requests whose completion has been returned before. If no others are
// left, the index is -1.
//
// Errors: those of the operation whose index is returned.
//
// Deadline: as for [Request.Wait]. The index is that of the operation that was ended.
func WaitAny(reqs ...*Request) (int, Status, error) {
	first, err := waitSome(reqs)
	if first < 0 {
		return -1, Status{}, nil
	}
	if err != nil {
		return first, Status{}, err
	}
	st, err := reqs[first].Wait() // returns at once
	return first, st, err
}

// WaitSome waits until at least one of the requests is complete and returns the indices of all
// complete ones, with their errors joined. It ignores nil requests and requests whose completion
// has been returned before. If no others are left, the result is nil.
//
// Errors: those of the operations whose indices are returned.
//
// Deadline: as for [Request.Wait]. The indices include that of the operation that was ended.
func WaitSome(reqs ...*Request) ([]int, error) {
	first, err := waitSome(reqs)
	if first < 0 {
		return nil, nil
	}
	if err != nil {
		return []int{first}, err
	}
	return collect(reqs)
}

// TestAll makes progress without waiting and reports whether all requests are complete, with their
// errors joined if they are. Nil requests and requests whose completion has been returned before
// count as complete.
//
// Errors: those of the operations.
//
// Deadline: as for [Request.Wait], for each request.
func TestAll(reqs ...*Request) (bool, error) {
	for _, q := range reqs {
		if q.live() && !q.advance() {
			return false, nil
		}
	}
	return true, WaitAll(reqs...)
}

// TestAny makes progress without waiting and returns the index, status and error of a complete
// request, if there is one. It ignores nil requests and requests whose completion has been returned
// before. If no others are left, it returns -1 and true.
//
// Errors: those of the operation whose index is returned.
//
// Deadline: as for [Request.Wait], for each request.
func TestAny(reqs ...*Request) (int, Status, bool, error) {
	some := false
	for i, q := range reqs {
		if !q.live() {
			continue
		}
		some = true
		if q.advance() {
			st, err := q.Wait()
			return i, st, true, err
		}
	}
	return -1, Status{}, !some, nil
}

// TestSome makes progress without waiting and returns the indices of the complete requests, with
// their errors joined. It ignores nil requests and requests whose completion has been returned
// before.
//
// Errors: those of the operations whose indices are returned.
//
// Deadline: as for [Request.Wait], for each request.
func TestSome(reqs ...*Request) ([]int, error) {
	for _, q := range reqs {
		if q.live() {
			q.advance()
		}
	}
	return collect(reqs)
}

// live reports whether the functions above consider q.
func (q *Request) live() bool { return q != nil && !q.reported.Load() }

// advance makes progress and reports whether q is complete.
func (q *Request) advance() bool {
	if !q.hold() {
		return true
	}
	defer q.drop()
	return q.poll()
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
func collect(reqs []*Request) ([]int, error) {
	var done []int
	var errs []error
	for i, q := range reqs {
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

// anyOf is ready when one of its requests is ready or the context of one has ended.
type anyOf struct{ reqs []*Request }

func (s *anyOf) Ready() bool {
	for _, q := range s.reqs {
		if q.live() && (q.ready() || q.c.bound != nil && q.c.ctx.Err() != nil) {
			return true
		}
	}
	return false
}

var anySets = sync.Pool{New: func() any { return new(anyOf) }}

// slice is how long a wait for requests of several jobs stays in one job before it polls the
// others. Only a goroutine with requests of several ranks of one process waits so.
const slice = 200 * time.Microsecond

// waitSome waits until a live request is complete and returns its index, or -1 if there is none to
// wait for. An error belongs to the request at the index, which is still under way.
func waitSome(reqs []*Request) (int, error) {
	s := anySets.Get().(*anyOf)
	s.reqs = reqs
	var t flight.Ticket // of the wait, once it has begun
	var k *core
	defer func() {
		s.reqs = nil
		anySets.Put(s)
		if t != 0 {
			k.recorder.End(t)
		}
	}()
	for {
		var next *Request // the one to wait for
		several := false
		at := -1
		for i, q := range reqs {
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
		for i, q := range reqs {
			if !q.live() || q.c.bound == nil {
				continue
			}
			if why := q.c.bound.Err(q.begun); why != nil {
				return i, q.expire(why)
			}
			if next.c.bound == nil {
				next, at = q, i
			}
		}
		if t == 0 {
			k = next.c.core
			t = k.recorder.Begin(k.message(flight.WaitAny, backend.Blocking), uint64(len(reqs)), 0, flight.Pair(uint32(int32(next.peer)), 0))
		}
		if several {
			for _, q := range reqs {
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
