package shm

import (
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// The job's first failure is in the control area: state goes from 0 to 1, the rest is filled in, and
// state goes to 2.
const (
	jobRuns uint32 = iota
	jobFailing
	jobFailed
)

// fail ends the job. The lock is held. If this rank is lost, that ends nothing for the others.
func (e *engine) fail(rank int, sentinel error, text string) {
	if e.self.lost.Load() != 0 {
		e.stale = true
		e.end(&backend.Fault{Sentinel: sentinel, Text: text})
		return
	}
	if e.ctl.state.CompareAndSwap(jobRuns, jobFailing) {
		e.ctl.rank, e.ctl.code = int32(rank), uint32(backend.Code(sentinel))
		e.ctl.bytes = uint32(copy(e.ctl.text[:], text))
		e.ctl.state.Store(jobFailed)
		e.ctl.news.Add(1)
		for r := range e.area {
			if r != e.me {
				e.ring(r)
			}
		}
	}
	if e.ctl.state.Load() == jobFailed {
		e.jobFailed()
		return
	}
	// Another rank was first, and has not finished writing or has died while doing so.
	e.end(&backend.Fault{Sentinel: sentinel, Text: text})
}

// jobFailed ends this rank with the failure in the control area. The lock is held.
func (e *engine) jobFailed() { e.end(e.failure()) }

func (e *engine) failure() *backend.Fault {
	text := e.ctl.text[:min(e.ctl.bytes, textMax)]
	return &backend.Fault{Sentinel: sentinel(e.ctl.code), Text: string(text)}
}

// sentinel returns the sentinel of a code that another rank wrote. It is never nil, whatever the
// code.
func sentinel(code uint32) error {
	if code == 0 || code > 0xff {
		return backend.ErrInternal
	}
	return backend.Sentinel(uint8(code))
}

// end completes everything with the job's failure.
func (e *engine) end(f *backend.Fault) {
	if !e.fault.CompareAndSwap(nil, f) {
		return
	}
	e.eachComm(func(c *comm) { c.end.CompareAndSwap(nil, f) })
	e.dropWhere(func(*op) error { return f })
	e.endTakes()
	e.wakeOthers()
}

// dropWhere completes the operations for which why returns an error. A receive that its sender is
// writing to ends once that has stopped; endTakes covers the end of the job.
func (e *engine) dropWhere(why func(*op) error) {
	e.posted.Each(func(n *match.Node) bool {
		o := n.Owner.(*op)
		if err := why(o); err != nil {
			e.posted.Remove(n)
			e.finish(o, backend.Status{}, err)
		}
		return true
	})
	keep := e.queued[:0]
	for _, o := range e.queued {
		if err := why(o); err != nil {
			e.finish(o, backend.Status{}, err)
			continue
		}
		keep = append(keep, o)
	}
	clear(e.queued[len(keep):])
	e.queued = keep
	for _, o := range e.rts {
		if o == nil {
			continue
		}
		if err := why(o); err != nil {
			if e.withdraw(o) {
				e.finish(o, backend.Status{}, err)
			} else { // the receiver had finished
				e.release(o)
				e.finish(o, backend.Status{}, nil)
			}
		}
	}
	stopped := false
	for _, o := range e.takes {
		if err := why(o); err != nil {
			e.stopTake(o, err)
			stopped = true
		}
	}
	if stopped && e.fault.Load() == nil {
		e.moveTakes()
	}
	e.lookProbes()
}

// kept holds buffers that a peer may still write to. The process keeps them as long as it runs,
// though the engine and the caller forget them.
var kept keeper

type keeper struct {
	mu   sync.Mutex
	bufs [][]byte
}

func (k *keeper) add(b []byte) {
	k.mu.Lock()
	k.bufs = append(k.bufs, b)
	k.mu.Unlock()
}

// endTakes completes the receives in progress because the job has ended, once no sender writes to
// their buffers. It does not wait for a sender that makes no progress: that buffer is kept from
// being reused.
func (e *engine) endTakes() {
	for end := time.Now().Add(10 * time.Millisecond); len(e.takes) > 0 && time.Now().Before(end); shmem.Yield() {
		e.moveTakes()
	}
	for _, o := range e.takes {
		kept.add(o.buf)
		e.finish(o, backend.Status{}, o.end)
	}
	e.takes = nil
}

// cause returns why a rank that an operation needs is gone, nil if it left by itself. It may have
// closed because of a loss that is not known here yet.
func (e *engine) cause(c *comm, rank int) *backend.Fault {
	if f := c.end.Load(); f != nil {
		return f
	}
	if e.ctl.state.Load() == jobFailed {
		return e.failure()
	}
	for r, a := range e.area {
		if word := a.lost.Load(); word != 0 && (r == rank || !c.acked.has(r)) {
			return e.loss(r, word)
		}
	}
	return nil
}

// leftFault is the error of an operation that needs a rank that has left or is lost.
func (e *engine) leftFault(c *comm, rank int) error {
	if f := e.cause(c, rank); f != nil {
		return f
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d has closed its communicator and left the job", rank)}
}

// cannotCome returns why no message can match a receive, nil if one can.
func (e *engine) cannotCome(c *comm, want match.Env) error {
	if want.Source != backend.AnySource {
		r := c.RankOf(int(want.Source))
		if r != c.rank && e.saidAll(c, r) {
			return c.goneFault(r)
		}
		return nil
	}
	gone := -1
	for r := range c.World {
		if r == c.rank {
			continue // another goroutine of this rank could still send one
		}
		if !e.saidAll(c, r) {
			return nil
		}
		gone = r
	}
	if gone < 0 {
		return nil
	}
	return c.goneFault(gone)
}

// saidAll reports whether a rank will send no more messages in a communicator. The notice of its
// closing comes through the ring, after its messages; that it has left the job is known at once.
// The ring of a lost rank was emptied before it counted as lost.
func (e *engine) saidAll(c *comm, r int) bool {
	w := c.World[r]
	return c.hasClosed(r) || e.lost[w].Load() != nil || e.area[w].left.Load() != 0 && !e.hasNews(w)
}

// hasNews reports whether a ring holds messages.
func (e *engine) hasNews(src int) bool {
	_, _, ok := e.in[src].peek()
	return ok
}
