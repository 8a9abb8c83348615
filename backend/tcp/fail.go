package tcp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// lost ends the job because of a link that is of no more use. The lock is held.
func (e *engine) lost(l *link, sentinel error, text string) {
	if !l.dead {
		l.forget()
		l.shut()
	}
	e.lose(l.peer, sentinel, text)
}

// lose ends the job because a rank is lost, and tells the others why: they may hear of this rank's
// leaving before they notice the loss themselves. The lock is held.
func (e *engine) lose(rank int, sentinel error, text string) {
	if e.fault.Load() != nil {
		return
	}
	f := &backend.Fault{Sentinel: sentinel, Text: text}
	e.tell(&wire.Header{Kind: wire.Lost, Tag: int32(rank)}, encodeFault(f))
	e.end(rank, f)
}

// tell sends every other rank a notice.
func (e *engine) tell(h *wire.Header, body []byte) {
	h.Length = uint64(len(body))
	for _, l := range e.links {
		if l != nil && !l.said {
			l.emit(h, body, nil)
		}
	}
}

// encodeFault makes a notice's text of a fault: the code of its sentinel, and what it says.
func encodeFault(f *backend.Fault) []byte {
	return append([]byte{backend.Code(f.Sentinel)}, f.Text[:min(len(f.Text), noticeMax-1)]...)
}

// decodeFault is the inverse: never without a sentinel, whatever came.
func decodeFault(b []byte) *backend.Fault {
	if len(b) == 0 || b[0] == 0 {
		return &backend.Fault{Sentinel: backend.ErrInternal}
	}
	return &backend.Fault{Sentinel: backend.Sentinel(b[0]), Text: string(b[1:])}
}

// end completes everything with the job's failure, which is about a rank.
func (e *engine) end(rank int, f *backend.Fault) {
	if !e.fault.CompareAndSwap(nil, f) {
		return
	}
	e.culprit = rank
	e.dropWhere(func(*op) error { return f })
	e.wakeOthers()
}

// dropWhere completes the operations for which why returns an error.
func (e *engine) dropWhere(why func(*op) error) {
	e.posted.Each(func(n *match.Node) bool {
		o := n.Owner.(*op)
		if err := why(o); err != nil {
			e.drop(o, err)
		}
		return true
	})
	for i := range e.slots {
		if o := e.slots[i].op; o != nil {
			if err := why(o); err != nil {
				e.drop(o, err)
			}
		}
	}
	for _, l := range e.links {
		if l != nil && l.op != nil { // a short message of which a part is here
			if err := why(l.op); err != nil {
				e.drop(l.op, err)
			}
		}
	}
	e.lookProbes()
}

// leftFault is the error of an operation that needs a rank that has closed.
func (e *engine) leftFault(rank int) error {
	if f := e.fault.Load(); f != nil { // it left because of that, or after it
		return f
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d has closed its communicator and left the job", rank)}
}

// left reports whether a rank has left in good order. All it has sent is here.
func (e *engine) left(world int) bool { l := e.links[world]; return l != nil && l.said }

// cannotCome returns why no message can match a receive, nil if one can.
func (e *engine) cannotCome(c *comm, want match.Env) error {
	if want.Source != backend.AnySource {
		r := c.RankOf(int(want.Source))
		if r != c.rank && c.isGone(r) {
			return c.goneFault(r)
		}
		return nil
	}
	gone := -1
	for r := range c.World {
		if r == c.rank {
			continue // only another goroutine of this rank could send one then
		}
		if !c.isGone(r) {
			return nil
		}
		gone = r
	}
	if gone < 0 {
		return nil
	}
	return c.goneFault(gone)
}

// dropLeft ends the operations that need a rank that has left.
func (e *engine) dropLeft(rank int) {
	e.dropWhere(func(o *op) error {
		if o.state == opPosted {
			return e.cannotCome(o.comm, o.node.Env)
		}
		if o.peer == rank {
			return e.leftFault(rank)
		}
		return nil
	})
	for id, c := range e.closing {
		e.allClosed(id, c)
	}
	e.wakeOthers()
}
