package comm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
)

// The test goes through all states and calls everything that depends on the state in each.
func TestStateDecidesWhatCanBegin(t *testing.T) {
	bc := local.New(1)[0]
	k := NewWorld(context.Background(), bc, Options{}).core
	check := func(want State, err error) {
		t.Helper()
		if got := k.state(); got != want {
			t.Errorf("state %d, want %d", got, want)
		}
		if got := k.refuse(nil); !errors.Is(got, err) {
			t.Errorf("state %d: refuse returns %v, want %v", want, got, err)
		}
	}
	check(Open, nil)
	if err := k.life.take(); err != nil {
		t.Error(err)
	}
	if err := k.life.take(); err != errBusy {
		t.Errorf("take of a communicator that is taken: %v", err)
	}
	if err := k.life.beginChange(); err != nil { // at the same time
		t.Error(err)
	}
	k.life.leave(taken + change)
	if w := k.life.word.Load(); w != 0 {
		t.Errorf("after leave: %#x", w)
	}
	bc.Break(fault(backend.ErrMismatch, "the test"))
	check(Broken, backend.ErrBroken)
	if err := k.life.take(); err != nil { // Agree and Shrink work
		t.Error(err)
	}
	if !k.life.quiesce() || k.life.quiesce() {
		t.Error("not exactly one Close begins")
	}
	check(Quiescing, backend.ErrClosed)
	for name, err := range map[string]error{"take": k.life.take(), "beginChange": k.life.beginChange()} {
		if err != errClosed {
			t.Errorf("%s during Close: %v", name, err)
		}
	}
	if k.life.takeLast(time.Now()) {
		t.Error("Close takes a communicator that is taken")
	}
	k.life.close()
	check(Closed, backend.ErrClosed)
	_ = bc.Close()
}

// Goroutines take a communicator and change it while another one closes it. Close sees no change under
// way, and none begins afterwards.
func TestNoChangeBeginsAfterQuiesce(t *testing.T) {
	for range 100 {
		var l life
		var under sync.WaitGroup
		for range 4 {
			under.Go(func() {
				for {
					err := l.take()
					if err == errBusy {
						continue
					}
					if err != nil {
						return
					}
					if l.beginChange() == nil {
						l.leave(change + taken)
					} else {
						l.leave(taken)
					}
				}
			})
		}
		if !l.quiesce() {
			t.Fatal("quiesce fails")
		}
		wait(time.Now().Add(time.Minute), func() bool { return l.word.Load() < change })
		if err := l.beginChange(); err != errClosed {
			t.Fatal(fmt.Errorf("a change begins during Close: %w", err))
		}
		under.Wait()
		if !l.takeLast(time.Now()) {
			t.Fatal("Close cannot take the communicator")
		}
	}
}
