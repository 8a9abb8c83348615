//go:build cgo && linux

package mpi

import (
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A send that was given up is the library's until its message is received, and MPICH does not end while
// there is one: MPI_Finalize waits for it, or UCX below it ends the process. So the ranks meet before, in
// the world's Close, and when all have come, so that nobody waits for a send any more, each receives what
// the others have sent it and nobody wanted, until no rank has a send left. That it has come, and that it
// has none left, each tells rank 0, which tells all of them when it has heard of all.
//
// A rank for which something is wrong waits for the others for so long only. Then it tells them all that is still to
// be told, if it has no send left, so that they go on to MPI_Finalize, as it does.
//
// Communicators that are known to be broken are not freed, nor those that were open when the world was closed. A rank
// that has freed one before it could hear that another has given up a send on it cannot receive that.

const (
	drainMost   = 1 << 30  // bytes of the longest message that is received to be thrown away
	drainAtOnce = 64 << 20 // bytes that are being received, above which no more are begun
)

type drain struct {
	p       *process
	world   *comm
	ops     []*op // what this rank receives, and what it tells the others
	counted int   // ranks that rank 0 has heard of, in this round
	n       int   // the round
	told    bool  // this rank has told of itself
	over    bool  // all have
	failed  bool  // the library does not send
	pending int   // bytes that are being received
	at      [1]int32
	st      [1]libmpi.Status
}

// drain reports whether it has come to that no rank has a send left, by end, or whenever if that is zero.
func (p *process) drain(world *comm, end time.Time) bool {
	d, from := &drain{p: p, world: world}, []libmpi.Comm{world.data, world.ctl}
	p.engine.mu.Lock()
	for _, c := range p.engine.unfreed {
		from = append(from, c.data, c.ctl)
	}
	p.engine.mu.Unlock()
	defer func() { // what is not complete stays the library's, and its memory where it is
		kept.mu.Lock()
		kept.ops = append(kept.ops, d.ops...)
		kept.mu.Unlock()
	}()
	return d.round(0, nil, func() bool { return true }, end) &&
		d.round(1, from, func() bool { return !p.engine.owed() }, end)
}

// round receives what there is from communicators until all ranks are ready.
func (d *drain) round(n int, from []libmpi.Comm, ready func() bool, end time.Time) bool {
	d.n, d.counted, d.told, d.over = n, 0, false, false
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, time.Millisecond) {
		d.p.engine.poll(1)
		for !d.over && d.take(d.world.ctl, d.p.folds.last(n)) {
			pause = 0
		}
		for _, c := range from {
			for !d.over && d.take(c, backend.AnyTag) {
				pause = 0
			}
		}
		d.test()
		if !d.told && ready() {
			d.told = true
			d.count(d.world.rank == 0)
		}
		switch {
		case d.over && len(d.ops) == 0:
			return true
		case d.failed, !end.IsZero() && time.Now().After(end):
			d.letGo()
			return false
		}
		if yield(); pause > 100*time.Microsecond {
			time.Sleep(pause)
		}
	}
}

// letGo tells the others what they would wait for, so that they go on to MPI_Finalize: that this rank is ready in all
// rounds, or, from rank 0, that all are.
func (d *drain) letGo() {
	if d.p.engine.owed() {
		return
	}
	for ; d.n < 2; d.n, d.told, d.over = d.n+1, false, false {
		if d.world.rank == 0 && !d.over {
			d.counted = d.world.size - 1
			d.count(true)
		} else if d.world.rank != 0 && !d.told {
			d.count(false)
		}
	}
}

// take receives a message, if there is one.
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

// count notes that a rank is ready: this one, or one that was heard of. Rank 0 tells all when all are, and the
// others tell rank 0 of themselves.
func (d *drain) count(heard bool) {
	switch {
	case d.world.rank != 0 && heard:
		d.over = true
	case d.world.rank != 0:
		d.tell(0)
	default:
		if d.counted++; d.counted == d.world.size {
			d.over = true
			for r := 1; r < d.world.size; r++ {
				d.tell(r)
			}
		}
	}
}

func (d *drain) tell(rank int) {
	o := &op{}
	var st libmpi.Status
	switch code := d.world.ctl.Isend(nil, rank, d.p.folds.last(d.n), false, &o.h, &st); {
	case code != 0:
		d.failed = true
	case st.Flag == 0:
		d.ops = append(d.ops, o)
	}
}

// test takes out what is complete.
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
