//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// holdTool is a tool that holds a rank in front of the calls that make a communicator, or make or free a window. It does
// so while the rank has set HOLD, until there is a file of that name. A rank that is stopped there does the same.
const holdTool = `
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>
static void hold(void) {
	for (const char *f; (f = getenv("HOLD")) && access(f, F_OK);) usleep(1000);
}
int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *made) { hold(); return PMPI_Comm_create_group(c, g, tag, made); }
int MPI_Win_free(MPI_Win *w) { hold(); return PMPI_Win_free(w); }
int MPI_Win_allocate_shared(MPI_Aint n, int d, MPI_Info i, MPI_Comm c, void *p, MPI_Win *w) { hold(); return PMPI_Win_allocate_shared(n, d, i, c, p, w); }
int MPI_Win_allocate_shared_c(MPI_Aint n, MPI_Aint d, MPI_Info i, MPI_Comm c, void *p, MPI_Win *w) { return MPI_Win_allocate_shared(n, d, i, c, p, w); }
`

// TestDeadlineEndsCallsThatWaitInLibrary checks that a rank returns at its deadline from a call that makes a communicator,
// or makes or closes a window, while another rank does not come out of the library. When that rank goes on, both leave.
func TestDeadlineEndsCallsThatWaitInLibrary(t *testing.T) {
	calls := map[string]func(c *cohort.Comm, w *cohort.Window[int]) error{
		"Dup":       func(c *cohort.Comm, _ *cohort.Window[int]) error { return second(c.Dup()) },
		"NewWindow": func(c *cohort.Comm, _ *cohort.Window[int]) error { return second(cohort.NewWindow[int](c, 1)) },
		"Close":     func(_ *cohort.Comm, w *cohort.Window[int]) error { return w.Close() },
	}
	joins("held", func(world *cohort.Comm) error {
		d := must.Get(world.Dup())
		win, err := cohort.NewWindow[int](d, 1)
		if err = errors.Join(err, world.Barrier()); err != nil {
			return err
		}
		call, goOn, limit := calls[os.Getenv("CALL")], filepath.Join(os.Getenv(signsVariable), "go"), time.Minute
		if world.Rank() == 0 {
			os.Setenv("HOLD", goOn)
		} else {
			limit = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(background, limit)
		defer cancel()
		begun := time.Now()
		err = call(d.WithContext(ctx), win.WithContext(ctx))
		took := time.Since(begun)
		if world.Rank() == 1 {
			if !errors.Is(err, cohort.ErrTimeout) || took > 30*time.Second {
				return fmt.Errorf("after %v: got %v, want ErrTimeout", took, err)
			}
			err = os.WriteFile(goOn, nil, 0o600)
		} else if took > 30*time.Second {
			return fmt.Errorf("the held rank took %v: %w", took, err)
		} else if errors.Is(err, cohort.ErrTimeout) || errors.Is(err, cohort.ErrBroken) { // as rank 1 has told it
			err = nil
		}
		return errors.Join(err, world.Barrier(), d.Close(), world.Close())
	})
	// At serialized a rank that is in the library makes no other call, so only Close, which makes none, has a deadline.
	rows := []string{"multiple, Close", "multiple, Dup", "serialized, Close", "multiple, NewWindow"}
	if testing.Short() {
		rows = rows[:2]
	}
	matrix(t, rows, func(t *testing.T, library, row string) {
		level, call, _ := strings.Cut(row, ", ")
		tool := compiledTool(t, library, holdTool)
		start(t, library, 2, "held", "COHORT_CHECK=1", "COHORT_MPI_THREAD="+level, "CALL="+call, "LD_PRELOAD="+tool, signsVariable+"="+t.TempDir()).must(t)
	})
}
