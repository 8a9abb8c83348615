package soft

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// A moment is a point in a stream; it has come when the work that marks it is done.
type moment struct{ come bool }

// Event implements accel.Event.
type Event struct {
	dev    *Device
	last   *moment // as last recorded; guarded by driver.mu
	closed bool
}

// Record implements accel.Stream.
func (s *Stream) Record(e accel.Event) error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	event, err := s.event(Record, e)
	if err != nil {
		return err
	}
	if event.dev != s.dev {
		return s.dev.fault(backend.ErrInternal, "invalid resource handle (400): the event belongs to device %d", event.dev.index)
	}
	event.last = &moment{}
	s.q.put(&work{mark: event.last})
	return nil
}

// Follow implements accel.Stream. The event may be another device's.
func (s *Stream) Follow(e accel.Event) error {
	d := s.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	event, err := s.event(Follow, e)
	if err != nil {
		return err
	}
	s.q.put(&work{after: event.last})
	return nil
}

// event is enter for a call with an event, which must be this driver's. driver.mu is held.
func (s *Stream) event(op Op, e accel.Event) (*Event, error) {
	if err := s.enter(op, 0); err != nil {
		return nil, err
	}
	event, ok := e.(*Event)
	if !ok || event == nil || event.dev.driver != s.dev.driver {
		return nil, s.dev.fault(backend.ErrInternal, "invalid resource handle (400): the event belongs to another driver")
	}
	if event.closed {
		return nil, s.dev.fault(backend.ErrClosed, "event")
	}
	return event, nil
}

// enter counts a call and returns an error if it is not possible. driver.mu is held.
func (e *Event) enter(op Op) error {
	if err := e.dev.driver.called(op, e.dev, 0); err != nil {
		return err
	}
	if e.closed {
		return e.dev.fault(backend.ErrClosed, "event")
	}
	return nil
}

// Sync implements accel.Event.
func (e *Event) Sync() error {
	d := e.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := e.enter(EventSync)
	if e.closed {
		return failed
	}
	m := e.last
	d.wait(func() bool { return m.come })
	if failed == nil {
		failed = e.dev.lost
	}
	return failed
}

// Done implements accel.Event. If the driver is lazy, one piece of work is done afterwards.
func (e *Event) Done() (bool, error) {
	d := e.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := e.enter(Done); err != nil {
		return false, err
	}
	come := e.last.come
	if d.config.Lazy && !come {
		d.step()
	}
	return come, nil
}

// Close implements accel.Event. Streams that follow the event still do.
func (e *Event) Close() error {
	d := e.dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := e.enter(CloseEvent)
	if e.closed {
		return failed
	}
	e.closed = true
	d.stats.Events--
	return failed
}
