package tensor

import (
	"sync"

	"github.com/cohort-hpc/cohort"
)

// queue gives the collectives of a communicator their turns, in the order in which they were started:
// it is the same on all ranks, while the moments at which tensors are ready are not.
type queue struct {
	mu      sync.Mutex
	next    uint64 // the ticket that is given out next
	turn    uint64 // the one whose turn it is
	waiting map[uint64]chan struct{}
	closed  bool
	empty   sync.Cond
}

func (q *queue) init() {
	q.waiting = make(map[uint64]chan struct{})
	q.empty.L = &q.mu
}

// take returns the ticket of an operation that begins now.
func (q *queue) take() (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return 0, fault(cohort.ErrClosed, "the communicator is closed")
	}
	q.next++
	return q.next - 1, nil
}

// await waits for an operation's turn.
func (q *queue) await(ticket uint64) {
	q.mu.Lock()
	if q.turn == ticket {
		q.mu.Unlock()
		return
	}
	come := make(chan struct{})
	q.waiting[ticket] = come
	q.mu.Unlock()
	<-come
}

// done ends an operation's turn.
func (q *queue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.turn++
	if come := q.waiting[q.turn]; come != nil {
		delete(q.waiting, q.turn)
		close(come)
	}
	if q.turn == q.next {
		q.empty.Broadcast()
	}
}

// close lets nothing begin any more, and waits for what has.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.turn != q.next {
		q.empty.Wait()
	}
}
