package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestWaitAndTestReturnCompleteRequests(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		const n = 6
		reqs := make([]*Request, n)
		bufs := make([][]int, n)
		for i := range reqs {
			bufs[i] = make([]int, 1)
			var err error
			if reqs[i], err = Irecv(w, bufs[i], 0, i); err != nil {
				return err
			}
		}
		arrive := func(tags ...int) {
			for _, tag := range tags {
				if err := Send(w, []int{tag * 10}, 0, tag); err != nil {
					t.Error(err)
				}
			}
		}
		if i, _, ok, err := TestAny(reqs...); i != -1 || ok || err != nil {
			t.Errorf("TestAny of none complete: %d, %v, %v", i, ok, err)
		}
		if some, err := TestSome(reqs...); some != nil || err != nil {
			t.Errorf("TestSome of none complete: %v, %v", some, err)
		}
		if ok, err := TestAll(reqs...); ok || err != nil {
			t.Errorf("TestAll of none complete: %v, %v", ok, err)
		}
		arrive(3)
		if i, st, err := WaitAny(reqs...); i != 3 || st.Tag != 3 || err != nil || bufs[3][0] != 30 {
			t.Errorf("WaitAny: %d, %+v, %v", i, st, err)
		}
		arrive(5, 1)
		if some, err := WaitSome(reqs...); !slices.Equal(some, []int{1, 5}) || err != nil {
			t.Errorf("WaitSome: %v, %v", some, err)
		}
		arrive(0)
		if i, st, ok, err := TestAny(reqs...); i != 0 || !ok || st.Tag != 0 || err != nil {
			t.Errorf("TestAny: %d, %+v, %v, %v", i, st, ok, err)
		}
		arrive(4)
		if some, err := TestSome(reqs...); !slices.Equal(some, []int{4}) || err != nil {
			t.Errorf("TestSome: %v, %v", some, err)
		}
		if ok, err := TestAll(reqs...); ok || err != nil {
			t.Errorf("TestAll with one missing: %v, %v", ok, err)
		}
		arrive(2)
		if err := WaitAll(reqs...); err != nil {
			return err
		}
		if i, _, err := WaitAny(reqs...); i != -1 || err != nil {
			t.Errorf("WaitAny when all were returned: %d, %v", i, err)
		}
		for i, b := range bufs {
			if b[0] != i*10 {
				t.Errorf("request %d received %v", i, b)
			}
		}
		return nil
	})
}

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

// Many goroutines wait for the same requests, while later requests reuse their pooled operations.
func TestManyGoroutinesWaitForSameRequest(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		peer := 1 - w.Rank()
		for round := range 100 {
			got, sum := make([]int, 1), make([]int, 1)
			recv, err1 := Irecv(w, got, peer, round)
			coll, err2 := Iallreduce(w, []int{round}, sum, Sum)
			send, err3 := Isend(w, []int{round}, peer, round)
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					switch i {
					case 0:
						if err := WaitAll(recv, coll, send); err != nil {
							t.Error(err)
						}
					case 1:
						for ok := false; !ok; {
							var err error
							if ok, err = TestAll(recv, coll, send); err != nil {
								t.Error(err)
							}
						}
					}
					st, err := recv.Wait()
					if err != nil || st.Tag != round || st.Source != peer || got[0] != round {
						t.Errorf("round %d: received %v, %+v, %v", round, got, st, err)
					}
					if _, err := coll.Wait(); err != nil || sum[0] != 2*round {
						t.Errorf("round %d: sum %v, %v", round, sum, err)
					}
				})
			}
			wg.Wait()
			if err := WaitAll(send); err != nil {
				return err
			}
		}
		return nil
	})
}
