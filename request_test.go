package cohort

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestWaitReturnsSameResultAgain(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		got := make([]int, 2)
		q, err := Irecv(w, got, 0, 3)
		if err != nil {
			return err
		}
		if _, ok, err := q.Test(); ok || err != nil {
			t.Errorf("Test before the message: %v, %v", ok, err)
		}
		if err := Send(w, []int{8, 9}, 0, 3); err != nil {
			return err
		}
		for range 3 {
			st, err := q.Wait()
			if err != nil || st.Tag != 3 || st.Source != 0 || Count[int](st) != 2 || got[1] != 9 {
				t.Errorf("Wait: %+v, %v, %v", st, err, got)
			}
		}
		if st, ok, err := q.Test(); !ok || err != nil || st.Tag != 3 {
			t.Errorf("Test: %+v, %v, %v", st, ok, err)
		}
		// A failure is returned again, too.
		if q, err = Irecv(w, got[:1], 0, 4); err != nil {
			return err
		}
		if err := Send(w, []int{8, 9}, 0, 4); err != nil {
			return err
		}
		for range 2 {
			if _, err := q.Wait(); !errors.Is(err, ErrTruncate) {
				t.Errorf("Wait for what was truncated: %v", err)
			}
		}
		return nil
	})
}

func TestNilRequestIsComplete(t *testing.T) {
	var q *Request
	if st, err := q.Wait(); err != nil || st != (Status{}) {
		t.Errorf("Wait: %+v, %v", st, err)
	}
	if _, ok, err := q.Test(); !ok || err != nil {
		t.Errorf("Test: %v, %v", ok, err)
	}
	if err := q.Cancel(); err != nil {
		t.Error(err)
	}
}

func TestWaitingForNothingReturnsAtOnce(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		done, err := Isend(w, []int{1}, ProcNull, 0)
		if err != nil {
			return err
		}
		if _, err := done.Wait(); err != nil {
			return err
		}
		for _, reqs := range [][]*Request{nil, {nil, nil}, {done, nil}} {
			if err := WaitAll(reqs...); err != nil {
				t.Error(err)
			}
			if i, st, err := WaitAny(reqs...); i != -1 || err != nil || st != (Status{}) {
				t.Errorf("WaitAny: %d, %+v, %v", i, st, err)
			}
			if some, err := WaitSome(reqs...); some != nil || err != nil {
				t.Errorf("WaitSome: %v, %v", some, err)
			}
			if ok, err := TestAll(reqs...); !ok || err != nil {
				t.Errorf("TestAll: %v, %v", ok, err)
			}
			if i, _, ok, err := TestAny(reqs...); i != -1 || !ok || err != nil {
				t.Errorf("TestAny: %d, %v, %v", i, ok, err)
			}
			if some, err := TestSome(reqs...); some != nil || err != nil {
				t.Errorf("TestSome: %v, %v", some, err)
			}
		}
		return nil
	})
}

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

func TestCancelWithdrawsReceive(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		stale := []int{-1}
		q, err := Irecv(w, stale, w.Rank(), 0)
		if err != nil {
			return err
		}
		if err := q.Cancel(); err != nil {
			return err
		}
		_, err = q.Wait()
		if err := errors.Join(wantErr("wait", err, ErrCanceled), isOp(err, "irecv")); err != nil {
			return err
		}
		if err := q.Cancel(); err != nil {
			t.Errorf("Cancel of a complete request: %v", err)
		}
		got := make([]int, 1)
		if _, err := Sendrecv(w, []int{7}, w.Rank(), 0, got, w.Rank(), 0); err != nil || got[0] != 7 || stale[0] != -1 {
			return fmt.Errorf("the next message: %v, stale %v, %w", got, stale, err)
		}
		c, err := w.Ibarrier()
		if err != nil {
			return err
		}
		if err := c.Cancel(); err != nil && !errors.Is(err, ErrNotSupported) {
			t.Errorf("Cancel of a collective: %v", err)
		}
		_, err = c.Wait()
		return err
	})
}

// A deadline ends a collective and breaks its communicator. WaitAny returns the request whose
// deadline has passed.
func TestDeadlineEndsRequestAndBreaksCollective(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			_, err := Recv(w, make([]int, 1), 0, 0)
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		never, err1 := Irecv(w, make([]int, 1), 0, 5)
		late, err2 := Irecv(w.WithContext(ctx), make([]int, 1), 1, 5)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		i, _, err := WaitAny(never, nil, late)
		if err := wantErr("WaitAny", err, ErrTimeout); err != nil || i != 2 {
			return fmt.Errorf("index %d: %w", i, err)
		}
		q, err := Iallreduce(d.WithContext(ctx), []int{1}, make([]int, 1), Sum)
		if err != nil {
			return err
		}
		_, err = q.Wait()
		if err := errors.Join(wantErr("iallreduce", err, ErrTimeout), isOp(err, "iallreduce")); err != nil {
			return err
		}
		if err := wantErr("the next", d.Barrier(), ErrBroken); err != nil {
			return err
		}
		if err := never.Cancel(); err != nil {
			return err
		}
		if _, err := never.Wait(); !errors.Is(err, ErrCanceled) {
			return err
		}
		return Send(w, []int{0}, 1, 0)
	})
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

// Nonblocking collectives remain under way while blocking and nonblocking ones run on the same
// communicator.
func TestNonblockingCollectivesOverlapBlocking(t *testing.T) {
	for _, how := range []string{"native", "schedule"} {
		withEnv(t, "COHORT_COLLECTIVES="+how)
		ranks(t, 4, func(w *Comm) error {
			p, err := AllreduceInit(w, []int{1}, make([]int, 1), Sum)
			if err != nil {
				return err
			}
			for round := range 50 {
				const many = 5
				reqs := make([]*Request, many)
				sums := make([][]int, many)
				if round%4 == w.Rank() { // some start it early and some late
					err = p.Start()
				}
				for i := range reqs {
					sums[i] = make([]int, 40)
					send := make([]int, 40)
					for j := range send {
						send[j] = i + j*w.Rank()
					}
					if err == nil {
						reqs[i], err = Iallreduce(w, send, sums[i], Sum)
					}
					if err == nil {
						err = w.Barrier()
					}
				}
				if err == nil && round%4 != w.Rank() {
					err = p.Start()
				}
				if err := errors.Join(err, WaitAll(reqs...), WaitAllPersistent(p)); err != nil {
					return err
				}
				for i, s := range sums {
					for j, got := range s {
						if want := 4*i + 6*j; got != want {
							return fmt.Errorf("%s, round %d, operation %d: element %d is %d, want %d", how, round, i, j, got, want)
						}
					}
				}
			}
			return nil
		})
	}
}
