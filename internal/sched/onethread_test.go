package sched

import (
	"errors"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// Where only one thread may use the backend, a user's operation that ends its goroutine does not end the one that starts
// or advances the reduction: it may be in the middle of other work.
func TestGoexitSparesTheOnlyThread(t *testing.T) {
	o := &Op{r: &Runner{oneThread: true}, call: backend.Call{Op: &backend.Op{Code: backend.OpUser,
		Apply: func(_, _, _ []byte) { runtime.Goexit() }}}}
	o.data.o = o
	returned := false
	defer func() {
		if !returned {
			t.Error("the goroutine has ended")
		}
	}()
	err := o.data.land(&coll.Round{Local: []coll.Action{{Kind: coll.Reduction}}})
	returned = true
	if !errors.Is(err, backend.ErrOp) {
		t.Errorf("got %v, want ErrOp", err)
	}
}
