package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// Requests of several communicators and of collectives can be waited for together. A failure
// belongs to its own request.
func TestWaitAnyOfSeveralCommunicators(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		peer := 1 - w.Rank()
		long, short, sum := make([]int, 4), make([]int, 1), make([]int, 1)
		a, err1 := Irecv(w, long, peer, 0)
		b, err2 := Irecv(d, short, peer, 0)
		c, err3 := Iallreduce(d, []int{w.Rank()}, sum, Sum)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if err := errors.Join(Send(d, []int{1, 2}, peer, 0), Send(w, []int{1, 2, 3}, peer, 0)); err != nil {
			return err
		}
		left := []int{0, 1, 2}
		for len(left) > 0 {
			i, _, err := WaitAny(a, b, c)
			at := slices.Index(left, i)
			if at < 0 {
				return fmt.Errorf("WaitAny returned %d, of %v", i, left)
			}
			left = slices.Delete(left, at, at+1)
			if i == 1 {
				err = wantErr("the short one", err, ErrTruncate)
			}
			if err != nil {
				return err
			}
		}
		if long[2] != 3 || short[0] != 1 || sum[0] != 1 {
			t.Errorf("received %v %v %v", long, short, sum)
		}
		return nil
	})
}

// No backend can wait for requests of several ranks of one process at once, so WaitAny polls them.
func TestWaitAnyOfSeveralRanks(t *testing.T) {
	worlds := make(chan *Comm, 2)
	done := make(chan struct{})
	errc := make(chan error, 1)
	go func() {
		errc <- Run(context.Background(), 2, func(w *Comm) error { worlds <- w; <-done; return nil })
	}()
	a, b := <-worlds, <-worlds
	x, y := make([]int, 1), make([]int, 1)
	p, err1 := Irecv(a, x, b.Rank(), 0)
	q, err2 := Irecv(b, y, a.Rank(), 0)
	err3 := Send(a, []int{5}, b.Rank(), 0)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if i, _, err := WaitAny(p, q); i != 1 || err != nil || y[0] != 5 {
		t.Errorf("WaitAny: %d, %v, %v", i, err, y)
	}
	if err := Send(b, []int{6}, a.Rank(), 0); err != nil {
		t.Fatal(err)
	}
	if err := WaitAll(p, q); err != nil || x[0] != 6 {
		t.Errorf("WaitAll: %v, %v", err, x)
	}
	close(done)
	if err := <-errc; err != nil {
		t.Error(err)
	}
}
