package tensor

import (
	"io"
	"sync"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// cache has streams and events of a device that operations take and give back: to make one takes as
// long as the copy of a short tensor.
type cache struct {
	streams shelf[accel.Stream] // whose work is done
	events  shelf[accel.Event]  // that have happened
}

// How many streams and events that are not in use stay.
const (
	streamsKept = 16
	eventsKept  = 128
)

// shelf has things of one sort that are not in use.
type shelf[T io.Closer] struct {
	mu     sync.Mutex
	things []T
}

// take returns a thing of the shelf, or a new one.
func (s *shelf[T]) take(create func() (T, error)) (T, error) {
	s.mu.Lock()
	if n := len(s.things); n > 0 {
		t := s.things[n-1]
		s.things = s.things[:n-1]
		s.mu.Unlock()
		return t, nil
	}
	s.mu.Unlock()
	return create()
}

// give puts a thing back; one that failed, or that would be more than most, is not used again.
func (s *shelf[T]) give(t T, sound bool, most int) {
	s.mu.Lock()
	if sound = sound && len(s.things) < most; sound {
		s.things = append(s.things, t)
	}
	s.mu.Unlock()
	if !sound {
		_ = t.Close() // what cannot be given back is lost to the process, not to the operation
	}
}

// trim gives up what is not in use.
func (s *shelf[T]) trim() {
	s.mu.Lock()
	things := s.things
	s.things = nil
	s.mu.Unlock()
	for _, t := range things {
		_ = t.Close()
	}
}

// takeStream returns a stream without work in it.
func (d *Device) takeStream() (accel.Stream, error) { return d.cache.streams.take(d.acc.Stream) }

// giveStream gives a stream back whose work is done.
func (d *Device) giveStream(s accel.Stream, sound bool) { d.cache.streams.give(s, sound, streamsKept) }

// takeEvent returns an event.
func (d *Device) takeEvent() (accel.Event, error) { return d.cache.events.take(d.acc.Event) }

// giveEvent gives an event back that nothing waits for.
func (d *Device) giveEvent(e accel.Event, sound bool) { d.cache.events.give(e, sound, eventsKept) }

// trim gives up what is not in use.
func (c *cache) trim() {
	c.streams.trim()
	c.events.trim()
}
