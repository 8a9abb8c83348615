package tensor

import (
	"context"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// queue gives the collectives of a communicator their turns, in the order in which they were started:
// it is the same on all ranks, while the moments at which tensors are ready are not.
type queue struct {
	mu     sync.Mutex
	next   uint64 // the ticket that is given out next
	turn   uint64 // the one whose turn it is
	closed bool
	empty  sync.Cond

	// waiting has who waits for the turn to come so far, and left the tickets whose operations do not
	// wait for theirs any more.
	waiting map[uint64][]chan struct{}
	left    map[uint64]bool
}

// lookahead is how many operations before its turn an asynchronous one starts its first copies: so
// that those behind a long row of others do not hold memory that only the first ones can use.
const lookahead = 3

func (q *queue) init() {
	q.waiting, q.left = make(map[uint64][]chan struct{}), make(map[uint64]bool)
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

// await waits until an operation's turn is so many operations away: it is its turn if that is 0. It
// returns false if the context ends before.
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
	q.pass()
}

// leave ends an operation that has not had its turn, or has it.
func (q *queue) leave(ticket uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn == ticket {
		q.pass()
		return
	}
	q.left[ticket] = true
}

func (q *queue) pass() {
	for again := true; again; {
		q.turn++
		for _, come := range q.waiting[q.turn] {
			close(come)
		}
		delete(q.waiting, q.turn)
		again = q.left[q.turn]
		delete(q.left, q.turn)
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
