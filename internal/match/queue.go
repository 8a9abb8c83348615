package match

import "github.com/cohort-hpc/cohort/backend"

// Env is the envelope of a message, or the pattern of a receive.
type Env struct {
	Ctx    uint32 // the communicator
	Source int32  // world rank; in a pattern it may be backend.AnySource
	Tag    int32  // in a pattern it may be backend.AnyTag, which takes user tags only
}

// Takes reports whether a receive with pattern want can get the message have.
func (want Env) Takes(have Env) bool {
	return want.Ctx == have.Ctx &&
		(want.Source == have.Source || want.Source == backend.AnySource) &&
		(want.Tag == have.Tag || want.Tag == backend.AnyTag && have.Tag >= 0)
}

// Node is an entry of a Queue. Backends embed it in their record of a receive
// or message; Env and Owner must not change while it is queued.
type Node struct {
	Env   Env
	Owner any // the record that embeds the node

	queue        *Queue // the queue it is in
	stamp        uint64 // place in the order of Push
	next, prev   *Node  // all of the queue
	bnext, bprev *Node  // its bucket, while the queue is indexed
}

type bucket struct{ first, last *Node }

const (
	listMax    = 16 // longest queue that is searched without the index
	minBuckets = 64
	maxBuckets = 1 << 14
	load       = 4 // nodes for each bucket before there are more buckets
)

// Queue holds posted receives, or arrived messages, in the order pushed. The
// zero value is empty and ready. It is not safe for concurrent use.
//
// A short queue is a list. A longer one also has an index by context and source, so
// that the time to find a match does not grow with the number of ranks. The index is
// kept, and grows only if the queue is longer than ever before: otherwise nothing
// allocates.
type Queue struct {
	first, last *Node
	n           int
	stamp       uint64
	buckets     []bucket // a power of two of them
	indexed     bool     // Invariant: every node is in the bucket of its key
}

// Len returns the number of nodes.
func (q *Queue) Len() int { return q.n }

// Push appends n, which must not be in a queue.
func (q *Queue) Push(n *Node) {
	q.stamp++
	n.queue, n.stamp = q, q.stamp
	n.next, n.prev = nil, q.last
	if q.last == nil {
		q.first = n
	} else {
		q.last.next = n
	}
	q.last = n
	q.n++
	switch {
	case !q.indexed && q.n <= listMax:
	case !q.indexed, q.n > load*len(q.buckets) && len(q.buckets) < maxBuckets:
		q.index()
	default:
		q.enter(n)
	}
}

// Remove takes n out and reports whether it was in this queue.
func (q *Queue) Remove(n *Node) bool {
	if n.queue != q {
		return false
	}
	if n.prev == nil {
		q.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		q.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	if q.indexed {
		b := q.bucket(n.Env.Ctx, n.Env.Source)
		if n.bprev == nil {
			b.first = n.bnext
		} else {
			n.bprev.bnext = n.bnext
		}
		if n.bnext == nil {
			b.last = n.bprev
		} else {
			n.bnext.bprev = n.bprev
		}
	}
	n.queue, n.next, n.prev, n.bnext, n.bprev = nil, nil, nil, nil, nil
	if q.n--; q.n == 0 {
		q.indexed = false // every bucket is empty
	}
	return true
}

// TakePosted removes and returns the first pattern that takes the message have, or
// nil.
func (q *Queue) TakePosted(have Env) *Node { return q.take(q.FindPosted(have)) }

// TakeArrived removes and returns the first message that the pattern want takes, or
// nil.
func (q *Queue) TakeArrived(want Env) *Node { return q.take(q.FindArrived(want)) }

func (q *Queue) take(n *Node) *Node {
	if n != nil {
		q.Remove(n)
	}
	return n
}

// FindPosted returns what TakePosted does without removing it.
func (q *Queue) FindPosted(have Env) *Node {
	if !q.indexed {
		for n := q.first; n != nil; n = n.next {
			if n.Env.Takes(have) {
				return n
			}
		}
		return nil
	}
	// A pattern that takes it names its source or any source: two buckets, of
	// which the older find is the first posted.
	named := posted(q.bucket(have.Ctx, have.Source), have)
	wild := posted(q.bucket(have.Ctx, backend.AnySource), have)
	if named == nil || wild != nil && wild.stamp < named.stamp {
		return wild
	}
	return named
}

func posted(b *bucket, have Env) *Node {
	for n := b.first; n != nil; n = n.bnext {
		if n.Env.Takes(have) {
			return n
		}
	}
	return nil
}

// FindArrived returns what TakeArrived does without removing it.
func (q *Queue) FindArrived(want Env) *Node {
	if !q.indexed || want.Source == backend.AnySource {
		for n := q.first; n != nil; n = n.next {
			if want.Takes(n.Env) {
				return n
			}
		}
		return nil
	}
	for n := q.bucket(want.Ctx, want.Source).first; n != nil; n = n.bnext {
		if want.Takes(n.Env) {
			return n
		}
	}
	return nil
}

// Each calls f for every node in order until f returns false. f may remove the
// node it is given, and no other.
func (q *Queue) Each(f func(*Node) bool) {
	for n := q.first; n != nil; {
		next := n.next
		if !f(n) {
			return
		}
		n = next
	}
}

func (q *Queue) bucket(ctx uint32, source int32) *bucket {
	h := (uint64(ctx)<<32 | uint64(uint32(source))) * 0x9e3779b97f4a7c15 // Fibonacci hashing
	return &q.buckets[h>>40&uint64(len(q.buckets)-1)]
}

// enter puts n, the youngest, into its bucket.
func (q *Queue) enter(n *Node) {
	b := q.bucket(n.Env.Ctx, n.Env.Source)
	n.bnext, n.bprev = nil, b.last
	if b.last == nil {
		b.first = n
	} else {
		b.last.bnext = n
	}
	b.last = n
}

// index enters all nodes, oldest first, into buckets enough for them.
func (q *Queue) index() {
	size := max(minBuckets, len(q.buckets))
	for size < maxBuckets && q.n > load*size {
		size *= load
	}
	if size > len(q.buckets) {
		q.buckets = make([]bucket, size) // else they are empty: see Remove
	}
	q.indexed = true
	for n := q.first; n != nil; n = n.next {
		q.enter(n)
	}
}
