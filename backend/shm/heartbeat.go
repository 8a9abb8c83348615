package shm

import (
	"fmt"
	"time"
)

// Heartbeats detect a process that exists and does nothing: stopped by a signal, or not scheduled.
// The watch notices at once a process that has ended.
//
// Every rank raises a counter beatsInAll times in the time that silence may last, and looks at the
// counters of the others. It counts its own looks, not time: a rank that was stopped itself, or whose
// machine was suspended, has not looked meanwhile, and changes of the clock do not matter.
const (
	silentFor  = 10 * time.Second // unless Config says
	silentMin  = 100 * time.Millisecond
	beatsInAll = 10
)

// silence returns how long a rank may be silent, 0 if there is no limit.
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

// pulse is the state of one rank's heartbeat as seen here.
type pulse struct {
	last  uint32
	looks int // since the counter has moved
}

// silent looks at the counter and reports whether it has stayed the same for patience looks.
func (p *pulse) silent(counter uint32, patience int) bool {
	if counter != p.last {
		p.last, p.looks = counter, 0
		return false
	}
	p.looks++
	return p.looks >= patience
}

// patience returns for how many looks, one every mine, a rank that beats every theirs may be
// silent: the limit, or the longer one that the other rank uses.
func patience(limit, mine, theirs time.Duration) int {
	return int((max(limit, beatsInAll*theirs) + mine - 1) / mine)
}

// heartbeat starts to beat and to look, and returns a function that stops it.
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
