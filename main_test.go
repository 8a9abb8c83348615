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
