package pool

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// lookEvery is the number of looks between two readings of the clock.
const lookEvery = 16

// look calls ready until it returns true or the time is up. It returns the last result.
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

// patience says how long threads look for work before they sleep.
type patience struct {
	caller time.Duration // the caller of a loop, in total
	glance time.Duration // of that, before it wakes sleeping workers
	worker time.Duration
	yields bool // a worker sleeps at once if the caller needs its processor
}

// patienceFor returns the limits for callers that are not workers. A caller without its own
// processor looks for as long as passing its processor to a worker takes, and then does that. If
// threads share processors anyway, looking only delays the thread that is waited for.
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

// teamPatienceFor returns the limits for a caller that is worker 0.
func teamPatienceFor(workers, processors int) patience {
	if workers > processors {
		return patience{}
	}
	return patience{caller: 50 * time.Microsecond, worker: 50 * time.Microsecond}
}

// await waits for a loop that the worker has not seen. It returns false when the pool is closed.
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
		// Invariant: a caller that starts a loop after this sees that the worker sleeps.
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

// await waits until all chunks of a loop are done, for a caller that is not a worker.
func (p *Pool) await(epoch uint64) {
	how := &p.single
	if each := epoch&1 == 1; each {
		p.wakeEach(epoch)
	} else if int(p.asleep.Load()) == len(p.workers) || !look(how.glance, p.over) {
		p.wakeSome(epoch)
	}
	p.finish(how.caller - how.glance)
}

// finish is the end of that wait. It ignores the context, which the workers check: running tasks
// are waited for in any case.
func (p *Pool) finish(limit time.Duration) {
	for !look(limit, p.over) {
		limit = 0
		p.waiter.announce()
		if p.isOver() {
			p.waiter.withdraw()
			return
		}
		p.waiter.sleep() // may be a late wake of the loop before
	}
}

// isOver reports whether all chunks of the loop are done.
func (p *Pool) isOver() bool { return p.left.Load() == 0 }
