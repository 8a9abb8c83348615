package comm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

// limited notes when the operations that it is asked for have begun.
type limited struct {
	backend.Comm
	backend.Collectives
	backend.Recovery
	begun *[]time.Time
}

func (l limited) note(b *backend.Bound) { *l.begun = append(*l.begun, b.Since) }

func (l limited) Await(b *backend.Bound, p backend.Pending) error {
	if b != nil && b.Timeout == time.Hour {
		l.note(b)
	}
	return l.Comm.Await(b, p)
}

func (l limited) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	l.note(b)
	return l.Comm.Send(b, buf, dest, tag, mode)
}

func (l limited) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	l.note(b)
	return l.Collectives.Collective(b, call)
}

func (l limited) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	l.note(b)
	return l.Comm.Mprobe(b, source, tag, block)
}

func (l limited) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	l.note(b)
	return l.Comm.Probe(b, source, tag, block)
}

func (l limited) Agree(b *backend.Bound, flag int) (int, error) {
	l.note(b)
	return l.Recovery.Agree(b, flag)
}

func (l limited) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	l.note(b)
	return l.Recovery.Shrink(b, ids)
}

// probed probes for a message to itself, and takes or receives it. The receive of a message that was taken is an operation
// of its own.
func probed(c *Comm, take bool) error {
	typ := datatype.Number(backend.Int64)
	q, err := c.Isend("isend", typ, view.Bytes([]int64{1}), nil, 0, 1, backend.Standard, nil)
	if err != nil {
		return err
	}
	_, _, _, err = c.Probe("probe", 0, 1, true, take)
	if !take {
		_, err = c.Recv("recv", typ, make([]byte, 8), nil, 0, 1, err)
	}
	_, err2 := q.Wait()
	return errors.Join(err, err2)
}

// The limit on the time of an operation counts once for all its steps, and from the start of a nonblocking one.
func TestLimitCountsFromTheStartOfAnOperation(t *testing.T) {
	typ := datatype.Number(backend.Int64)
	for name, op := range map[string]func(c *Comm) error{
		"sendrecv": func(c *Comm) error {
			_, err := c.Sendrecv(typ, Side{Buf: view.Bytes([]int64{1}), Tag: 1}, Side{Buf: view.Bytes([]int64{0}), Tag: 1}, nil)
			return err
		},
		"recvappend": func(c *Comm) error {
			q, err := c.Isend("isend", typ, view.Bytes([]int64{1}), nil, 0, 1, backend.Standard, nil)
			if err != nil {
				return err
			}
			_, err = c.RecvAppend(typ, 0, 1, nil, func(n int) []byte { return make([]byte, 8*n) })
			_, err2 := q.Wait()
			return errors.Join(err, err2)
		},
		"irecv": func(c *Comm) error {
			q, err := c.Irecv("irecv", typ, view.Bytes([]int64{0}), 0, 1, nil)
			if err != nil {
				return err
			}
			_, err = c.Isend("isend", typ, view.Bytes([]int64{1}), nil, 0, 1, backend.Standard, nil)
			_, err2 := q.Wait()
			return errors.Join(err, err2)
		},
		"probe":  func(c *Comm) error { return probed(c, false) },
		"mprobe": func(c *Comm) error { return probed(c, true) },
		"agree": func(c *Comm) error {
			_, err := c.Agree(1)
			return err
		},
		"shrink": func(c *Comm) error {
			_, err := c.Shrink()
			return err
		},
		"split": func(c *Comm) error {
			_, err := dup(c)
			return err
		},
		"barrier": func(c *Comm) error { return c.Run(c.Begin(backend.Barrier, -1), 0) },
		"fence": func(c *Comm) error {
			return (&Window{c, &windowCore{core: c.core}}).Fence()
		},
	} {
		for _, schedules := range []bool{true, false} {
			var begun []time.Time
			bc := local.New(1)[0]
			w := NewWorld(context.Background(), limited{bc, bc.(backend.Collectives), bc.(backend.Recovery), &begun}, Options{Timeout: time.Hour, Schedules: schedules})
			before := time.Now()
			err := op(w)
			for _, at := range begun {
				if at != begun[0] || at.Before(before) || at.After(time.Now()) {
					t.Errorf("%s: steps of one operation have begun at %v", name, begun)
					break
				}
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// The limit on the time of a window's operation counts once for all its steps.
func TestLimitCountsOnceForWindowOperations(t *testing.T) {
	const n = 3 * requestMost / 16
	apartRanks(t, n, func(w *Comm, win *Window, o *observed) error {
		err := barrier(w)
		o.oneLimit(t, "barrier")
		if w.Rank() == 0 {
			a := Access{Kind: flight.GetAccumulate, Op: datatype.Op(backend.OpSum, datatype.Number(backend.Complex128)), Rank: 1, In: make([]byte, 16*n), Out: make([]byte, 16*n)}
			err = errors.Join(err, win.Do("getaccumulate", a))
			if n := len(o.begun); n < 6 {
				t.Errorf("%d steps of getaccumulate, want 3 requests and answers", n)
			}
			o.oneLimit(t, "getaccumulate")
			err = errors.Join(err, accumulate(win, 1), win.Flush(1))
			o.mu.Lock()
			o.begun = o.begun[len(o.begun)-2:] // the flush
			o.mu.Unlock()
			o.oneLimit(t, "flush")
		}
		err = errors.Join(err, win.Fence())
		o.oneLimit(t, "fence")
		err = errors.Join(err, win.Close())
		o.oneLimit(t, "close")
		return err
	})
}

// The receive of a message that Mprobe has taken has a time limit of its own.
func TestMatchedMessageHasItsOwnLimit(t *testing.T) {
	w := NewWorld(context.Background(), local.New(1)[0], Options{Timeout: time.Hour})
	typ := datatype.Number(backend.Int64)
	q, err := w.Isend("isend", typ, view.Bytes([]int64{1}), nil, 0, 1, backend.Standard, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, _, _, err := w.Probe("mprobe", 0, 1, true, true)
	if err != nil {
		t.Fatal(err)
	}
	if !m.c.bound.Since.IsZero() {
		t.Errorf("the receive's time began at %v, with Mprobe", m.c.bound.Since)
	}
	_, err = m.Recv("recv", typ, make([]byte, 8), nil)
	_, err2 := q.Wait()
	if err := errors.Join(err, err2, w.Close()); err != nil {
		t.Error(err)
	}
}

// The operations of a region have limits of their own. Those of the call that made it, and of the communicator that it
// was called on, end without effect on the region.
func TestRegionHasItsOwnLimits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other, end := context.WithCancel(t.Context())
	defer end()
	ranksOn(t, 2, Options{Timeout: time.Hour}, func(bc backend.Comm) backend.Comm { return bc }, func(w *Comm) error {
		w.core.job.ctx = ctx // then a handle with another context has one of its own, which ends with the communicator
		d := must.Get(dup(w))
		region, node := must.Get2(d.WithContext(other).NewRegion(NewAllocation("NewSharedRegion", pair, 4, Region, nil)))
		if b := region.c.bound; !b.Since.IsZero() {
			t.Errorf("the time for operations of the region has begun at %v", b.Since)
		}
		must.OK(d.Close()) // ends the context of its handles
		if err := region.c.bound.Ctx.Err(); err != nil {
			t.Errorf("the region's context has ended with its communicator's: %v", err)
		}
		return errors.Join(barrier(w), region.Fence(), region.Close(), node.Close())
	})
}
