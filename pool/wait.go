package pool

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// lookEvery is how many looks there are between two readings of the clock.
const lookEvery = 16

// look calls ready until it returns true, for a bounded time. It reports whether ready did.
func look(limit time.Duration, ready func() bool) bool {
	if ready() {
		return true
	}
	if limit == 0 {
		return false
	}
	var begin time.Time
	for {
		for range lookEvery {
			shmem.Pause()
			if ready() {
				return true
			}
		}
		if now := time.Now(); begin.IsZero() {
			begin = now
		} else if now.Sub(begin) > limit {
			return false
		}
	}
}

// patience is how long threads look before they sleep.
type patience struct {
	caller time.Duration // the caller of a loop, all in all
	glance time.Duration // of that, before it wakes sleeping workers
	worker time.Duration
	yields bool // a worker sleeps at once when the caller needs its processor
}

// patienceFor returns what is right for callers that are no workers. Where the
// caller has no processor of its own, it looks for as long as handing it to a
// worker takes, and then does that; where threads share one anyway, who looks only
// keeps others from what it looks for.
func patienceFor(workers, processors int) patience {
	const us = time.Microsecond
	switch {
	case workers < processors:
		return patience{caller: 30 * us, glance: 2 * us, worker: 50 * us}
	case workers == processors && workers > 1:
		return patience{caller: 5 * us, glance: 5 * us, worker: 20 * us, yields: true}
	}
	return patience{}
}

// teamPatienceFor returns what is right for a caller that is worker 0.
func teamPatienceFor(workers, processors int) patience {
	if workers > processors {
		return patience{}
	}
	return patience{caller: 50 * time.Microsecond, worker: 50 * time.Microsecond}
}

// await waits for a loop that the worker has not seen. It reports false at the
// end of the pool.
func (w *worker) await() bool {
	p := w.pool
	how := &p.single
	if p.team.Load() {
		how = &p.together
	}
	limit := how.worker
	if how.yields && (w.woke || p.asleep.Load() == 0 && !p.waiter.asleep()) {
		limit = 0
	}
	w.woke = false
	slept := false
	for !look(limit, func() bool { return p.epoch.Load() != w.seen }) {
		// Invariant: who starts a loop after this sees that the worker sleeps.
		w.bed.announce()
		p.asleep.Add(1)
		if p.epoch.Load() == w.seen {
			w.bed.sleep()
		} else if w.bed.withdraw() {
			p.asleep.Add(-1)
		}
		slept, limit = true, 0
	}
	w.seen = p.epoch.Load()
	if p.quit.Load() {
		return false
	}
	if slept && w.seen&1 == 0 {
		p.wakeSome(w.seen)
	}
	return true
}

// await waits until all chunks of a loop are over, as a caller that is no worker.
func (p *Pool) await(epoch uint64) {
	how := &p.single
	if each := epoch&1 == 1; each {
		p.wakeEach(epoch)
	} else if int(p.asleep.Load()) == len(p.workers) || !look(how.glance, p.over) {
		p.wakeSome(epoch)
	}
	p.finish(how.caller - how.glance)
}

// finish is the end of a wait for that. It leaves it to the workers to notice that
// the context has ended: what they have begun is waited for in any case.
func (p *Pool) finish(limit time.Duration) {
	for !look(limit, p.over) {
		limit = 0
		p.waiter.announce()
		if p.isOver() {
			p.waiter.withdraw()
			return
		}
		p.waiter.sleep() // perhaps woken by a worker that was slow to do so in the loop before
	}
}

// isOver reports whether all chunks of the loop are over.
func (p *Pool) isOver() bool { return p.left.Load() == 0 }
