//go:build cgo && linux

package mpi

import (
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// The library keeps an abandoned send until its message is received. MPICH cannot finalize while
// there is one: MPI_Finalize waits for it, or UCX ends the process. So the ranks drain their
// messages in the world's Close, in two rounds:
//
//  0. Each rank reports to rank 0 that it has arrived. From then on nobody waits for a send.
//  1. Each rank receives and discards what the others have sent. It reports once it has no send
//     left.
//
// Rank 0 ends a round by a message to all ranks once every rank has reported.
//
// A rank on which something is wrong waits for a limited time. If it has no send left it then sends
// what the others still wait for, so that all go on to MPI_Finalize.
//
// Broken communicators are not freed, nor those that were open when the world was closed: a rank
// that has freed a communicator cannot receive the sends that others abandoned on it.

const (
	drainMost   = 1 << 30  // bytes of the longest message that is received and discarded
	drainAtOnce = 64 << 20 // bytes being received above which no further receive starts
)

type drain struct {
	p       *process
	world   *comm
	ops     []*op // receives, and reports to other ranks
	counted int   // on rank 0: ranks that have reported in this round
	n       int   // the round
	sent    bool  // this rank has reported
	done    bool  // all ranks have
	failed  bool  // the library could not send
	pending int   // bytes being received
	at      [1]int32
	st      [1]libmpi.Status
}

// drain reports whether all ranks had no send left by end. A zero end means no limit.
func (p *process) drain(world *comm, end time.Time) bool {
	d, from := &drain{p: p, world: world}, []libmpi.Comm{world.data, world.ctl}
	p.engine.mu.Lock()
	for _, c := range p.engine.unfreed {
		from = append(from, c.data, c.ctl)
	}
	p.engine.mu.Unlock()
	defer func() { // the library still uses what is not complete: its memory stays pinned
		kept.mu.Lock()
		kept.ops = append(kept.ops, d.ops...)
		kept.mu.Unlock()
	}()
	return d.round(0, nil, func() bool { return true }, end) &&
		d.round(1, from, func() bool { return !p.engine.owed() }, end)
}

// round receives messages from communicators until all ranks are ready.
func (d *drain) round(n int, from []libmpi.Comm, ready func() bool, end time.Time) bool {
	d.n, d.counted, d.sent, d.done = n, 0, false, false
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, time.Millisecond) {
		d.p.engine.poll(1)
		for !d.done && d.take(d.world.ctl, d.p.folds.last(n)) {
			pause = 0
		}
		for _, c := range from {
			for !d.done && d.take(c, backend.AnyTag) {
				pause = 0
			}
		}
		d.test()
		if !d.sent && ready() {
			d.sent = true
			d.count(d.world.rank == 0)
		}
		switch {
		case d.done && len(d.ops) == 0:
			return true
		case d.failed, !end.IsZero() && time.Now().After(end):
			d.releaseOthers()
			return false
		}
		if yield(); pause > 100*time.Microsecond {
			time.Sleep(pause)
		}
	}
}

// releaseOthers sends what the others still wait for, so that they go on to MPI_Finalize: that this
// rank is ready in all rounds, or, from rank 0, that all ranks are.
func (d *drain) releaseOthers() {
	if d.p.engine.owed() {
		return
	}
	for ; d.n < 2; d.n, d.sent, d.done = d.n+1, false, false {
		if d.world.rank == 0 && !d.done {
			d.counted = d.world.size - 1
			d.count(true)
		} else if d.world.rank != 0 && !d.sent {
			d.count(false)
		}
	}
}

// take starts the receive of a message, if one is there.
func (d *drain) take(c libmpi.Comm, tag int) bool {
	var st libmpi.Status
	if c.Probe(backend.AnySource, tag, false, &st) != 0 || st.Flag == 0 || st.Bytes > drainMost || d.pending > drainAtOnce {
		return false
	}
	last := c == d.world.ctl && int(st.Tag) == d.p.folds.last(d.n)
	var m libmpi.Message
	if c.Mprobe(int(st.Source), int(st.Tag), false, &m, &st) != 0 || st.Flag == 0 {
		return false
	}
	o := &op{buf: make([]byte, max(st.Bytes, 0))}
	o.pin()
	if code := m.Imrecv(o.buf, &o.h, &st); code == 0 && st.Flag == 0 {
		d.ops = append(d.ops, o)
		d.pending += len(o.buf)
	} else {
		o.pins.Unpin()
	}
	if last {
		d.count(true)
	}
	return true
}

// count notes that a rank is ready: this one, or on rank 0 one whose report was received. On other
// ranks received means that all are ready.
func (d *drain) count(received bool) {
	switch {
	case d.world.rank != 0 && received:
		d.done = true
	case d.world.rank != 0:
		d.report(0)
	default:
		if d.counted++; d.counted == d.world.size {
			d.done = true
			for r := 1; r < d.world.size; r++ {
				d.report(r)
			}
		}
	}
}

// report sends a rank the empty message of this round.
func (d *drain) report(rank int) {
	o := &op{}
	var st libmpi.Status
	switch code := d.world.ctl.Isend(nil, rank, d.p.folds.last(d.n), false, &o.h, &st); {
	case code != 0:
		d.failed = true
	case st.Flag == 0:
		d.ops = append(d.ops, o)
	}
}

// test removes the operations that are complete.
func (d *drain) test() {
	d.ops = slices.DeleteFunc(d.ops, func(o *op) bool {
		reqs := []libmpi.Request{o.h}
		n, code := libmpi.Testsome(reqs, 1, d.at[:], d.st[:])
		if code != 0 || n == 0 {
			return false
		}
		o.pins.Unpin()
		d.pending -= len(o.buf)
		return true
	})
}
