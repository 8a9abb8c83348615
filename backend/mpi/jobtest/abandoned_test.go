//go:build cgo && linux

package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
)

// readLateTool is a tool whose MPI_Allgatherv_c reads the displacements only after the rank reports
// that it has changed its own.
const readLateTool = `
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int MPI_Allgatherv_c(const void *s, MPI_Count n, MPI_Datatype st, void *r, const MPI_Count *counts, const MPI_Aint *displs, MPI_Datatype rt, MPI_Comm c) {
	char path[4096];
	snprintf(path, sizeof path, "%s/changed.%d", getenv("COHORT_TEST_SIGNS"), (int)getpid());
	for (int i = 0; i < 60000 && access(path, F_OK); i++) usleep(1000);
	printf("read %lld %lld\n", (long long)counts[1], (long long)displs[1]);
	fflush(stdout);
	return MPI_SUCCESS;
}
`

// TestAbandonedCollectiveKeepsItsCounts checks that an abandoned collective that the library still
// works on does not read counts and displacements that the caller may change again.
func TestAbandonedCollectiveKeepsItsCounts(t *testing.T) {
	skipShort(t, "an abandoned collective keeps its counts")
	const far = 1 << 31 // for the function that passes the arrays unchanged; the pages are not touched
	joins("abandoned counts", func(w *cohort.Comm) (err error) {
		if w.Rank() == 1 {
			return errors.Join(reached("changed", 1), w.Close())
		}
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		counts, displs := []int{1, 1}, []int{0, far}
		err = cohort.Allgatherv(w.WithContext(ctx), []byte{1}, make([]byte, far+1), counts, displs)
		if !errors.Is(err, cohort.ErrTimeout) {
			return fmt.Errorf("Allgatherv without rank 1: %v", err)
		}
		counts[1], displs[1] = 5, 7
		return errors.Join(sign("changed"), w.Close())
	})
	tool := compiledTool(t, "mpich", readLateTool)
	e := start(t, "mpich", 2, "abandoned counts", "LD_PRELOAD="+tool, signsVariable+"="+t.TempDir())
	if got, want := e.lines("read"), []string{fmt.Sprintf("1 %d", far)}; !slices.Equal(got, want) {
		t.Errorf("the library has read %q, want %q: status %d\n%s", got, want, e.status, e.out)
	}
}

// lateContext has ended once f returns.
type lateContext struct {
	context.Context
	f func() error
}

func (c lateContext) Err() error { return cmp.Or(c.f(), context.Canceled) }

// TestCollectiveThatIsCompleteAtItsDeadlineSucceeds checks that a collective returns nil if it completes just before its
// limit ends: then the other ranks have left it too, and nothing is broken.
func TestCollectiveThatIsCompleteAtItsDeadlineSucceeds(t *testing.T) {
	program("completes late", func() error {
		c, err := mpi.Open(background, mpi.Config{})
		if err != nil {
			return err
		}
		barrier := func(b *backend.Bound) error {
			return second(c.(backend.Collectives).Collective(b, &backend.Call{Coll: backend.Barrier}))
		}
		if c.Rank() == 1 {
			return errors.Join(reached("ends", 1), barrier(nil), c.Close())
		}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		before := runtime.NumGoroutine()
		err = barrier(&backend.Bound{Ctx: lateContext{ctx, func() error {
			err := sign("ends")
			for runtime.NumGoroutine() > before { // the one that makes the call
				time.Sleep(time.Millisecond) // poll
			}
			return err
		}}})
		return errors.Join(err, c.Broken(), c.Close())
	})
	matrix(t, []string{"barrier"}, func(t *testing.T, library, _ string) {
		start(t, library, 2, "completes late", signsVariable+"="+t.TempDir()).must(t)
	})
}
