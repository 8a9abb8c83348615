//go:build cgo && linux

package mpi

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A rank whose program fails tells the others why, in a message to each of them (Declare). Every communicator of a rank that
// has this message is broken with it: its operations end, and none begins. MPI cannot go on without a rank. So no rank
// finalizes it, and the launcher ends the job once a process has ended.
//
// A rank that waits outside the library looks for the message between its looks at what it waits for, and the sampler looks at
// regular intervals. Each rank answers. Once all have answered, or the time for it is over, the failed rank tells them when it
// ends. A call that blocks in the library would stay there, so the sampler takes the thread out of it (libmpi.EndBlocked). From
// then on this process does not call the library, of which that thread may hold a lock.
//
// Until the failed rank ends, the others have time to save what they have: the launcher kills them some 8 ms after the
// failed process has ended. They let it print its error first: their Close returns a little later.
//
// A rank that closes the world without an error has not failed. It also sends a message, without a text (departs).
//
//	from      event                                                                   to
//	running   the program fails (Declare), or a rank's message has come               failing
//	failing   it is known when the failed rank ends, or too long ago that it failed   ending
//	ending    the sampler is about to take a thread out of the library                abandoned
//
//	shared words     written by
//	process.failed   fails, by one compare-and-swap: the first failure stays
//	answered         on the failed rank, whoever receives an answer
//	end              Declare on the failed rank; on others, once, whoever learns when it ends or has waited too long for that
//	departed         whoever receives the message of a rank that leaves
//
// Invariant: a process that knows of a failed rank breaks all its communicators with that failure, and does not finalize MPI.
// Its Close returns after end.

// failure is what a process knows about the rank that fails.
type failure struct {
	why      *backend.Fault
	begun    time.Time
	own      bool                      // it is this rank that fails
	answered atomic.Int32              // other ranks, if it is
	end      atomic.Pointer[time.Time] // when Close returns here; nil: not known yet
}

// Messages of failing ranks begin with one of these.
const (
	saysWhy   byte = iota // then the error's text
	saysHeard             // the answer
	saysWhen              // then when the failed rank ends
)

// answerFor is how long a failed rank waits for the others' answers. One of them may be stopped.
const answerFor = 5 * time.Second

const (
	farewell = 500 * time.Millisecond // from the answers to the end of the failed rank
	after    = 2 * time.Millisecond   // the others end later by that
	arrives  = time.Second            // after a rank has left, all that it has sent has arrived
	settling = 5 * time.Millisecond   // how long a blocking call may take to end by itself

	// maxReason is the longest text that others get. A library sends a message of that length at once.
	maxReason = 2000
)

// Declare implements backend.Comm, for the calling rank only.
func (c *comm) Declare(rank int, why error) error {
	p := c.p
	w := p.world
	if rank != w.rank {
		return &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "a rank on mpi can declare only itself lost"}
	}
	if !w.gate.Enter() {
		return backend.CommClosed
	}
	defer w.leave()
	f := &failure{why: asFault(why), begun: time.Now(), own: true}
	if !p.fails(f) {
		return nil // the others have failed before, and end by themselves
	}
	text := f.why.Text
	told := p.tellAll(append([]byte{saysWhy}, text[:min(len(text), maxReason)]...))
	for told && int(f.answered.Load()) < w.size-1 && time.Since(f.begun) < answerFor {
		p.engine.poll(1)
		p.hear()
		time.Sleep(time.Millisecond)
	}
	end := time.Now().Add(farewell)
	f.end.Store(&end)
	if !told || !p.tellAll(binary.LittleEndian.AppendUint64([]byte{saysWhen}, uint64(end.UnixNano()))) {
		return &backend.Fault{Sentinel: backend.ErrBroken, Text: "the other ranks do not learn of the failure: the MPI library cannot send"}
	}
	return nil
}

// tellAll sends a message to all other ranks. It returns false if the library cannot.
func (p *process) tellAll(m []byte) bool {
	for r := range p.world.size {
		if r != p.world.rank && !p.engine.tell(p.world, m, r, p.tags.failure()) {
			return false
		}
	}
	return true
}

// fails breaks all communicators. It returns false if that was done before.
func (p *process) fails(f *failure) bool {
	if !p.failed.CompareAndSwap(nil, f) {
		return false
	}
	e := &p.engine
	e.mu.Lock()
	comms := e.comms.open
	e.mu.Unlock()
	for _, c := range comms { // begin breaks those that are made from now on
		c.breaks(f.why)
	}
	return true
}

