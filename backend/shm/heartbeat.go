package shm

import (
	"fmt"
	"time"
)

// Heartbeats find a process that is there and does nothing: stopped by a signal, or
// kept from running. One that has ended is known at once by the watch.
//
// Every rank raises a counter of its own beats times in the time that silence is
// allowed to last, and looks at the others'. It counts its own looks, not time: one
// that was stopped itself, or whose machine was suspended, has not looked meanwhile,
// and what happens to the clock does not matter.
const (
	silentFor  = 10 * time.Second // unless Config says
	silentMin  = 100 * time.Millisecond
	beatsInAll = 10
)

// silence returns how long a rank may be silent, 0 if that says nothing.
func (cfg Config) silence() time.Duration {
	switch {
	case cfg.Heartbeat < 0:
		return 0
	case cfg.Heartbeat == 0:
		return silentFor
	}
	return max(cfg.Heartbeat, silentMin)
}

// beatEvery returns the time between two beats, in whole milliseconds.
func (cfg Config) beatEvery() time.Duration {
	return (cfg.silence() / beatsInAll).Truncate(time.Millisecond)
}

// pulse is what a rank knows of another's beats.
type pulse struct {
	last  uint32
	looks int // since the counter has moved
}

// silent looks at the counter and reports whether it has not moved for as many
// looks as patience says.
func (p *pulse) silent(counter uint32, patience int) bool {
	if counter != p.last {
		p.last, p.looks = counter, 0
		return false
	}
	p.looks++
	return p.looks >= patience
}

// patience returns how many looks, one every mine, a rank may be silent that beats
// every theirs: those of the limit, or of the longer one that the other goes by.
func patience(limit, mine, theirs time.Duration) int {
	return int((max(limit, beatsInAll*theirs) + mine - 1) / mine)
}

// heartbeat begins to beat and to look, and returns what ends that.
func (e *engine) heartbeat(cfg Config) (stop func()) {
	every := cfg.beatEvery()
	if every == 0 {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		pulses := make([]pulse, len(e.area))
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				e.self.beat.Add(1)
				e.listen(pulses, cfg.silence(), every)
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// listen looks once at the counters of the others.
func (e *engine) listen(pulses []pulse, limit, every time.Duration) {
	for r, a := range e.area {
		theirs := time.Duration(a.every.Load()) * time.Millisecond
		if r == e.me || theirs == 0 || a.left.Load() != 0 || a.lost.Load() != 0 {
			continue
		}
		if !pulses[r].silent(a.beat.Load(), patience(limit, every, theirs)) {
			continue
		}
		e.mu.Lock()
		e.lose(r, fmt.Sprintf("silent for %v (process %d is stopped?)", max(limit, beatsInAll*theirs), e.pids[r]))
		e.takeNews()
		e.unlock()
		e.wakeAll()
	}
}
