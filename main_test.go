package cohort

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestMain(m *testing.M) { os.Exit(leak.Run(m)) }

// ranks runs body as n ranks and fails the test with their errors. Functions of package must end a rank.
func ranks(t *testing.T, n int, body func(w *Comm) error) {
	t.Helper()
	if err := Run(context.Background(), n, must.Return(body)); err != nil {
		t.Fatal(err)
	}
}

// allocates fails the test if call, which all ranks of w make, allocates more than most times on all of them together.
func allocates(t *testing.T, w *Comm, most float64, what string, call func() error) {
	t.Helper()
	const warm, runs = 50, 200
	again := func() { must.OK(call()) }
	for range warm { // pools and caches fill
		again()
	}
	if w.Rank() > 0 {
		for range runs + 1 { // AllocsPerRun makes one more
			again()
		}
	} else if n := testing.AllocsPerRun(runs, again); n > most+0.5 && !racing { // the race detector drops pooled objects
		t.Errorf("%s: %v allocations by all ranks together, want at most %v", what, n, most)
	}
}

// wantErr returns an error unless err wraps all of the sentinels.
func wantErr(what string, err error, sentinels ...error) error {
	for _, s := range sentinels {
		if !errors.Is(err, s) {
			return fmt.Errorf("%s: got %v, want %v", what, err, s)
		}
	}
	return nil
}

// isOp returns an error unless err is an OpError of the operation.
func isOp(err error, op string) error {
	var o *OpError
	if !errors.As(err, &o) {
		return fmt.Errorf("%v is no OpError", err)
	}
	if o.Op != op {
		return fmt.Errorf("the operation is %q, want %q", o.Op, op)
	}
	return nil
}

var racing bool // set by race_test.go
