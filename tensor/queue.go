package tensor

import (
	"context"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// queue runs the collectives of a communicator one at a time, in the order in which they were
// started. All ranks start them in the same order, but tensors become ready at different times.
type queue struct {
	mu     sync.Mutex
	next   uint64       // the next ticket
	turn   uint64       // the ticket of the running operation
	last   backend.Coll // the operation that took the last ticket
	closed bool

	waiting map[uint64][]chan struct{} // goroutines that wait until turn has a value
}

// lookahead is how many operations before its turn a nonblocking one starts its first copies. It is
// small, so that operations far behind in the queue do not hold memory that earlier ones need.
const lookahead = 3

func (q *queue) init() { q.waiting = make(map[uint64][]chan struct{}) }

// take returns the ticket of a new operation.
func (q *queue) take(coll backend.Coll) (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, backend.CommClosed
	}
	q.last = coll
	q.next++
	return q.next - 1, nil
}

// await waits until at most before other operations remain ahead of this one; with 0, it is its
// turn. It returns false if the context ends first.
func (q *queue) await(ctx context.Context, ticket, before uint64) bool {
	q.mu.Lock()
	if q.turn+before >= ticket {
		q.mu.Unlock()
		return true
	}
	at, come := ticket-before, make(chan struct{})
	q.waiting[at] = append(q.waiting[at], come)
	q.mu.Unlock()
	select {
	case <-come:
		return true
	case <-ctx.Done():
		return false
	}
}

// done ends an operation's turn.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn++
	for _, come := range q.waiting[q.turn] {
		close(come)
	}
	delete(q.waiting, q.turn)
}

// close rejects new operations and waits for those that have begun. It returns an error that names the last one if the
// context ends first.
func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	next, last := q.next, q.last
	q.mu.Unlock()
	if q.await(ctx, next, 0) {
		return nil
	}
	return fault(cohort.ErrRequest, "the %s is not complete; wait for it before Close", nameOf(last))
}
