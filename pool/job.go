package pool

import (
	"context"

	"github.com/cohort-hpc/cohort/internal/word"
)

// task is the function of a loop: it gets the worker and the index.
type task = func(worker, i int) error

// perWorker is the number of chunks in each worker's part of a long loop. With it, all workers end
// within a hundredth of the loop's time, and chunks are still taken rarely.
const perWorker = 64

// few is the number of chunks up to which all go into one slot. That moves fewer cache lines
// between cores, which dominates the time of a short loop.
const few = 4

// maxChunks is the most chunks that fit in a slot.
const maxChunks = 1<<16 - 1

// The caller of a loop or of Run holds the pool's token, and gives the workers orders. Worker 0 holds
// the token while it leads. The holder alone writes epoch: a number, and the order's kind in the
// lowest bits. Before epoch it writes the rest of the order: the fields that are not atomic while left
// is 0, then left, then the slots. Workers that have seen epoch take chunks from the slots, and
// subtract the chunks that are done from left.
//
// Invariant: a chunk is taken once, by a worker that has seen its order. A worker misses an order only
// if nothing is left for it to do. The holder goes on when no worker uses the order any more.
const (
	loopAny  uint64 = iota // workers take chunks of all slots
	loopEach               // a worker takes the chunk in its slot
	leads                  // worker 0 runs the function of Run
	closes                 // workers end

	kindBits = 2
	kindMask = 1<<kindBits - 1
)

// loop is the state of the running loop. A worker reads the fields that are not atomic only while it
// holds a chunk that is still counted in left.
type loop struct {
	epoch word.Uint64 // of the last order
	stop  word.Uint32 // why no more tasks begin, or 0
	run   task
	ctx   context.Context // nil if the loop has no deadline and cannot be canceled
	quot  int             // tasks in a chunk
	rest  int             // the first rest chunks have one task more
}

// next returns the epoch of the next order. The caller holds the token until it has stored it.
func (l *loop) next(kind uint64) uint64 { return l.epoch.Load()&^kindMask + 1<<kindBits + kind }

// Reasons to stop.
const (
	failed   = 1 + iota // a task failed
	canceled            // the context ended
)

// span returns the tasks of chunk k: lo to hi-1.
func (l *loop) span(k int) (lo, hi int) {
	lo = k*l.quot + min(k, l.rest)
	hi = lo + l.quot
	if k < l.rest {
		hi++
	}
	return lo, hi
}

// slot holds the chunks left of a worker's part. Its word has the low 32 bits of the epoch's number,
// the number of the first chunk, and the number after the last. A compare-and-swap of the word takes a
// chunk. A worker that slept through the end of a loop cannot take chunks of a later loop by mistake,
// because the epoch differs.
type slot struct {
	word word.Uint64
	_    [56]byte // one cache line for each slot
}

func (s *slot) put(epoch uint64, lo, hi int) {
	s.word.Store(epoch>>kindBits<<32 | uint64(lo)<<16 | uint64(hi))
}

// look returns the word and its number of chunks, which is 0 in another epoch.
func (s *slot) look(epoch uint64) (v uint64, n int) {
	v = s.word.Load()
	if uint32(v>>32) != uint32(epoch>>kindBits) {
		return v, 0
	}
	return v, int(uint16(v)) - int(uint16(v>>16))
}

// first takes the first chunk, for the slot's worker.
func (s *slot) first(epoch uint64) (int, bool) {
	for {
		v, n := s.look(epoch)
		if n == 0 {
			return 0, false
		}
		if s.word.CompareAndSwap(v, v+1<<16) {
			return int(uint16(v >> 16)), true
		}
	}
}

// last takes the last chunk, for other workers.
func (s *slot) last(epoch uint64) (int, bool) {
	for {
		v, n := s.look(epoch)
		if n == 0 {
			return 0, false
		}
		if s.word.CompareAndSwap(v, v-1) {
			return int(uint16(v)) - 1, true
		}
	}
}

// all takes all chunks and returns their number.
func (s *slot) all(epoch uint64) int {
	for {
		v, n := s.look(epoch)
		if n == 0 || s.word.CompareAndSwap(v, v-uint64(n)) {
			return n
		}
	}
}

// publish orders a loop of n > 0 tasks, of kind loopAny, or loopEach for one task for every worker.
// The caller holds the token.
func (p *Pool) publish(ctx context.Context, n int, run task, kind uint64) uint64 {
	count := len(p.workers)
	chunks := min(n, perWorker*count, maxChunks)
	epoch := p.next(kind)
	p.run, p.ctx = run, nil
	if ctx.Done() != nil {
		p.ctx = ctx
	}
	p.quot, p.rest = n/chunks, n%chunks
	if p.stop.Load() != 0 {
		p.stop.Store(0)
	}
	p.left.Store(int64(chunks))
	parts := count
	if chunks <= few && kind == loopAny {
		parts = 1
	}
	part, more := chunks/parts, chunks%parts
	for w, lo := 0, 0; w < parts && lo < chunks; w++ {
		hi := lo + part
		if w < more {
			hi++
		}
		p.slots[w].put(epoch, lo, hi)
		lo = hi
	}
	p.epoch.Store(epoch)
	return epoch
}

// unclaimed reports whether chunks of a loop are left.
func (p *Pool) unclaimed(epoch uint64) bool {
	for i := range p.slots {
		if _, n := p.slots[i].look(epoch); n > 0 {
			return true
		}
	}
	return false
}

// drain takes all chunks left of a loop and returns their number.
func (p *Pool) drain(epoch uint64) (n int64) {
	for i := range p.slots {
		n += int64(p.slots[i].all(epoch))
	}
	if n > 0 {
		p.skipped.Store(true)
	}
	return n
}

// wakeSome wakes up to two sleeping workers while chunks are left. Each of them first wakes two more
// in the same way, so that all workers wake in few steps.
func (p *Pool) wakeSome(epoch uint64) {
	for limit := 2; limit > 0 && p.asleep.Load() > 0 && p.unclaimed(epoch); limit-- {
		for _, w := range p.workers {
			if p.rouse(w) {
				break
			}
		}
	}
}

// wakeEach wakes the workers that have a chunk of their own in this loop.
func (p *Pool) wakeEach(epoch uint64) {
	for i, w := range p.workers {
		if _, n := p.slots[i].look(epoch); n > 0 {
			p.rouse(w)
		}
	}
}

// rouse wakes a worker if it sleeps, and reports whether it did.
func (p *Pool) rouse(w *worker) bool {
	if !w.bed.wake() {
		return false
	}
	p.asleep.Add(-1)
	return true
}
