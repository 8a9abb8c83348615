package engine

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// How long a waiter polls before it sleeps. If every rank of the node has a processor to itself it spins;
// otherwise it gives the processor to the rank that it waits for, or sleeps at once.
const (
	spinFor   = 100 * time.Microsecond
	yieldFor  = 200 * time.Microsecond
	lookEvery = 16                   // looks after which other goroutines get a turn, and the clock is read where no look gives up the processor
	busyFor   = 2 * time.Millisecond // looks that move messages, between two of the caller's bound
	tickEvery = 100 * time.Millisecond
	idleFor   = time.Millisecond // how long nobody has looked before a wait in the background sleeps on the links
)

// epoch is what engine.looked counts from.
var epoch = time.Now()

// Await implements backend.Comm.
func (c *comm) Await(b *backend.Bound, p backend.Pending) error {
	if p.Ready() {
		return nil
	}
	if o, ok := p.(interface{ Soon() bool }); ok && c.e.cfg.Spare && o.Soon() {
		return nil
	}
	return c.e.await(b, p)
}

// await waits for p. One waiter of the process is the leader: it polls, and then sleeps.
// The others sleep until an operation has completed, or the leader's place is free.
func (e *Engine) await(b *backend.Bound, p backend.Pending) error {
	if b != nil && b.Background {
		return e.attend(b, p)
	}
	var start time.Time
	if b.Limited() {
		start = time.Now()
	}
	for round := 0; ; round++ {
		if err := b.Err(start); err != nil {
			return err
		}
		if e.attended.Load() && e.relieve(p) {
			return nil
		}
		e.waitMu.Lock()
		if e.leader {
			if round == 0 {
				e.announce()
			}
			e.follow(b, p, start)
			e.waitMu.Unlock()
			if p.Ready() {
				return nil
			}
			continue
		}
		e.leader = true
		e.waitMu.Unlock()
		ready := (e.cfg.Spare || e.cfg.Yield != nil) && e.look(p)
		if !ready {
			if round == 0 {
				e.announce()
			}
			ready = e.rest(b, p, start)
		}
		e.looked.Store(int64(time.Since(epoch)))
		e.abdicate()
		if ready {
			return nil
		}
	}
}

// abdicate ends the caller's time as the leader.
func (e *Engine) abdicate() {
	e.waitMu.Lock()
	e.leader = false
	if e.parked.Load() > 0 {
		e.cond.Broadcast() // another one takes the place
	}
	e.waitMu.Unlock()
}

// attend waits for p in the background. It sleeps on the links as the leader while nobody else looks at them.
// Otherwise it would be woken for every message, and would have to wake the goroutine that waits for it.
func (e *Engine) attend(b *backend.Bound, p backend.Pending) error {
	for !p.Ready() {
		if err := b.Err(time.Time{}); err != nil {
			return err
		}
		e.waitMu.Lock()
		idle := !e.leader && time.Since(epoch)-time.Duration(e.looked.Load()) > idleFor
		if idle {
			e.leader = true
			e.attended.Store(true)
		}
		e.waitMu.Unlock()
		if !idle {
			time.Sleep(idleFor)
			continue
		}
		e.rest(b, p, time.Time{})
		e.attended.Store(false)
		e.abdicate()
	}
	return nil
}

// relieve looks for p beside a leader that waits in the background, and then asks it to leave its place.
func (e *Engine) relieve(p backend.Pending) (ready bool) {
	ready = (e.cfg.Spare || e.cfg.Yield != nil) && e.look(p)
	e.looked.Store(int64(time.Since(epoch)))
	if !ready {
		e.mu.Lock()
		e.wakeLeader()
		e.mu.Unlock()
	}
	return ready
}

// OnWait implements backend.Comm.
func (c *comm) OnWait(f, _ func()) { c.e.onWait = f }

// announce says that an operation begins to wait.
func (e *Engine) announce() {
	if e.onWait != nil {
		e.onWait()
	}
}

// follow sleeps until the leader leaves, something completes, or the time may be over. waitMu is
// held.
func (e *Engine) follow(b *backend.Bound, p backend.Pending, start time.Time) {
	var timer *time.Timer
	if d, ok := b.Deadline(start); ok {
		timer = time.AfterFunc(max(time.Until(d), time.Microsecond), e.wakeAll)
	}
	e.parked.Add(1)
	if !p.Ready() && e.leader && b.Err(start) == nil {
		e.cond.Wait()
	}
	e.parked.Add(-1)
	if timer != nil {
		timer.Stop()
	}
}

