package pool_test

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/misuse"
	"github.com/cohort-hpc/cohort/pool"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	p, err := pool.New(pool.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	locals, err := pool.NewLocals(p, func(worker int) (int, error) { return worker, nil })
	if err != nil {
		t.Fatal(err)
	}
	all := misuse.Package{
		Funcs: []any{pool.ForEach, pool.ForEachContext, pool.ForEachWorker, pool.Map[int], pool.NewLocals[int], pool.ParsePinning, pool.New, pool.QuietSolvers},
		Makes: []func() any{
			func() any { return context.Background() },
			func() any { return p },
			func() any { return locals },
			func() any { return &pool.PanicError{} },
			func() any { return &pool.TaskError{} },
			func() any { return pool.Config{} },
			func() any { return pool.Setting{} },
		},
		Panic: map[string]string{"Locals.At": "index out of range"},
	}
	all.Call(t)
}
