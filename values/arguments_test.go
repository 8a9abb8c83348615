package values_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
	"github.com/cohort-hpc/cohort/values"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a message that never comes is not awaited
		all := misuse.Package{
			Funcs: []any{
				values.Allgather[[]int], values.Allreduce[[]int], values.Alltoall[[]int], values.Bcast[[]int], values.Decode[[]int],
				values.Encode[[]int], values.Gather[[]int], values.Recv[[]int], values.Reduce[[]int], values.Scatter[[]int], values.Send[[]int],
			},
			Makes: []func() any{
				func() any { return ctx },
				func() any { return w.WithContext(ctx) },
			},
		}
		all.Call(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
