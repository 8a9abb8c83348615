package tensor

import (
	"sync"

	"github.com/cohort-hpc/cohort/internal/accel"
)

// cache has streams and events of a device that operations take and give back: to make one takes as
// long as the copy of a short tensor.
type cache struct {
	mu      sync.Mutex
	streams []accel.Stream // whose work is done
	events  []accel.Event  // that have happened
}

// How many streams and events that are not in use stay.
const (
	streamsKept = 16
	eventsKept  = 128
)

// takeStream returns a stream without work in it.
func (d *Device) takeStream() (accel.Stream, error) {
	c := &d.cache
	c.mu.Lock()
	if n := len(c.streams); n > 0 {
		s := c.streams[n-1]
		c.streams = c.streams[:n-1]
		c.mu.Unlock()
		return s, nil
	}
	c.mu.Unlock()
	return d.acc.Stream()
}

// giveStream gives a stream back whose work is done. One that failed is not used again.
func (d *Device) giveStream(s accel.Stream, sound bool) {
	c := &d.cache
	c.mu.Lock()
	if sound = sound && len(c.streams) < streamsKept; sound {
		c.streams = append(c.streams, s)
	}
	c.mu.Unlock()
	if !sound {
		_ = s.Close() // what cannot be given back is lost to the process, not to the operation
	}
}

// takeEvent returns an event.
func (d *Device) takeEvent() (accel.Event, error) {
	c := &d.cache
	c.mu.Lock()
	if n := len(c.events); n > 0 {
		e := c.events[n-1]
		c.events = c.events[:n-1]
		c.mu.Unlock()
		return e, nil
	}
	c.mu.Unlock()
	return d.acc.Event()
}

// giveEvent gives an event back that nothing waits for.
func (d *Device) giveEvent(e accel.Event, sound bool) {
	c := &d.cache
	c.mu.Lock()
	if sound = sound && len(c.events) < eventsKept; sound {
		c.events = append(c.events, e)
	}
	c.mu.Unlock()
	if !sound {
		_ = e.Close()
	}
}

// trim gives up what is not in use.
func (c *cache) trim() {
	c.mu.Lock()
	streams, events := c.streams, c.events
	c.streams, c.events = nil, nil
	c.mu.Unlock()
	for _, s := range streams {
		_ = s.Close()
	}
	for _, e := range events {
		_ = e.Close()
	}
}
