package comm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
)

// limited notes when the operations that it is asked for have begun.
type limited struct {
	backend.Comm
	backend.Collectives
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

// The limit on the time of an operation counts once for all its steps, and from the start of a nonblocking one.
func TestLimitCountsFromTheStartOfAnOperation(t *testing.T) {
	typ := numberTypes[backend.Int64]
	for name, op := range map[string]func(c *Comm) error{
		"sendrecv": func(c *Comm) error {
			_, err := c.Sendrecv(typ, view.Bytes([]int64{1}), 0, 1, view.Bytes([]int64{0}), 0, 1, nil)
			return err
		},
		"recvalloc": func(c *Comm) error {
			q, err := c.Isend("isend", typ, view.Bytes([]int64{1}), nil, 0, 1, backend.Standard, nil)
			if err != nil {
				return err
			}
			_, err = c.RecvAlloc(typ, 0, 1, nil, func(n int) []byte { return make([]byte, 8*n) })
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
		"split": func(c *Comm) error {
			_, err := dup(c)
			return err
		},
		"barrier": func(c *Comm) error { return c.Run(c.Begin(backend.Barrier, -1)) },
		"fence": func(c *Comm) error {
			return (&Window{c: c, win: new(window.Window)}).Fence()
		},
	} {
		for _, schedules := range []bool{true, false} {
			var begun []time.Time
			bc := local.New(1)[0]
			w := NewWorld(context.Background(), limited{bc, bc.(backend.Collectives), &begun}, Options{Timeout: time.Hour, Schedules: schedules})
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
