package comm

import (
	"context"
	"errors"
	"testing"

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
	k.life.leave()
	k.life.changes.Leave()
	bc.Break(fault(backend.ErrMismatch, "the test"))
	check(Broken, backend.ErrBroken)
	if err := k.life.take(); err != nil { // Agree and Shrink work
		t.Error(err)
	}
	if !k.life.quiesce() || k.life.quiesce() {
		t.Error("not exactly one Close begins")
	}
	check(Closed, backend.ErrClosed)
	for name, err := range map[string]error{"take": k.life.take(), "beginChange": k.life.beginChange()} {
		if err != errClosed {
			t.Errorf("%s during Close: %v", name, err)
		}
	}
	if k.life.takeLast() {
		t.Error("Close takes a communicator that is taken")
	}
	_ = bc.Close()
}
