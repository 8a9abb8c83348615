package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/file"
	"github.com/cohort-hpc/cohort/internal/test/misuse"
)

// TestMisuseIsAnError calls everything with arguments that nobody means.
func TestMisuseIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a message that never comes is not awaited
		var f *file.File
		name := filepath.Join(t.TempDir(), "f")
		open := func() any {
			if _, err := f.Size(); err != nil { // it is not open, or not any more
				if f, err = file.Open(w, name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
					t.Error(err)
				}
			}
			return f
		}
		defer func() { f.Close() }()
		all := misuse.Package{
			Funcs: []any{file.Bytes[int], file.ReadNpy[int], file.ReadView[int], file.WriteNpy[int], file.WriteView[int], file.Open, file.ReadNpyHeader},
			Makes: []func() any{
				func() any { return ctx },
				func() any { return w.WithContext(ctx) },
				open,
				func() any { return &file.Error{} },
				func() any { return cohort.Vector(1, 1, 1) },
			},
		}
		all.Call(t)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
