package cohort

import (
	"context"
	"errors"
	"testing"
)

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
