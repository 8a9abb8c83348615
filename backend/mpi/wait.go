//go:build cgo && linux

package mpi

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	spins     = 50                    // tries in one crossing into C
	busyFor   = 20                    // pauses without a delay
	yieldFor  = 200                   // pauses that yield the processor
	longest   = time.Millisecond      // the longest sleep
	shortest  = 20 * time.Microsecond // the shortest
	lookEvery = 16                    // short pauses between checks of the limit and for notices
)

var canceled = backend.Code(backend.ErrCanceled)

// wait is the state of one wait: how often it has paused, and when it began.
type wait struct {
	b       *backend.Bound
	limited bool
	begun   time.Time
	n       int
	sleep   time.Duration
}

func newWait(b *backend.Bound) wait {
	w := wait{b: b, limited: b.Limited(), sleep: shortest}
	if w.limited {
		w.begun = time.Now()
	}
	return w
}

// pause waits a moment, a longer one each time. It returns the Bound's error once the time is up.
func (w *wait) pause(c *comm) error {
	w.n++
	if w.n == 1 {
		c.p.sampler.waits()
	}
	if w.n%lookEvery == 0 || w.n > yieldFor {
		if w.limited {
			if err := w.b.Err(w.begun); err != nil {
				return err
			}
		}
		c.p.listen()
		c.readNotice()
	}
	switch {
	case w.n < busyFor:
	case w.n < yieldFor:
		runtime.Gosched()
		yield()
	default:
		c.p.desert()
		time.Sleep(w.sleep)
		if w.b == nil || !w.b.Ends { // else it replaces a call in the library, which does not sleep
			w.sleep = min(2*w.sleep, longest)
		}
	}
	return nil
}

// yield gives the processor to another thread that wants it.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

const (
	restEvery = 8 << 20 // bytes, which take a millisecond or two
	restCall  = 4 << 10 // what a call counts as, besides the bytes of its buffers
)

// rest yields to Go's scheduler now and then. The scheduler takes the processor from a goroutine that
// has called the library for 10 ms without a pause. Its monitor then looks at the goroutine every
// 20 µs for some milliseconds, on a core that waits for a message or copies one. A goroutine that
// yields is left alone. n is the length of the operation. Below Serialized the goroutine is locked to
// its thread, and yielding would take longer.
func (p *process) rest(n int) {
	if p.lib.level < libmpi.Serialized {
		return
	}
	before := word.LoadUint32(&p.copied)
	after := before + uint32(n) + restCall
	word.ReleaseUint32(&p.copied, after) // goroutines may undo each other's additions
	if before/restEvery != after/restEvery {
		runtime.Gosched()
	}
}

// sampler announces operations that wait: those that wait here at once, and those inside the
// library by looking at regular intervals. It also looks for ranks that have failed.
type sampler struct {
	f, all       func()
	end, stopped chan struct{}
}

// sampleEvery is the interval at which calls inside the library are announced as waiting.
const sampleEvery = 50 * time.Millisecond

// OnWait implements backend.Comm.
func (c *comm) OnWait(f, all func()) {
	c.p.sampler = sampler{f, all, make(chan struct{}), make(chan struct{})}
	go c.p.sampler.run(c.p)
}

func (s *sampler) run(p *process) {
	defer close(s.stopped)
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.all()
			if p.lib.level >= libmpi.Serialized {
				p.listen()
				p.release(s.end)
			}
		case <-s.end:
			return
		}
	}
}

func (s *sampler) waits() {
	if s.f != nil {
		s.f()
	}
}

// stop ends the sampling.
func (s *sampler) stop() {
	if s.f != nil {
		close(s.end)
		<-s.stopped
	}
}

// slowest is the least number of bytes per second at which a message is taken to arrive.
const slowest = 64 << 20

// transferTime is how long a receive that cannot be withdrawn may take to end: its message has matched, and the library
// writes to its buffer. MPI does not report how far it is.
func transferTime(bytes int) time.Duration {
	return backend.Grace + time.Duration(bytes)*time.Second/slowest
}

// Await implements backend.Comm. It gives a receive that was canceled in vain the time that its message may take.
func (c *comm) Await(b *backend.Bound, p backend.Pending) error {
	err := c.await(b, p)
	if err != nil {
		if r, ok := p.(*backend.Request); ok {
			if bytes := c.p.engine.arriving(r); bytes > 0 && c.await(&backend.Bound{Timeout: transferTime(bytes)}, p) == nil {
				return nil
			}
		}
	}
	return err
}

// arriving returns the length of the buffer of a receive that was canceled in vain.
func (e *engine) arriving(r *backend.Request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.ops {
		if o.req == r && o.receives && o.canceled {
			return len(o.buf)
		}
	}
	return 0
}

func (c *comm) await(b *backend.Bound, p backend.Pending) error {
	if p.Ready() {
		return nil
	}
	if c.p.lib.level < libmpi.Serialized && !libmpi.MayCall() { // the wait would not end
		return libmpi.Error(libmpi.Thread)
	}
	w := newWait(b)
	for {
		c.p.engine.poll(spins)
		if p.Ready() {
			return nil
		}
		if err := w.pause(c); err != nil {
			return err
		}
	}
}

// Poll implements backend.Comm.
func (c *comm) Poll() { c.p.engine.poll(1) }
