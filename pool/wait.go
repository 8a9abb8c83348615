package pool

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
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

// parker lets one thread sleep until others wake it. The thread announces its sleep by setting word to
// 1, looks for work once more, and sleeps while word is 1. A waker sets it to 0 by a compare-and-swap,
// so only one of several wakers wakes the thread.
type parker struct {
	word word.Uint32 // 1 from announce until the first wake or withdraw
	bell
}

// announce records that the thread is about to sleep. The thread then looks once more whether it must
// sleep, so that work that came before the announcement is not missed.
func (k *parker) announce() {
	k.prepare()
	k.word.Store(1)
}

// withdraw undoes announce, and reports whether no wake came in between.
func (k *parker) withdraw() bool { return k.word.CompareAndSwap(1, 0) }

// sleep returns after wake.
func (k *parker) sleep() {
	for k.asleep() { // a signal, or a late ring, may end a wait
		k.wait(&k.word)
	}
}

// asleep reports whether the thread sleeps or is about to sleep.
func (k *parker) asleep() bool { return k.word.Load() == 1 }

// wake wakes the thread if it sleeps or is about to sleep, and reports whether it did.
func (k *parker) wake() bool {
	if !k.asleep() || !k.withdraw() {
		return false
	}
	k.ring(&k.word)
	return true
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

// await waits for an order that the worker has not seen. It returns false when the pool is closed.
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
	if slept && w.seen&kindMask == loopAny {
		p.wakeSome(w.seen)
	}
	return w.seen&kindMask != closes
}

// await waits until all chunks of a loop are done, for a caller that is not a worker.
func (p *Pool) await(epoch uint64) {
	how := &p.single
	if epoch&kindMask == loopEach {
		p.wakeEach(epoch)
	} else if int(p.asleep.Load()) == len(p.workers) || !look(how.glance, p.over) {
		p.wakeSome(epoch)
	}
	p.finish(how.caller - how.glance)
}

// finish waits until all chunks are done: it looks until limit is over, and then sleeps. It ignores
// the context, which the workers check: the caller waits for running tasks in any case.
func (p *Pool) finish(limit time.Duration) {
	for !look(limit, p.over) {
		limit = 0
		p.waiter.announce()
		if p.isOver() {
			p.waiter.withdraw()
			return
		}
		p.waiter.sleep() // a late wake of the loop before may end it
	}
}

// isOver reports whether all chunks of the loop are done.
func (p *Pool) isOver() bool { return p.left.Load() == 0 }
