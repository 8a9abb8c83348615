//go:build cgo && linux

package mpi

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// The library keeps an abandoned send until its message is received. MPICH cannot finalize while
// there is one: MPI_Finalize waits for it, or UCX ends the process. A rank in MPI_Finalize also does
// not learn that another rank has failed, and mpirun of Open MPI 4.1.4 may then never end. So the
// ranks drain their messages in the world's Close, in two rounds:
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
// A rank that has freed a communicator cannot receive the sends that others abandoned on it. So a communicator is freed
// only after all of its messages have been received (retire.go).

// drain is this rank's part. Only the goroutine in Close uses it.
type drain struct {
	p       *process
	world   *comm
	n       int  // the round
	counted int  // on rank 0: ranks that have reported in this round
	sent    bool // this rank has reported
	done    bool // rank 0 has ended the round
	failed  bool // the library could not send
}

// drain reports whether all ranks had no send left by end. A zero end means no limit.
func (p *process) drain(world *comm, end time.Time) bool {
	d := &drain{p: p, world: world}
	if !d.round(0, nil, func() bool { return true }, end) {
		return false
	}
	p.settle()
	return d.round(1, append(p.engine.unfreed(), world), func() bool { return !p.engine.owed() }, end)
}

// round receives messages from communicators until all ranks are ready.
func (d *drain) round(n int, from []*comm, ready func() bool, end time.Time) bool {
	d.n, d.counted, d.sent, d.done = n, 0, false, false
	e := &d.p.engine
	for pause := time.Duration(0); ; pause = min(pause+time.Microsecond, time.Millisecond) {
		e.poll(1)
		d.p.hear()
		for !d.done && d.hear() {
			pause = 0
		}
		for _, c := range from {
			for !d.done && (e.discardTaken(c) || d.discard(c.data) || d.discard(c.ctl)) {
				pause = 0
			}
		}
		if !d.sent && ready() {
			d.sent = true
			d.report()
		}
		switch {
		case d.done && e.discarding() == 0 && (n == 0 || !e.owed()): // in round 1 only reports of this rank can be left
			return true
		case d.p.failed.Load() != nil:
			return false
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
			d.endRound()
		} else if d.world.rank != 0 && !d.sent {
			d.report()
		}
	}
}

// hear takes a message of this round, if there is one: rank 0 counts the rank that reports, and ends the round of the others.
func (d *drain) hear() bool {
	_, _, ok := d.world.receiveControl(d.p.tags.last(d.n))
	switch {
	case ok && d.world.rank == 0:
		d.count()
	case ok:
		d.done = true
	}
	return ok
}

// discard takes a message that nobody receives any more, if there is one. Those of p.hear and d.hear are left to them.
func (d *drain) discard(on libmpi.Comm) bool {
	var st libmpi.Status
	if !arrived(on, &st) {
		return false
	}
	if tag := int(st.Tag); on == d.world.ctl && (tag == d.p.tags.failure() || tag == d.p.tags.last(d.n)) {
		return false
	}
	return d.p.engine.discard(d.world, on, &st)
}

// report reports to rank 0 that this rank is ready.
func (d *drain) report() {
	if d.world.rank == 0 {
		d.count()
	} else {
		d.tell(0)
	}
}

// count notes on rank 0 that a rank is ready.
func (d *drain) count() {
	if d.counted++; d.counted == d.world.size {
		d.endRound()
	}
}

// endRound ends the round on all ranks. Rank 0 calls it.
func (d *drain) endRound() {
	d.done = true
	for r := 1; r < d.world.size; r++ {
		d.tell(r)
	}
}

// tell sends a rank the empty message of this round.
func (d *drain) tell(rank int) {
	if !d.p.engine.tell(d.world, nil, rank, d.p.tags.last(d.n)) {
		d.failed = true
	}
}
