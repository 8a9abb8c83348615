package generation

import "time"

// Time in which the owner of a machine has not run, as when it was stopped, is time in which it has handled no answer, and does not
// count. While something is due, the owner calls Tick every watchEvery; if nothing comes for longer than unseen, it has not run.
const (
	watchEvery = 200 * time.Millisecond
	unseen     = time.Second
)

// Wait returns how long Tick need not be called; false: nothing is due.
func (m *Machine) Wait() (time.Duration, bool) {
	next := m.deadline()
	if next.IsZero() {
		return 0, false
	}
	if soon := m.seen.Add(watchEvery); soon.Before(next) {
		next = soon
	}
	return next.Sub(m.Now()), true
}

// look is called before every event. It moves deadlines on by the time in which the owner has not run, and by doubt more for
// answers that have come meanwhile.
func (m *Machine) look() {
	pause := m.Now().Sub(m.seen)
	if m.seen = m.Now(); pause <= unseen {
		return
	}
	later := func(at *time.Time) {
		if !at.IsZero() {
			*at = at.Add(pause + doubt)
		}
	}
	later(&m.doubted)
	for _, p := range m.processes {
		later(&p.answer)
		later(&p.silent)
	}
}

// deadline returns when the next thing is due, zero for never.
func (m *Machine) deadline() time.Time {
	next := m.doubted
	due := func(at time.Time) {
		if next.IsZero() || !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	for _, s := range m.starts {
		due(s.due)
	}
	for _, p := range m.processes {
		due(p.answer)
		if due(p.silent); p.silent.IsZero() && !p.heard.IsZero() {
			due(p.heard.Add(patience))
		}
	}
	return next
}
