package shm

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// How long a waiter polls before it sleeps. If every rank has a core it spins; otherwise it yields
// the core to the rank that it waits for.
const (
	spinFor   = 30 * time.Microsecond
	yieldFor  = 200 * time.Microsecond
	lookEvery = 32                   // polls between two readings of the clock, where no poll yields the core
	busyFor   = 2 * time.Millisecond // how long messages may keep moving before the caller's bound is checked
)

// Await implements backend.Comm.
func (c *comm) Await(b *backend.Bound, p backend.Pending) error {
	if p.Ready() {
		return nil
	}
	return c.e.await(b, p)
}

// await waits for p in three steps: poll, poll and yield, sleep. It leaves the sleep when something
// has happened, and starts again.
func (e *engine) await(b *backend.Bound, p backend.Pending) error {
	var start time.Time
	for round := 0; ; round++ {
		if e.look(p) {
			return nil
		}
		if round == 0 {
			start = time.Now()
			if e.onWait != nil {
				e.onWait()
			}
		}
		if err := b.Err(start); err != nil {
			return err
		}
		if e.sleep(b, p, start) {
			return nil
		}
	}
}

// look makes progress for a bounded time, until p is ready.
func (e *engine) look(p backend.Pending) bool {
	limit := spinFor
	if !e.spare {
		limit = yieldFor
	}
	var begin time.Time
	var busy time.Time // since when there has been something to move
	for i := 0; ; i++ {
		moved := e.poll()
		if p.Ready() {
			return true
		}
		if moved {
			begin = time.Time{} // messages are moving: keep polling
			if now := time.Now(); busy.IsZero() {
				busy = now
			} else if now.Sub(busy) > busyFor {
				return false // the caller's time may be up
			}
			continue
		}
		if e.spare {
			shmem.Pause()
		} else {
			shmem.Yield()
		}
		// The process that has the core now may compute, and keep it for milliseconds.
		if !e.spare || i%lookEvery == lookEvery-1 {
			if now := time.Now(); begin.IsZero() {
				begin = now
			} else if now.Sub(begin) > limit {
				return false
			}
		}
	}
}

// poll makes progress unless another goroutine of this process is doing so.
func (e *engine) poll() bool {
	if !e.mu.TryLock() {
		runtime.Gosched()
		return false
	}
	moved := e.progress()
	e.unlock()
	return moved
}

// Poll implements backend.Comm.
func (c *comm) Poll() { c.e.poll() }

// sleep waits until something happens, and reports whether p is ready. One goroutine of the process
// sleeps on the bell; the others wait for it to bring news or to leave.
func (e *engine) sleep(b *backend.Bound, p backend.Pending, start time.Time) bool {
	var timeout time.Duration
	if d, ok := b.Deadline(start); ok {
		timeout = max(time.Until(d), time.Microsecond)
	}
	e.waitMu.Lock()
	if e.sleeper {
		var timer *time.Timer
		if timeout > 0 {
			timer = time.AfterFunc(timeout, e.wakeAll)
		}
		e.parked.Add(1)
		if !p.Ready() && b.Err(start) == nil && e.sleeper {
			e.cond.Wait()
		}
		e.parked.Add(-1)
		e.waitMu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		return p.Ready()
	}
	// Invariant: a rank that publishes after this sees it and rings the bell. It is set before
	// another goroutine can go to sleep because there is a sleeper.
	val := e.bell.Load()
	e.sleeping.Store(1)
	e.sleeper = true
	e.waitMu.Unlock()

	e.mu.Lock() // not poll: a goroutine that polls now may have read a ring before it was filled
	moved := e.progress()
	e.unlock()
	if !moved && !p.Ready() && b.Err(start) == nil {
		shmem.FutexWait(e.bell, val, timeout)
	}
	e.sleeping.Store(0)

	e.waitMu.Lock()
	e.sleeper = false
	if e.parked.Load() > 0 {
		e.cond.Broadcast() // another goroutine becomes the sleeper
	}
	e.waitMu.Unlock()
	return p.Ready()
}

// OnWait implements backend.Announcer.
func (c *comm) OnWait(f, _ func()) { c.e.onWait = f }

// Wake implements backend.Comm.
func (c *comm) Wake() { c.e.wakeAll() }

func (e *engine) wakeAll() {
	e.bell.Add(1)
	shmem.FutexWake(e.bell, 1<<30)
	e.waitMu.Lock()
	e.cond.Broadcast()
	e.waitMu.Unlock()
}
