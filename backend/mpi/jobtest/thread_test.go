//go:build cgo && linux

package jobtest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestConformanceSerialized runs the suite at a level that allows one call at a time, so that no
// call may wait inside the library.
func TestConformanceSerialized(t *testing.T) {
	skipShort(t, "the suite at thread level serialized")
	for _, name := range inTurn(t) {
		l := uncheckedLauncher(t, name)
		l.Label, l.Sizes = name+" serialized", []int{2}
		l.Env = append(l.Env, "COHORT_MPI_THREAD=serialized")
		t.Run(name, func(t *testing.T) { cohorttest.Test(t, l) })
	}
}

// TestSingleRankSendsToItself checks that a job of one rank can send from one goroutine to another.
func TestSingleRankSendsToItself(t *testing.T) {
	skipShort(t, "jobs of one rank")
	rank("alone", func(w *cohort.Comm) error {
		for i := range 10000 {
			n := []int{20, 1024}[i%2]
			ended := make(chan error, 1)
			go func() {
				_, err := cohort.Recv(w, make([]byte, n), 0, 5)
				ended <- err
			}()
			must.OK(cohort.Send(w, make([]byte, n), 0, 5))
			if err := <-ended; err != nil {
				return err
			}
		}
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) { start(t, name, 1, "alone").must(t) })
}

// atLevels runs a job at several thread levels, which its ranks report.
func atLevels(t *testing.T, library, program string, levels ...string) {
	for _, level := range levels {
		t.Run(library+"/"+level, func(t *testing.T) {
			e := start(t, library, 2, program, "COHORT_MPI_THREAD="+level).must(t)
			if got := e.lines("level"); !slices.Equal(got, []string{level, level}) {
				t.Errorf("the levels are %q", got)
			}
		})
	}
}

// receivesInCollective has a receive wait while the library has the thread: its message, which is long, is sent before
// the other rank comes to the barrier.
func receivesInCollective(w *cohort.Comm) error {
	n, me := w.Size(), w.Rank()
	for _, room := range []int{1, 100_000, 200_000} {
		in := make([]int, room)
		q, err := cohort.Irecv(w, in, (me+1)%n, 4)
		if err != nil {
			return err
		}
		out := make([]int, 100_000)
		out[0], out[len(out)-1] = me, me
		if me == 0 {
			if err := w.Barrier(); err != nil {
				return err
			}
		}
		if err := cohort.Send(w, out, (me+n-1)%n, 4); err != nil {
			return err
		}
		if me != 0 {
			if err := w.Barrier(); err != nil {
				return err
			}
		}
		switch st, err := q.Wait(); {
		case room == 1 && !errors.Is(err, cohort.ErrTruncate), room > 1 && err != nil:
			return fmt.Errorf("room for %d: %v", room, err)
		case room > 1 && (in[0] != (me+1)%n || in[len(out)-1] != (me+1)%n || cohort.Count[int](st) != len(out)):
			return fmt.Errorf("room for %d: got %d and %d at the ends, %d in all", room, in[0], in[len(out)-1], cohort.Count[int](st))
		}
	}
	return nil
}

// refusedElsewhere makes calls on a thread that may not call.
func refusedElsewhere(w *cohort.Comm) error {
	d, err := w.Dup()
	if err != nil {
		return err
	}
	q, err := cohort.Irecv(w, make([]int, 1), w.Rank(), 9)
	if err != nil {
		return err
	}
	errs := make(chan error, 10)
	go func() {
		defer close(errs)
		runtime.LockOSThread()
		check := func(what string, err error) {
			if !errors.Is(err, cohort.ErrInit) || !strings.Contains(err.Error(), "thread") {
				errs <- fmt.Errorf("%s on another thread: %v", what, err)
			}
		}
		check("send", cohort.Send(w, []int{1}, w.Rank(), 1))
		_, err := cohort.Recv(w, make([]int, 1), cohort.AnySource, cohort.AnyTag)
		check("recv", err)
		_, _, err = w.Iprobe(cohort.AnySource, cohort.AnyTag)
		check("iprobe", err)
		check("isend", waited(cohort.Isend(w, []int{1}, w.Rank(), 1)))
		// Collectives break the communicator: the others are in them.
		check("barrier", d.Barrier())
		_, err = d.Dup()
		check("dup", err)
	}()
	for e := range errs {
		err = errors.Join(err, e)
	}
	if err != nil {
		return err
	}
	// The calls of the right thread are not affected.
	send, err := cohort.Isend(w, []int{7}, w.Rank(), 9)
	if err != nil {
		return err
	}
	if err := cohort.WaitAll(q, send); err != nil {
		return err
	}
	return d.Close()
}

// TestOneThreadLevelsRejectOtherThreads checks the levels at which only the goroutine of Init may
// call: other threads get an error. What the right one may call is in TestRandomProgramsGiveRightResults. The conformance suite runs at the other
// levels, which are reported.
func TestOneThreadLevelsRejectOtherThreads(t *testing.T) {
	rank("alone", func(w *cohort.Comm) error {
		say("level %s", w.Caps().ThreadLevel)
		return errors.Join(receivesInCollective(w), refusedElsewhere(w), traffic(w, 5))
	})
	rank("level", func(w *cohort.Comm) error { say("level %s", w.Caps().ThreadLevel); return nil })
	joins("closed elsewhere", func(w *cohort.Comm) error {
		done := make(chan error)
		go func() { runtime.LockOSThread(); done <- w.Close() }()
		if err := <-done; !errors.Is(err, cohort.ErrInit) {
			return fmt.Errorf("close on another thread: %v", err)
		}
		say("refused")
		return errors.New("not closed")
	})
	for _, name := range inTurn(t) {
		atLevels(t, name, "alone", "single", "funneled")
		if !testing.Short() {
			atLevels(t, name, "level", "multiple", "serialized")
		}
		t.Run(name+"/closed elsewhere", func(t *testing.T) {
			start(t, name, 1, "closed elsewhere", "COHORT_MPI_THREAD=funneled").failed(t, "refused")
		})
	}
}

// lowering is a tool that makes the library grant a lower level than requested.
const lowering = `
#include <mpi.h>
#include <stdlib.h>
static int least(int l) { const char *s = getenv("LOWER"); return s && atoi(s) < l ? atoi(s) : l; }
int MPI_Init_thread(int *c, char ***v, int want, int *got) {
	int rc = PMPI_Init_thread(c, v, want, got);
	*got = least(*got);
	return rc;
}
int MPI_Query_thread(int *got) { int rc = PMPI_Query_thread(got); *got = least(*got); return rc; }
`

// TestLowerThreadLevelIsErrInit makes the library grant a lower level than requested. Init fails
// and names both levels.
func TestLowerThreadLevelIsErrInit(t *testing.T) {
	program("refused", initFails)
	inLibraries(t, func(t *testing.T, name string) {
		preload := "LD_PRELOAD=" + compiledTool(t, name, lowering)
		for _, c := range []struct{ asked, lower, given string }{
			{"multiple", "2", "serialized"}, {"multiple", "1", "funneled"}, {"funneled", "0", "single"},
		} {
			e := start(t, name, 2, "refused", preload, "LOWER="+c.lower, "COHORT_MPI_THREAD="+c.asked).must(t)
			e.has(t, "grants "+c.given+", and "+c.asked+" was requested", "COHORT_MPI_THREAD="+c.given)
			if len(e.lines("refused")) != 2 {
				t.Errorf("not both ranks fail: %s", e.out)
			}
		}
	})
}
