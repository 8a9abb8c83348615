//go:build cgo && linux

package mpi

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

const (
	grace = 20 * time.Millisecond // how long what was given up may take to end

	spins     = 50                    // tries in one crossing into C
	busyFor   = 20                    // pauses that are none
	yieldFor  = 200                   // pauses that give the processor away
	longest   = time.Millisecond      // the longest sleep
	shortest  = 20 * time.Microsecond // the shortest
	lookEvery = 16                    // pauses between looks at the limit and for notices, while they are short
)

var canceled = backend.Code(backend.ErrCanceled)

// wait is one wait: how often it has paused, and when it began.
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

// pause waits a moment, longer and longer. It returns the Bound's error when the
// time is up.
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
		c.hear()
	}
	switch {
	case w.n < busyFor:
	case w.n < yieldFor:
		runtime.Gosched()
		yield()
	default:
		time.Sleep(w.sleep)
		w.sleep = min(2*w.sleep, longest)
	}
	return nil
}

// sampler says of operations that they wait: those that wait here, and those that the
// library waits in, by looking now and then.
type sampler struct {
	f, all    func()
	end, over chan struct{}
}

// sampleEvery is how long a call of the library's may have waited before it is said.
const sampleEvery = 50 * time.Millisecond

// OnWait implements backend.Announcer.
func (c *comm) OnWait(f, all func()) {
	c.p.sampler = sampler{f, all, make(chan struct{}), make(chan struct{})}
	go c.p.sampler.run()
}

func (s *sampler) run() {
	defer close(s.over)
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.all()
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

// stop ends the looking.
func (s *sampler) stop() {
	if s.f != nil {
		close(s.end)
		<-s.over
	}
}

// Await implements backend.Comm.
func (c *comm) Await(b *backend.Bound, p backend.Pending) error {
	if p.Ready() {
		return nil
	}
	if c.p.level < libmpi.Serialized && !libmpi.MayCall() { // it would wait for ever
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
func (c *comm) Poll() {
	c.p.engine.poll(1)
	if c.p.recovers { // a receive that has not matched is not the library's, which would end it
		c.hear()
	}
}
