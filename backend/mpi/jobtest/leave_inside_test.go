//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// slowTool is a tool that delays calls by their tag minus 1000 milliseconds, as a busy machine may.
// It also delays calls that free, if LATE_FREE is set. It leaves a sign for calls that free, for
// barriers, and for receives with tag 7; see reached.
const slowTool = `
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void sign(const char *call) {
	char path[4096];
	if (!getenv("COHORT_TEST_SIGNS")) return;
	snprintf(path, sizeof path, "%s/%s.%d", getenv("COHORT_TEST_SIGNS"), call, (int)getpid());
	close(open(path, O_CREAT | O_WRONLY, 0600));
}
static void late(int tag) { if (tag > 1000 && tag < 2000) usleep((tag - 1000) * 1000); }
static void late_free(const char *call) { sign(call); if (getenv("LATE_FREE")) usleep(100000); }
int MPI_Comm_free(MPI_Comm *c) { late_free("comm_free"); return PMPI_Comm_free(c); }
int MPI_Win_free(MPI_Win *w) { late_free("win_free"); return PMPI_Win_free(w); }
int MPI_Barrier(MPI_Comm c) { sign("barrier"); return PMPI_Barrier(c); }
int MPI_Recv(void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Status *s) { if (tag == 7) sign("receive"); return PMPI_Recv(b, n, t, r, tag, c, s); }
int MPI_Mprobe(int r, int tag, MPI_Comm c, MPI_Message *m, MPI_Status *s) { if (tag == 7) sign("receive"); return PMPI_Mprobe(r, tag, c, m, s); }
int MPI_Issend(const void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q) { late(tag); return PMPI_Issend(b, n, t, r, tag, c, q); }
int MPI_Irecv(void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q) { late(tag); return PMPI_Irecv(b, n, t, r, tag, c, q); }
int MPI_Isend(const void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q) { late(tag); return PMPI_Isend(b, n, t, r, tag, c, q); }
int MPI_Improbe(int r, int tag, MPI_Comm c, int *f, MPI_Message *m, MPI_Status *s) { late(tag); return PMPI_Improbe(r, tag, c, f, m, s); }
int MPI_Iprobe(int r, int tag, MPI_Comm c, int *f, MPI_Status *s) { late(tag); return PMPI_Iprobe(r, tag, c, f, s); }
`

// signsVariable holds the folder of the signs.
const signsVariable = "COHORT_TEST_SIGNS"

// sign leaves the sign that this process has reached a point.
func sign(point string) error {
	return os.WriteFile(filepath.Join(os.Getenv(signsVariable), fmt.Sprintf("%s.%d", point, os.Getpid())), nil, 0o600)
}

// reached waits until that many processes have reached a point.
func reached(point string, processes int) error {
	for end := time.Now().Add(patience / 2); ; time.Sleep(time.Millisecond) { // poll
		switch signs, err := filepath.Glob(filepath.Join(os.Getenv(signsVariable), point+".*")); {
		case err != nil || len(signs) == processes:
			return err
		case time.Now().After(end):
			return fmt.Errorf("%d of %d ranks have reached %s", len(signs), processes, point)
		}
	}
}

