package cohort

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestPersistentRejectsMisuse(t *testing.T) {
	var p *Persistent
	if err := p.Start(); !errors.Is(err, ErrRequest) {
		t.Errorf("Start of nil: %v", err)
	}
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	if err := errors.Join(p.Close(), WaitAllPersistent(nil, nil)); err != nil {
		t.Error(err)
	}
	ranks(t, 1, func(w *Comm) error {
		in := make([]int, 1)
		r, err := RecvInit(w, in, 0, 0)
		if err != nil {
			return err
		}
		must.OK(r.Start())
		if _, ok, err := r.Test(); ok || err != nil {
			t.Errorf("Test before the message: %v, %v", ok, err)
		}
		must.OK(wantErr("Start while under way", r.Start(), ErrRequest))
		must.OK(wantErr("Close while under way", r.Close(), ErrRequest))
		must.OK(Send(w, []int{1, 2}, 0, 0))
		_, err = r.Wait()
		must.OK(errors.Join(wantErr("a long message", err, ErrTruncate), isOp(err, "recvinit")))
		// A deadline withdraws a receive, which can be started again.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		h := must.Get(RecvInit(w.WithContext(ctx), in, 0, 1))
		must.OK(h.Start())
		_, err = h.Wait()
		must.OK(wantErr("at the deadline", err, ErrTimeout))
		must.OK(r.Start())
		must.OK(Send(w, []int{3}, 0, 0))
		if _, err := r.Wait(); err != nil || in[0] != 3 {
			return fmt.Errorf("started again: %v, %w", in, err)
		}
		if _, err := r.Wait(); err != nil {
			t.Errorf("a second Wait returns the error of the start before: %v", err)
		}
		must.OK(w.Close())
		return wantErr("Start after the world's Close", r.Start(), ErrClosed)
	})
}

func TestPersistentMakesNoAllocations(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		x, y := make([]float64, 10), make([]float64, 10)
		coll, err1 := AllreduceInit(w, x, y, Max)
		send, err2 := SendInit(w, x, (w.Rank()+1)%3, 0)
		recv, err3 := RecvInit(w, make([]float64, 10), (w.Rank()+2)%3, 0)
		ring, err := w.CartCreate([]int{3}, []bool{true}, false)
		must.OK(errors.Join(err, err1, err2, err3))
		near := must.Get(NeighborAllgatherInit(ring, x, make([]float64, 20)))
		allocates(t, w, 0, "StartAll and WaitAllPersistent", func() error {
			return errors.Join(StartAll(coll, recv, send, near), WaitAllPersistent(coll, recv, send, near))
		})
		return nil
	})
}

// A goroutine is in Wait of an operation that is under way. Another calls Test, Start and Close, which must
// not wait for it: here the message comes only afterwards.
func TestPersistentDoesNotWaitForWait(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		in := make([]int, 1)
		if w.Rank() == 1 {
			for range 3 {
				must.Get(Recv(w, in, 0, 2))
				must.OK(Send(w, in, 0, 1))
			}
			return nil
		}
		p, err := RecvInit(w, in, 1, 1)
		if err != nil {
			return err
		}
		for name, call := range map[string]func() error{
			"Test": func() error {
				_, ok, err := p.Test()
				if ok {
					return errors.New("complete before the message was sent")
				}
				return err
			},
			"Start": func() error { return wantErr("Start", p.Start(), ErrRequest) },
			"Close": func() error { return wantErr("Close", p.Close(), ErrRequest) },
		} {
			must.OK(p.Start())
			waited, called := make(chan error, 1), make(chan error, 1)
			go func() { _, err := p.Wait(); waited <- err }()
			inside.Wait("(*Persistent).Wait")
			go func() { called <- call() }()
			select {
			case err = <-called:
			case <-time.After(30 * time.Second):
				err = fmt.Errorf("%s has not returned after 30 s beside Wait", name)
			}
			must.OK(errors.Join(err, Send(w, in, 1, 2), <-waited))
		}
		return p.Close()
	})
}
