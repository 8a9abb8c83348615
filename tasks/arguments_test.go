package tasks_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
	"github.com/cohort-hpc/cohort/tasks"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a message that never comes is not awaited
		all := misuse.Package{
			Funcs: []any{tasks.Map[int, int], tasks.MapUnordered[int, int]},
			Makes: []func() any{
				func() any { return ctx },
				func() any { return w.WithContext(ctx) },
				func() any { return &tasks.Error{} },
			},
		}
		all.Call(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
