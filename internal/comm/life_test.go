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
	check := func(state string, want error) {
		t.Helper()
		if err := k.refuse(nil); !errors.Is(err, want) {
			t.Errorf("%s: refuse returns %v, want %v", state, err, want)
		}
	}
	check("open", nil)
	if err := k.life.take(); err != nil {
		t.Error(err)
	}
	if err := k.life.take(); err != errBusy {
		t.Errorf("take of a communicator that is taken: %v", err)
	}
	if !k.life.changes.Enter() { // at the same time
		t.Error("no change begins")
	}
	k.life.leave()
	k.life.changes.Leave()
	bc.Break(fault(backend.ErrMismatch, "the test"))
	check("broken", backend.ErrBroken)
	if err := k.life.take(); err != nil { // Agree and Shrink work
		t.Error(err)
	}
	if !k.life.quiesce() || k.life.quiesce() {
		t.Error("not exactly one Close begins")
	}
	check("closed", backend.ErrClosed)
	if err := k.life.take(); err != errClosed {
		t.Errorf("take during Close: %v", err)
	}
	if k.life.changes.Enter() {
		t.Error("a change begins during Close")
	}
	if k.life.takeLast() {
		t.Error("Close takes a communicator that is taken")
	}
	_ = bc.Close()
}
