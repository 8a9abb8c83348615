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

// blindTool is a tool whose function in FAILS fails on rank 0 once the file in FAILS_AT exists.
const blindTool = `
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *name) {
	const char *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
	return rank && !strcmp(rank, "0") && !strcmp(getenv("FAILS"), name) && !access(getenv("FAILS_AT"), F_OK);
}

int MPI_Testsome(int n, MPI_Request q[], int *done, int at[], MPI_Status st[]) {
	return fails("Testsome") ? MPI_ERR_OTHER : PMPI_Testsome(n, q, done, at, st);
}

int MPI_Iprobe(int source, int tag, MPI_Comm c, int *flag, MPI_Status *st) {
	return fails("Iprobe") ? MPI_ERR_OTHER : PMPI_Iprobe(source, tag, c, flag, st);
}

int MPI_Improbe(int source, int tag, MPI_Comm c, int *flag, MPI_Message *m, MPI_Status *st) {
	return fails("Improbe") ? MPI_ERR_OTHER : PMPI_Improbe(source, tag, c, flag, m, st);
}
`

// TestFailedLookEndsOperations has two receives wait when the library begins to fail where cohort asks it for what has come.
// The requests end with the library's error, not at the deadline.
func TestFailedLookEndsOperations(t *testing.T) {
	joins("blind", func(w *cohort.Comm) error {
		if w.Rank() == 1 {
			select {} // until rank 0 aborts the job
		}
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		c := w.WithContext(ctx)
		requests := []*cohort.Request{must.Get(cohort.Irecv(c, make([]byte, 8), 1, 1)), must.Get(cohort.Irecv(c, make([]byte, 8), 1, 2))}
		file := must.Get(os.Create(os.Getenv("FAILS_AT")))
		for _, q := range requests {
			_, err := q.Wait()
			fmt.Fprintln(file, errors.Is(err, cohort.ErrBroken), err) // a launcher may drop the output of a job that is aborted
		}
		return w.Abort(1)
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledTool(t, name, blindTool)
		looks := map[string]string{"mpich": "Testsome", "openmpi": "Iprobe"}[name] // at what has come for a receive
		for _, f := range []string{looks, "Improbe"} {
			t.Run(f, func(t *testing.T) {
				at := filepath.Join(t.TempDir(), "ends")
				e := start(t, name, 2, "blind", "LD_PRELOAD="+tool, "FAILS="+f, "FAILS_AT="+at)
				ends, err := os.ReadFile(at)
				if err != nil || strings.Count("\n"+string(ends), "\ntrue ") != 2 {
					t.Errorf("not both requests ended with ErrBroken: %v\n%s%s", err, ends, e.out)
				}
			})
		}
	})
}
