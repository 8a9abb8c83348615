package cohort

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/must"
)

var errMade = errors.New("made up")

func TestRunRejectsBadArguments(t *testing.T) {
	if err := Run(context.Background(), 0, func(*Comm) error { return nil }); !errors.Is(err, ErrCount) {
		t.Errorf("0 ranks: %v", err)
	}
	if err := Run(context.Background(), 2, nil); !errors.Is(err, ErrInit) {
		t.Errorf("no function: %v", err)
	}
}

func nilMap() map[int]int { return nil }

// noPath is an error whose methods panic.
var noPath error = (*fs.PathError)(nil)

// An error, a panic or runtime.Goexit on one rank ends the operations of the others and is the
// first of the errors.
func TestRunReturnsFirstFailureFirst(t *testing.T) {
	for _, c := range []struct {
		what string
		fail func() error
		text string
	}{
		{"error", func() error { return errMade }, "rank 2: made up"},
		{"panic", func() error { panic("by design") }, "rank 2: panic: by design"},
		{"panic with an error", func() error { panic(fmt.Errorf("wrapped: %w", errMade)) }, "rank 2: panic: wrapped: made up"},
		{"nil map", func() error { nilMap()[1] = 1; return nil }, "rank 2: panic: assignment to entry in nil map"},
		{"methods that panic", func() error { return noPath }, "rank 2: an error of type *fs.PathError panicked in io/fs.(*PathError).Error"},
		{"panic with such methods", func() error { panic(noPath) }, "rank 2: an error of type *cohort.panicError panicked in io/fs.(*PathError)."},
		{"Goexit", func() error { runtime.Goexit(); return nil }, "rank 2: peer lost: the rank's function did not return"},
	} {
		for _, op := range []string{"recv", "barrier", "later"} {
			lost := make([]error, 4)
			err := Run(context.Background(), 4, func(w *Comm) error {
				if w.Rank() == 2 {
					return c.fail()
				}
				switch op {
				case "recv":
					_, lost[w.Rank()] = Recv(w, make([]int, 1), 2, 0)
				case "barrier":
					lost[w.Rank()] = w.Barrier()
				case "later": // every operation from some time on
					for lost[w.Rank()] == nil {
						_, _, lost[w.Rank()] = w.Iprobe(w.Rank(), 0)
					}
				}
				return lost[w.Rank()]
			})
			if err == nil || !strings.HasPrefix(err.Error(), c.text) {
				t.Errorf("%s, %s: Run returns %v, want first %q", c.what, op, err, c.text)
			}
			for r, e := range lost {
				if r != 2 && (!errors.Is(e, ErrPeerLost) || !strings.Contains(e.Error(), "rank 2")) {
					t.Errorf("%s, %s: rank %d got %v", c.what, op, r, e)
				}
			}
			if strings.Contains(c.what, "error") && !errors.Is(err, errMade) {
				t.Errorf("%s: the cause is not in %v", c.what, err)
			}
			if c.what == "panic" && !strings.Contains(err.Error(), "run_test.go") {
				t.Errorf("the panic has no stack: %v", err)
			}
		}
	}
}

// expiring is a context whose deadline passes when done is closed.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e *expiring) Done() <-chan struct{} { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	err := Run(ctx, 2, func(w *Comm) error {
		if w.Rank() == 0 {
			cancel()
		}
		_, err := Recv(w, make([]int, 1), w.Rank(), 0) // which does not need the other
		return wantErr("recv", err, ErrCanceled)
	})
	if err != nil {
		t.Error(err)
	}
	late := &expiring{Context: context.Background(), done: make(chan struct{})}
	var ready sync.WaitGroup
	ready.Add(2)
	err = Run(late, 2, func(w *Comm) error {
		d, err := w.Dup() // which is under the same context
		if ready.Done(); err != nil {
			return err
		}
		if d.Rank() == 0 {
			ready.Wait()
			close(late.done)
		}
		_, err = Recv(d, make([]int, 1), d.Rank(), 0)
		return wantErr("recv", err, ErrTimeout)
	})
	if err != nil {
		t.Error(err)
	}
}

// COHORT_TIMEOUT limits each operation.
func TestRunHonorsTimeoutVariable(t *testing.T) {
	withEnv(t, "COHORT_TIMEOUT=20ms")
	ranks(t, 2, func(w *Comm) error {
		_, err := Recv(w, make([]int, 1), w.Rank(), 0)
		must.OK(wantErr("recv", err, ErrTimeout))
		q := must.Get(Irecv(w, make([]int, 1), w.Rank(), 0))
		_, err = q.Wait()
		must.OK(wantErr("irecv", err, ErrTimeout))
		if q, err = Irecv(w, make([]int, 1), w.Rank(), 0); err != nil {
			return err
		}
		for ok := false; !ok; {
			if _, ok, err = q.Test(); !ok && err != nil {
				return err
			}
		}
		return wantErr("test", err, ErrTimeout)
	})
}