// TestCloseWaitsForCallsInProgress checks that a communicator is not freed, nor MPI finalized,
// while another goroutine is about to use it.
func TestCloseWaitsForCallsInProgress(t *testing.T) {
	skipShort(t, "Close while calls are in the library")
	type call struct {
		name string // in a stack
		do   func(c *cohort.Comm, tag int) error
	}
	// during closes in the middle of a call that takes a while.
	during := func(c *cohort.Comm, late time.Duration, call call) error {
		ended := make(chan error, 1)
		go func() { ended <- call.do(c, 1000+int(late/time.Millisecond)) }()
		inside.Wait(call.name)
		if err := c.Close(); err != nil {
			return fmt.Errorf("Close: %w", err)
		}
		if err := <-ended; !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("a call during Close: got %v, want ErrClosed", err)
		}
		return nil
	}
	calls := []call{
		{"cohort.Irecv[...]", func(c *cohort.Comm, tag int) error {
			return waited(cohort.Irecv(c, make([]int, 1), cohort.AnySource, tag))
		}},
		{"cohort.Issend[...]", func(c *cohort.Comm, tag int) error {
			return waited(cohort.Issend(c, make([]int, 1), c.Rank(), tag))
		}},
		{"(*Comm).Iprobe", func(c *cohort.Comm, tag int) error {
			for {
				if _, _, err := c.Iprobe(cohort.AnySource, tag); err != nil {
					return err
				}
			}
		}},
	}
	joins("inside", func(w *cohort.Comm) error {
		for _, call := range calls {
			for _, late := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
				d := must.Get(w.Dup())
				if err := during(d, late, call); err != nil {
					return fmt.Errorf("%s, %v: %w", call.name, late, err)
				}
				must.OK(traffic(w, 3))
			}
		}
		return during(w, 200*time.Millisecond, calls[0])
	})
	// Send a message that nobody receives while the world is closed.
	joins("owes", func(w *cohort.Comm) (err error) {
		err = during(w, 200*time.Millisecond, calls[1])
		w = nil
		for range 2 {
			runtime.GC() // of what is pinned
		}
		if errors.Is(err, cohort.ErrBroken) && strings.Contains(err.Error(), "MPI_Finalize") {
			return nil // the world's Close waits for the message
		}
		return err
	})
	// Other goroutines close what the world's Close closes too.
	joins("frees", func(w *cohort.Comm) error {
		d := must.Get(w.Dup())
		win := must.Get(cohort.AllocateShared[int](w, 1))
		ended := make(chan error, 2)
		go func() { ended <- d.Close() }()
		go func() { ended <- win.Close() }()
		must.OK(errors.Join(reached("comm_free", 2), reached("win_free", 2)))
		return errors.Join(w.Close(), <-ended, <-ended)
	})
	// One rank closes the world while it waits for the other to close a window.
	joins("meets", func(w *cohort.Comm) error {
		win := must.Get(cohort.AllocateShared[int](w, 1))
		must.Get(cohort.AllocateShared[int](w, 1)) // left to Close
		ended := make(chan error, 2)
		if w.Rank() == 1 {
			return errors.Join(reached("closed", 1), win.Close(), w.Close())
		}
		go func() { ended <- win.Close() }()
		must.OK(reached("barrier", 1))
		go func() {
			for {
				if _, _, err := w.Iprobe(cohort.AnySource, 9); err != nil {
					ended <- sign("closed")
					return
				}
			}
		}()
		return errors.Join(w.Close(), <-ended, <-ended)
	})
	// One rank ends the job without closing a window that the other closes.
	program("drops", func() error {
		c, err := mpi.Open(background, mpi.Config{})
		if err != nil {
			return err
		}
		mem, err := c.(backend.Sharing).Share(nil, 1, func(mine string) ([]string, error) { return []string{mine}, nil })
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			return mem.Close(nil) // the job ends before
		}
		return c.Close()
	})
	// Operations that can end early do so.
	joins("listens", func(w *cohort.Comm) error {
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		c := w.WithContext(ctx)
		ended := make(chan error)
		for _, wait := range []func() error{
			func() error { return second(cohort.Recv(c, make([]int, 1), cohort.AnySource, 7)) },
			func() error { return second(c.Probe(cohort.AnySource, 8)) },
		} {
			go func() { ended <- wait() }()
		}
		inside.Wait("cohort.Recv[...]")
		inside.Wait("(*Comm).Probe")
		closed := w.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, cohort.ErrClosed) {
				return fmt.Errorf("a call that waits during Close: got %v, want ErrClosed", err)
			}
		}
		return closed
	})
	// A blocking receive without a message stays in the library and cannot be ended.
	joins("stays", func(w *cohort.Comm) (err error) {
		go cohort.Recv(w, make([]int, 1), cohort.AnySource, 7)
		if err := reached("receive", 2); err != nil {
			return err
		}
		begun := time.Now()
		err = w.Close()
		if took := time.Since(begun); took > patience {
			return fmt.Errorf("Close took %v", took)
		}
		return err
	})
	// An abandoned barrier ends once the others join it.
	joins("returns", func(w *cohort.Comm) error {
		if w.Rank() == 0 {
			ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
			defer cancel()
			if err := w.WithContext(ctx).Barrier(); !errors.Is(err, cohort.ErrTimeout) {
				return fmt.Errorf("a barrier that the other rank has not come to: %v", err)
			}
			return errors.Join(sign("given_up"), w.Close())
		}
		return errors.Join(reached("given_up", 1), w.Barrier(), w.Close())
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledTool(t, name, slowTool)
		signs := func() string { return signsVariable + "=" + t.TempDir() }
		start(t, name, 2, "inside", "LD_PRELOAD="+tool).must(t)
		start(t, name, 2, "owes", "LD_PRELOAD="+tool).must(t)
		start(t, name, 2, "frees", "LD_PRELOAD="+tool, "LATE_FREE=1", signs()).must(t)
		start(t, name, 2, "meets", "LD_PRELOAD="+tool, signs()).must(t)
		start(t, name, 2, "drops").failed(t, "MPI_Finalize has not returned", "a window is not freed")
		start(t, name, 2, "listens").must(t)
		start(t, name, 2, "returns", signs()).must(t)
		start(t, name, 2, "stays", "LD_PRELOAD="+tool, signs()).failed(t, "MPI is not finalized", "blocking call")
	})
}
