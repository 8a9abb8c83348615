package engine

import (
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// Heartbeats. A connection ends when its peer's process does, but not when the peer is stopped, or its
// machine or the network fails.
//
// Invariant: a rank of this node is never lost for silence while its process lives and is not stopped. The kernel
// reports that (Config.Runs), even if a loaded machine gives the process no processor.

// HeartbeatDefault is how long a rank may be silent before it is lost.
const HeartbeatDefault = 10 * time.Second

// heartbeat determines when a silent rank is lost. Time is counted in ticks of this rank: none occur while it
// is stopped itself, or the machine is suspended, and setting the clock has no effect. Its own heartbeats
// are counted in ticks that were due. So a rank that gets little processor time misses most ticks, but
// sends a heartbeat at each tick that it gets, if one is due.
type heartbeat struct {
	limit time.Duration // below 0: none
	every time.Duration // between two ticks
	ticks int           // of limit
	reach int           // ticks in which a rank that is asked for a connection is to answer; 0: no limit
	idle  int           // ticks after which a link that has had nothing to carry carries a heartbeat
}

// fenceTicks is how many ticks a rank that was declared lost, and still exists, has to end a copy.
const fenceTicks = 4

// crowd is how many ranks that share the processors of a node may tick as often as others. More ranks tick less often in
// proportion. Otherwise a job of hundreds of ranks would do nothing but tick.
const crowd = 32

// newHeartbeat is for a node with a number of ranks that share its processors. It also determines how often a rank of
// which no goroutine waits makes progress, once each tick.
func newHeartbeat(limit time.Duration, ranks int) heartbeat {
	if limit == 0 {
		limit = HeartbeatDefault
	}
	if limit > 0 {
		limit = max(limit, backend.HeartbeatMin)
	}
	h := heartbeat{limit: limit}
	if limit < 0 { // the others may have a limit
		limit = HeartbeatDefault
	}
	h.every = min(tickEvery*time.Duration(max(ranks, crowd))/crowd, limit/10)
	if h.limit > 0 {
		h.reach = int(max(limit, reachLeast) / h.every)
	}
	h.ticks = int(limit / h.every)
	h.idle = max(1, h.ticks/4)
	return h
}

// beat is called once each tick. The leader, which sleeps until a socket is readable, reads the heartbeats of the others.
//
//  1. The kernel is asked about the silent ranks of this node that the last beat has noted. The lock is free meanwhile.
//  2. Every link carries a heartbeat if it has been idle, and a peer that has been silent for too long is suspected.
//  3. The goodbyes of links go on, and ticks are counted for ranks that have been asked for a link. Those of this node
//     that do not answer are noted for the next beat.
//  4. Losses that were found are handled.
func (e *Engine) beat() {
	e.beats.Lock()
	defer e.beats.Unlock()
	runs := slices.DeleteFunc(e.silent, func(p *peer) bool { return !e.cfg.Runs(e.cfg.Peers[p.rank].PID) })
	e.silent = e.silent[:0]
	e.mu.LockAside()
	defer e.mu.Unlock()
	if e.membership.Closed() {
		return
	}
	for _, p := range runs {
		p.quiet = 0
		e.membership.Answered(p.rank)
	}
	now := e.cfg.Now()
	due := max(1, int(now.Sub(e.ticked)/e.heartbeat.every))
	e.ticked = now
	for _, p := range e.open {
		p.beat(due)
	}
	e.stepGoodbyes()
	e.membership.Tick()
	for _, p := range e.peers {
		if p != nil && p.state.Waits() {
			p.noteSilence(p.state.Waited)
		}
	}
	if e.lossesPending() {
		e.handleLosses()
	}
}

// beat is called once each tick of this rank. due is how many ticks were due since the last one.
func (p *peer) beat(due int) {
	e := p.e
	if p.mem != nil && e.losses[p.rank] != nil && p.mem.Receiving() {
		if p.copying++; p.copying > fenceTicks { // a running rank copies a part in 10 µs
			p.mem.Fence()
		}
	}
	if l, ok := p.link.(EndChecker); ok { // perhaps no other goroutine looks
		l.CheckEnd()
		p.move()
	}
	if p.link == nil || p.state.Over() {
		return
	}
	if p.mute += due; p.mute >= e.heartbeat.idle && !p.waits() && p.state.Link == membership.Up { // what waits is as good a sign
		p.emit(frame.Header{Kind: frame.Heartbeat}, nil, nil)
		p.mute = 0
	}
	p.quiet++
	p.noteSilence(p.quiet)
	most := e.heartbeat.ticks
	if p.state.Link == membership.Fresh {
		most = e.heartbeat.reach
	}
	if p.quiet <= most+1 || e.heartbeat.limit < 0 || e.membership.Parted() { // the tick in which something came does not count
		return
	}
	p.move() // what has come and was not read counts
	switch {
	case p.quiet == 0 || p.link == nil || p.state.Over():
	case p.state.Standing == membership.Reported: // it has left, and its goodbye does not come
		p.linkEnded(errDead)
	default:
		p.quiet = 0
		e.suspect(p.rank, "rank %d (%v) was silent for %v%s", p.rank, e.cfg.Peers[p.rank], e.heartbeat.limit, p.stopped())
	}
}

// noteSilence makes the next beat ask the kernel about a peer of this node from which nothing has come for some ticks.
func (p *peer) noteSilence(ticks int) {
	if ticks >= p.e.heartbeat.idle && p.near() {
		p.e.silent = append(p.e.silent, p)
	}
}

// near reports whether the kernel of this node knows the process of a peer.
func (p *peer) near() bool {
	e := p.e
	return e.cfg.Runs != nil && e.cfg.Peers[p.rank].Node == e.cfg.Peers[e.me].Node
}

// stopped returns what the kernel has reported of the process of a silent peer, for an error.
func (p *peer) stopped() string {
	if p.near() {
		return ", and its process has been stopped or cannot be read"
	}
	return ""
}
