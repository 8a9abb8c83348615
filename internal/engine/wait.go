package engine

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/board"
)

// How long a waiter polls before it sleeps. If every rank of the node has a processor to itself it spins; otherwise it
// gives the processor to the rank that it waits for, or sleeps at once. Where many ranks share a processor, yieldFor is
// over when the others have run once. So a waiter also looks lookEvery times, for at most busyFor.
const (
	spinFor   = 100 * time.Microsecond
	yieldFor  = 200 * time.Microsecond
	lookEvery = 16                    // looks between two turns of other goroutines; while spinning also between two readings of the clock
	busyFor   = 2 * time.Millisecond  // how long a waiter looks, or moves messages, before the caller's bound is looked at again
	tickEvery = 50 * time.Millisecond // a rank of this node is lost within 100 ms of its end
	idleFor   = time.Millisecond      // a wait in the background sleeps on the links if nobody has looked for this long
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
	e := c.e
	if b != nil && b.Background {
		return e.attend(b, p)
	}
	err := e.crew.AwaitPending(b, p)
	if err == nil {
		e.looked.Store(int64(time.Since(epoch)))
	}
	return err
}

// attend waits for p in the background. It leads the crew while nobody else looks at the links. Otherwise it would be
// woken for every message, and would have to wake the goroutine that waits for it.
func (e *Engine) attend(b *backend.Bound, p backend.Pending) error {
	m := e.crew.Background(b, p)
	for !p.Ready() {
		if err := b.Err(time.Time{}); err != nil {
			return err
		}
		if time.Since(epoch)-time.Duration(e.looked.Load()) <= idleFor || !e.crew.Attend(m) {
			time.Sleep(idleFor)
		}
	}
	return nil
}

// OnWait implements backend.Comm.
func (c *comm) OnWait(f, _ func()) { c.e.crew.OnWait = f }

// links are what the leader sleeps on: the wait.Links.
type links Engine

// Arm implements wait.Links.
func (l *links) Arm() { l.cfg.Sleeper.Begin() }

// Check implements wait.Links. It does not try the lock: a goroutine that has it may have passed a link before its
// data arrived.
func (l *links) Check() bool {
	e := (*Engine)(l)
	e.mu.Lock()
	moved := e.progress()
	if moved {
		e.moves++
	}
	for _, p := range e.open {
		if p.link != nil {
			if d, ok := p.link.(EndChecker); ok {
				d.CheckEnd()
			}
			moved = moved || p.writeErr != nil // progress sees to it
			moved = e.cfg.Sleeper.Add(p.link, p.waits()) || moved
		}
	}
	e.mu.Unlock()
	return moved
}

// Sleep implements wait.Links.
func (l *links) Sleep(limit time.Duration) { l.cfg.Sleeper.Sleep(limit) }

// Disarm implements wait.Links.
func (l *links) Disarm() { l.cfg.Sleeper.End() }

// Ring implements wait.Links.
func (l *links) Ring() { l.cfg.Sleeper.Ring() }

// look makes progress for a bounded time, until p is ready. To ask all links of a large node takes longer than the other
// ranks need for a short collective. So a rank that waits for their arrival asks seldom, unless it has messages under way.
func (e *Engine) look(p backend.Pending) bool {
	_, arrivals := p.(*board.Collective)
	limit, every := spinFor, lookEvery
	if !e.cfg.Spare { // the rank that has the processor now may compute, and keep it for milliseconds
		limit, every = yieldFor, 1
	}
	var begin, busy time.Time // since when nothing has moved, and since when something has
	for i := 1; ; i++ {
		moved := (!arrivals || i%lookEvery == 0 || e.underWay()) && e.poll()
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
			} else if d := now.Sub(begin); d > limit && (i >= lookEvery || d > busyFor) {
				return false
			}
		}
	}
}

// underWay reports whether messages of this rank or queued collectives are under way, or other goroutines may wait, or
// something has moved lately.
func (e *Engine) underWay() bool {
	if e.crew.Sleeps() || !e.mu.TryLock() {
		return true
	}
	is := e.active > 0 || len(e.queued) > 0 || e.still < lookEvery
	e.mu.Unlock()
	return is
}

// restEvery is after how many polls a goroutine yields to Go's scheduler. The scheduler takes the processor from a
// goroutine that has not yielded for 10 ms. Its monitor then wakes up every 20 µs for some milliseconds.
const restEvery = 512

// poll makes progress if no other goroutine of this process does so now.
func (e *Engine) poll() bool {
	if !e.mu.TryLock() {
		runtime.Gosched()
		return false
	}
	moved := e.progress()
	e.turns++
	rest := e.turns%restEvery == 0
	e.mu.Unlock()
	if rest {
		runtime.Gosched()
	}
	return moved
}

// Poll implements backend.Comm.
func (c *comm) Poll() { c.e.poll() }

// wakeReady makes Unlock wake the waiters that are ready. The lock is held.
func (e *Engine) wakeReady() {
	if e.crew.Sleeps() {
		e.mu.due |= askWaiters
	}
}

// wakeLeader makes Unlock end the leader's sleep on the links. The lock is held.
func (e *Engine) wakeLeader() {
	if e.crew.Rests() {
		e.mu.due |= rouseLeader
	}
}

// Wake implements backend.Comm.
func (c *comm) Wake() { c.e.crew.Ask() }

// advance makes progress, because no other goroutine may.
func (e *Engine) advance() {
	e.poll()
	e.verify()
}

// tick calls beat once each tick, and then sends on turn unless that is full. In the end it closes turn.
func (e *Engine) tick(turn chan<- struct{}) {
	t := time.NewTicker(e.heartbeat.every)
	defer t.Stop()
	defer close(turn)
	for {
		select {
		case <-e.stop:
			return
		case <-t.C:
		}
		e.beat()
		select {
		case turn <- struct{}{}:
		default:
		}
	}
}
