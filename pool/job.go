package pool

import (
	"context"
	"sync/atomic"
)

// task is one step of a loop: the worker that runs it, and its index.
type task = func(worker, i int) error

// perWorker is into how many chunks a worker's part of a loop is divided, if it
// is long enough: a loop then ends for all workers within a hundredth of its
// time, and taking chunks is still rare.
const perWorker = 64

// few chunks are not dealt out: all in one slot, they move fewer cache lines between
// cores, of which a short loop's time is made.
const few = 4

// maxChunks is what fits a slot.
const maxChunks = 1<<16 - 1

// loop is what runs now.
//
// Invariant: a worker reads fields that are not atomic only while it has a chunk
// that it has not given back in left. The caller writes them before it puts the
// chunks into the slots, and not again before left is 0.
type loop struct {
	epoch atomic.Uint64 // changes when chunks are there; bit 0: each for the worker of its slot only
	stop  atomic.Uint32 // why no more tasks begin, 0 if they do
	run   task
	ctx   context.Context // nil if it cannot end
	quot  int             // tasks in a chunk
	rest  int             // this many chunks from the first on have one more
}

// Reasons to stop.
const (
	failed   = 1 + iota // a task did
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

// slot holds the chunks that are left of a worker's part: the low 32 bits of the
// loop's epoch, the first chunk and the one after the last. Whoever changes the
// word from what it read takes a chunk. A worker that has slept through the end of a
// loop takes nothing of a later one by mistake, since the epoch is another one.
type slot struct {
	word atomic.Uint64
	_    [56]byte // each on a cache line of its own
}

func (s *slot) put(epoch uint64, lo, hi int) {
	s.word.Store(epoch<<32 | uint64(lo)<<16 | uint64(hi))
}

// look returns the word and how many chunks there are in it, 0 for those of
// another epoch.
func (s *slot) look(epoch uint64) (v uint64, n int) {
	v = s.word.Load()
	if uint32(v>>32) != uint32(epoch) {
		return v, 0
	}
	return v, int(uint16(v)) - int(uint16(v>>16))
}

// first takes the first chunk, for the slot's own worker.
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

// last takes the last chunk, for others.
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

// all takes all chunks and returns how many there were.
func (s *slot) all(epoch uint64) int {
	for {
		v, n := s.look(epoch)
		if n == 0 || s.word.CompareAndSwap(v, v-uint64(n)) {
			return n
		}
	}
}

// publish starts a loop of n tasks, n at least 1: dealt out in chunks that anyone
// takes, or, if each is set, one for every worker. The caller has the turn.
func (p *Pool) publish(ctx context.Context, n int, run task, each bool) uint64 {
	count := len(p.workers)
	chunks := min(n, perWorker*count, maxChunks)
	epoch := (p.epoch.Load() | 1) + 1 // even
	if each {
		epoch++
	}
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
	if chunks <= few && !each {
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

// unclaimed reports whether chunks of a loop wait to be taken.
func (p *Pool) unclaimed(epoch uint64) bool {
	for i := range p.slots {
		if _, n := p.slots[i].look(epoch); n > 0 {
			return true
		}
	}
	return false
}

// drain takes all chunks that are left of a loop and returns how many.
func (p *Pool) drain(epoch uint64) (n int64) {
	for i := range p.slots {
		n += int64(p.slots[i].all(epoch))
	}
	if n > 0 {
		p.skipped.Store(true)
	}
	return n
}

// wakeSome wakes up to two sleeping workers while there are chunks for them.
// Those do the same first, so that waking all takes few steps.
func (p *Pool) wakeSome(epoch uint64) {
	for limit := 2; limit > 0 && p.asleep.Load() > 0 && p.unclaimed(epoch); limit-- {
		for _, w := range p.workers {
			if p.rouse(w) {
				break
			}
		}
	}
}

// wakeEach wakes the workers that have a chunk of their own.
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