// look makes progress for a bounded time, until p is ready.
func (e *Engine) look(p backend.Pending) bool {
	limit, every := spinFor, lookEvery
	if !e.cfg.Spare { // the rank that has the processor now may compute, and keep it for milliseconds
		limit, every = yieldFor, 1
	}
	var begin, busy time.Time // since when nothing has moved, and since when something has
	for i := 1; ; i++ {
		moved := e.poll()
		if p.Ready() {
			return true
		}
		if moved {
			begin = time.Time{} // messages are moving: keep polling
			if now := time.Now(); busy.IsZero() {
				busy = now
			} else if now.Sub(busy) > busyFor {
				return false // the caller's time may be over
			}
			continue
		}
		if !e.cfg.Spare {
			e.cfg.Yield()
		}
		if i%lookEvery == 0 {
			runtime.Gosched()
		}
		if i%every == 0 {
			if now := time.Now(); begin.IsZero() {
				begin = now
			} else if now.Sub(begin) > limit {
				return false
			}
		}
	}
}

// poll makes progress if no other goroutine of this process does so now.
func (e *Engine) poll() bool {
	if !e.mu.TryLock() {
		runtime.Gosched()
		return false
	}
	moved := e.progress()
	e.mu.Unlock()
	return moved
}

// Poll implements backend.Comm.
func (c *comm) Poll() { c.e.poll() }

// rest sleeps until a link has news or the leader is woken, and reports whether p is ready.
func (e *Engine) rest(b *backend.Bound, p backend.Pending, start time.Time) bool {
	var timeout time.Duration
	if d, ok := b.Deadline(start); ok {
		timeout = max(time.Until(d), time.Microsecond)
	}
	// Invariant: a goroutine that completes an operation, or queues a frame, after this sees it and rings.
	e.sleeping.Store(true)
	e.cfg.Sleeper.Begin()
	if e.parked.Load() > 0 { // they look once more: another rank's arrival rings from now on only
		e.waitMu.Lock()
		e.cond.Broadcast()
		e.waitMu.Unlock()
	}
	e.mu.Lock() // not poll: a goroutine that polls now may have passed a link before its data arrived
	moved := e.progress()
	for _, p := range e.open {
		if p.link != nil {
			moved = moved || p.broken != nil // progress sees to it
			moved = e.cfg.Sleeper.Add(p.link, p.waits()) || moved
		}
	}
	e.mu.Unlock()
	if !moved && !p.Ready() && b.Err(start) == nil {
		e.cfg.Sleeper.Sleep(timeout)
	}
	e.sleeping.Store(false)
	e.cfg.Sleeper.End()
	return p.Ready()
}

// wakeOthers makes the waiters of this process look again. The lock is held.
func (e *Engine) wakeOthers() {
	e.wakeLeader()
	if e.parked.Load() > 0 {
		e.waitMu.Lock()
		e.cond.Broadcast()
		e.waitMu.Unlock()
	}
}

// wakeLeader ends the leader's sleep. The lock is held, so that the sleeper is not closed.
func (e *Engine) wakeLeader() {
	if e.sleeping.Load() && e.sleeping.CompareAndSwap(true, false) {
		e.cfg.Sleeper.Ring()
	}
}

// Wake implements backend.Comm.
func (c *comm) Wake() { c.e.wakeAll() }

func (e *Engine) wakeAll() {
	e.mu.Lock()
	e.wakeOthers()
	e.mu.Unlock()
}

// hangUp closes the sleeper when no goroutine sleeps on it any more.
func (e *Engine) hangUp() {
	e.waitMu.Lock()
	e.parked.Add(1)
	for e.leader {
		e.cond.Wait()
	}
	e.parked.Add(-1)
	e.leader = true // for good
	e.waitMu.Unlock()
	e.mu.Lock() // wakeLeader is called with it
	e.cfg.Sleeper.Close()
	e.mu.Unlock()
}

// advance makes progress, because no other goroutine may.
func (e *Engine) advance() {
	e.poll()
	e.verify()
}

// tick does something once each tick.
func (e *Engine) tick(do func()) {
	t := time.NewTicker(e.life.every)
	defer t.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
		}
		do()
	}
}