// ends returns when Close returns here, and false while that is not known. A failed rank that does not say it has died
// or is stopped.
func (f *failure) ends() (time.Time, bool) {
	if f.end.Load() == nil {
		if f.own || time.Since(f.begun) < answerFor+time.Second {
			return time.Time{}, false
		}
		end := time.Now().Add(farewell)
		f.end.CompareAndSwap(nil, &end)
	}
	return *f.end.Load(), true
}

// listen receives the messages of a rank that fails, if there are any.
func (p *process) listen() {
	if w := p.world; w.size > 1 && !p.heard() && w.gate.Enter() {
		p.hear()
		w.leave()
	}
}

// heard reports whether a rank has failed, and all that matters is known.
func (p *process) heard() bool {
	f := p.failed.Load()
	return f != nil && f.end.Load() != nil
}

// hear is listen for a caller that keeps the world from being freed.
func (p *process) hear() {
	w := p.world
	if p.heard() || !w.reading.TryLock() {
		return
	}
	defer w.reading.Unlock()
	for !p.heard() && p.hearOne() {
	}
}

// hearOne receives a message, if there is one.
func (p *process) hearOne() bool {
	m, from, ok := p.world.receiveControl(p.tags.failure())
	if !ok {
		return false
	}
	if len(m) == 0 {
		p.departed.note(from)
		return true
	}
	switch m[0] {
	case saysWhy:
		p.engine.tell(p.world, []byte{saysHeard}, from, p.tags.failure())
		p.fails(&failure{why: &backend.Fault{Sentinel: backend.ErrPeerLost, Text: string(m[1:])}, begun: time.Now()})
	case saysHeard:
		p.failed.Load().answered.Add(1)
	case saysWhen:
		// The clocks of hosts may differ.
		left := min(max(time.Until(time.Unix(0, int64(binary.LittleEndian.Uint64(m[1:])))), 0), farewell)
		end := time.Now().Add(left + after)
		p.failed.Load().end.CompareAndSwap(nil, &end)
	}
	return true
}

// departs tells the others that this rank closes the world, in an empty message, if collectives are made of messages or
// begin with an agreement. They would wait for its part of it without end.
func (p *process) departs() {
	if p.departing() {
		p.tellAll(nil)
	}
}

func (p *process) departing() bool { return p.job.agrees() || p.job.polled || p.job.oneThread }

// departures are the world ranks that have closed the world, and when this rank learned of it.
type departures struct {
	mu sync.Mutex
	at map[int]time.Time
}

func (d *departures) note(world int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at == nil {
		d.at = make(map[int]time.Time)
	}
	d.at[world] = time.Now()
}

func (d *departures) none() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.at) == 0
}

// has reports whether a rank has left the job, and all that it had sent before has arrived.
func (d *departures) has(world int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.at[world]
	return ok && time.Since(at) > arrives
}

// desert breaks the communicators on which this rank waits for a part of a collective from a rank that has left the job.
// What that rank had sent before has arrived by then.
func (p *process) desert() {
	if p.departed.none() {
		return
	}
	gone := map[*comm]int{}
	look := func(ops []*op) {
		for _, o := range ops {
			if o.receives && !o.matched && o.internal() && o.source >= 0 {
				if w := o.c.world[o.source]; p.departed.has(w) {
					gone[o.c] = w
				}
			}
		}
	}
	e := &p.engine
	e.mu.Lock()
	comms := e.comms.open
	look(e.ops)
	e.mu.Unlock()
	for _, c := range comms {
		q := &c.queues[1]
		q.mu.Lock()
		look(q.ops)
		q.mu.Unlock()
	}
	for c, w := range gone {
		c.Break(peerLeft(w))
	}
}

// release takes threads out of calls in the library, once another rank has failed and says when it ends.
func (p *process) release(stop <-chan struct{}) {
	f := p.failed.Load()
	if f == nil || f.own || p.lib.level < libmpi.Multiple {
		return
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		select {
		case <-stop:
			return
		default:
		}
		end, known := f.ends()
		switch {
		case !known:
			p.listen()
		case time.Now().After(end) && libmpi.Blocked() == 0:
			return
		case libmpi.Blocked() > 0 && time.Since(begun) > settling:
			p.engine.stop()
			libmpi.EndBlocked()
		}
	}
}
