package match

import "github.com/cohort-hpc/cohort/backend"

// Env is the envelope of a message, or the pattern of a receive.
type Env struct {
	Ctx    uint32 // the communicator
	Source int32  // world rank; in a pattern it may be backend.AnySource
	Tag    int32  // in a pattern it may be backend.AnyTag, which takes user tags only
	Elems  backend.Elems
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

	queue *Queue // the queue it is in
	stamp uint64 // place in the order of Push
	links [2]struct{ next, prev *Node }
}

// The lists that a node is in.
const (
	inQueue  = iota
	inBucket // while the queue is indexed
)

// list is a list of nodes by their links k, in the order pushed.
type list struct{ first, last *Node }

func (l *list) push(n *Node, k int) {
	at := &n.links[k]
	at.next, at.prev = nil, l.last
	if l.last == nil {
		l.first = n
	} else {
		l.last.links[k].next = n
	}
	l.last = n
}

func (l *list) remove(n *Node, k int) {
	at := &n.links[k]
	if at.prev == nil {
		l.first = at.next
	} else {
		at.prev.links[k].next = at.next
	}
	if at.next == nil {
		l.last = at.prev
	} else {
		at.next.links[k].prev = at.prev
	}
	at.next, at.prev = nil, nil
}

// find returns the first posted pattern that takes env, or the first message that env takes.
func (l *list) find(env Env, posted bool, k int) *Node {
	for n := l.first; n != nil; n = n.links[k].next {
		if posted && n.Env.Takes(env) || !posted && env.Takes(n.Env) {
			return n
		}
	}
	return nil
}

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
	all     list
	n       int
	stamp   uint64
	buckets []list // a power of two of them
	indexed bool   // Invariant: every node is in the bucket of its key
}

// Len returns the number of nodes.
func (q *Queue) Len() int { return q.n }

// Push appends n, which must not be in a queue.
func (q *Queue) Push(n *Node) {
	q.stamp++
	n.queue, n.stamp = q, q.stamp
	q.all.push(n, inQueue)
	q.n++
	switch {
	case !q.indexed && q.n <= listMax:
	case !q.indexed, q.n > load*len(q.buckets) && len(q.buckets) < maxBuckets:
		q.index()
	default:
		q.bucket(n.Env.Ctx, n.Env.Source).push(n, inBucket)
	}
}

// Remove takes n out and reports whether it was in this queue.
func (q *Queue) Remove(n *Node) bool {
	if n.queue != q {
		return false
	}
	q.all.remove(n, inQueue)
	if q.indexed {
		q.bucket(n.Env.Ctx, n.Env.Source).remove(n, inBucket)
	}
	n.queue = nil
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
	if n := q.all.first; !q.indexed || n.Env.Takes(have) {
		return q.all.find(have, true, inQueue)
	}
	// A pattern that takes it names its source or any source: two buckets, of
	// which the older find is the first posted.
	named := q.bucket(have.Ctx, have.Source).find(have, true, inBucket)
	wild := q.bucket(have.Ctx, backend.AnySource).find(have, true, inBucket)
	if named == nil || wild != nil && wild.stamp < named.stamp {
		return wild
	}
	return named
}

// FindArrived returns what TakeArrived does without removing it.
func (q *Queue) FindArrived(want Env) *Node {
	if !q.indexed || want.Source == backend.AnySource {
		return q.all.find(want, false, inQueue)
	}
	return q.bucket(want.Ctx, want.Source).find(want, false, inBucket)
}

// Each calls f for every node in order until f returns false. f may remove the
// node it is given, and no other.
func (q *Queue) Each(f func(*Node) bool) {
	for n := q.all.first; n != nil; {
		next := n.links[inQueue].next
		if !f(n) {
			return
		}
		n = next
	}
}

func (q *Queue) bucket(ctx uint32, source int32) *list {
	h := (uint64(ctx)<<32 | uint64(uint32(source))) * 0x9e3779b97f4a7c15 // Fibonacci hashing
	return &q.buckets[h>>40&uint64(len(q.buckets)-1)]
}

// index enters all nodes, oldest first, into buckets enough for them.
func (q *Queue) index() {
	size := max(minBuckets, len(q.buckets))
	for size < maxBuckets && q.n > load*size {
		size *= load
	}
	if size > len(q.buckets) {
		q.buckets = make([]list, size) // else they are empty: see Remove
	}
	q.indexed = true
	for n := q.all.first; n != nil; n = n.links[inQueue].next {
		q.bucket(n.Env.Ctx, n.Env.Source).push(n, inBucket)
	}
}
