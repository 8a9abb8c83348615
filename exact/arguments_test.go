package exact_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a message that never comes is not awaited
		all := misuse.Package{
			Funcs: []any{exact.New[float32], exact.Sum[float64], exact.Dot[float64]},
			Makes: []func() any{
				func() any { return w.WithContext(ctx) },
				func() any { return exact.New[float32](1) },
				func() any { return exact.New[float64](2000) },
			},
		}
		all.Call(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
