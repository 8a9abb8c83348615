package hybrid

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// log collects what happens, in order.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// closer is a workspace that tells when it is closed, and fails if it is to.
type closer struct {
	l      *log
	worker int
	err    error
}

func (c *closer) Close() error {
	c.l.add("workspace %d", c.worker)
	return c.err
}

// In a single process without a launcher the world has one rank, and all steps are taken.
func TestStartWithoutLauncherIsOneRank(t *testing.T) {
	t.Setenv("COHORT_THREADS", "3")
	t.Setenv("OMP_NUM_THREADS", "7")
	t.Setenv("MKL_NUM_THREADS", "")
	var out strings.Builder
	e, err := Start(context.Background(), &Config{
		Summary:   &out,
		Workspace: func(worker int) (any, error) { return 10 * worker, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.World.Size() != 1 || e.Node.Size() != 1 || e.Pool.Workers() != 3 || e.LocalRank != 0 || e.LocalSize != 1 {
		t.Errorf("%d ranks, %d on the node, %d workers, local rank %d of %d; want 1, 1, 3, 0 of 1",
			e.World.Size(), e.Node.Size(), e.Pool.Workers(), e.LocalRank, e.LocalSize)
	}
	if e.Topology.Backend != "local" || len(e.Topology.Hosts) != 1 || len(e.Machine.CPUs) == 0 {
		t.Errorf("topology %v, machine %v", e.Topology, e.Machine)
	}
	err = pool.ForEachWorker(e.Pool, func(worker int) error {
		if got := e.Workspaces.At(worker); got != 10*worker {
			return fmt.Errorf("its workspace is %v", got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := os.Getenv("MKL_NUM_THREADS"); got != "1" || os.Getenv("OMP_NUM_THREADS") != "7" {
		t.Errorf("MKL_NUM_THREADS is %q, want 1; OMP_NUM_THREADS %q, want the user's 7", got, os.Getenv("OMP_NUM_THREADS"))
	}
	line := out.String()
	for _, want := range []string{"1 rank on 1 node: ", "3 threads per rank, not pinned", "; local", "OMP_NUM_THREADS=7 (not 1"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in the summary %q", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") || line != e.Summary.String()+"\n" {
		t.Errorf("the summary is %q, want one line, that of Env.Summary: %q", line, e.Summary)
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if err := e.World.Barrier(); !errors.Is(err, cohort.ErrClosed) {
		t.Errorf("the world after Close: %v, want ErrClosed", err)
	}
}

// Start accepts a nil Config, and Close a nil Env.
func TestStartAcceptsNilConfig(t *testing.T) {
	e := must.Get(Start(context.Background(), nil))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := (*Env)(nil).Close(); err != nil {
		t.Errorf("Close of nil: %v", err)
	}
}

// Ranks that are goroutines share the processors of the process.
func TestJoinDividesSharedProcessors(t *testing.T) {
	var out strings.Builder
	err := cohort.Run(context.Background(), 3, func(w *cohort.Comm) error {
		e, err := Join(w, &Config{Threads: 2, Pin: pool.Cores, Summary: &out, KeepEnvironment: true})
		if err != nil {
			return err
		}
		if e.LocalRank != w.Rank() || e.LocalSize != 3 || e.Node.Size() != 3 || e.Node.Rank() != w.Rank() || e.Solvers != nil {
			return fmt.Errorf("rank %d: place %d of %d, %d on the node, solvers %v", w.Rank(), e.LocalRank, e.LocalSize, e.Node.Size(), e.Solvers)
		}
		plan, err := e.Machine.Plan(3, 2, topo.Cores)
		if err != nil {
			return err
		}
		share := plan.Sets[w.Rank()]
		if err := pool.ForEachWorker(e.Pool, func(worker int) error {
			status, err := os.ReadFile("/proc/thread-self/status")
			if want := "Cpus_allowed_list:\t" + share[worker].String() + "\n"; err == nil && !strings.Contains(string(status), want) {
				return fmt.Errorf("rank %d: %s does not say %q", w.Rank(), status, want)
			}
			return nil
		}); err != nil {
			return err
		}
		mine, all := []int64{0, 0}, []int64{0, 0}
		if err := pool.ForEachWorker(e.Pool, func(worker int) error { mine[worker] = 1; return nil }); err != nil {
			return err
		}
		if err := cohort.Allreduce(e.World, mine, all, cohort.Sum); err != nil || all[0]+all[1] != 6 {
			return fmt.Errorf("%v workers in all (%v), want 6", all, err)
		}
		if err := e.Close(); err != nil {
			return err
		}
		// The world is not Join's to close; the rest is.
		if err := e.Node.Barrier(); !errors.Is(err, cohort.ErrClosed) {
			return fmt.Errorf("the node communicator after Close: %v, want ErrClosed", err)
		}
		return w.Barrier()
	})
	if runtime.GOOS != "linux" {
		if !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("got %v, want ErrNotSupported", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "3 ranks on 1 node") || !strings.Contains(got, "2 threads per rank pinned to cores (rank 0: ") {
		t.Errorf("the summary is %q, want one line of rank 0", got)
	}
}

// If ranks differ in their number of threads, the plan has room for the largest.
func TestJoinAcceptsDifferentThreadCounts(t *testing.T) {
	var out strings.Builder
	err := cohort.Run(context.Background(), 3, func(w *cohort.Comm) error {
		e, err := Join(w, &Config{Threads: 1 + w.Rank(), Pin: pool.None, Summary: &out})
		if err != nil {
			return err
		}
		defer e.Close()
		if e.Pool.Workers() != 1+w.Rank() {
			return fmt.Errorf("%d workers on rank %d", e.Pool.Workers(), w.Rank())
		}
		return nil
	})
	if err != nil || !strings.Contains(out.String(), "1 thread per rank") || !strings.Contains(out.String(), "ranks have 1 to 3 threads") {
		t.Errorf("%v; the summary is %q", err, out.String())
	}
}

// More threads than processors work, and the summary notes it.
func TestMoreThreadsThanProcessorsIsNoted(t *testing.T) {
	var out strings.Builder
	n := 2*runtime.NumCPU() + 1
	policies := []pool.Pinning{pool.None}
	if runtime.GOOS == "linux" {
		policies = append(policies, pool.Cores, pool.NUMA)
	}
	for _, pin := range policies {
		out.Reset()
		e := must.Get(Start(context.Background(), &Config{Threads: n, Pin: pin, Summary: &out}))
		seen := make([]bool, n)
		if err := pool.ForEachWorker(e.Pool, func(worker int) error { seen[worker] = true; return nil }); err != nil || slices.Contains(seen, false) {
			t.Errorf("pinned to %s: workers %v (%v)", pin, seen, err)
		}
		if !strings.Contains(out.String(), "they take turns") {
			t.Errorf("pinned to %s: the summary does not say that %d threads take turns: %q", pin, n, out.String())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Close undoes the steps in reverse, each once, even if some fail.
func TestCloseUndoesStepsInReverse(t *testing.T) {
	l := &log{}
	broken := fmt.Errorf("broken: %w", cohort.ErrBusy) // of a workspace: the pool is not busy
	e, err := Start(context.Background(), &Config{
		Threads:   2,
		Workspace: func(worker int) (any, error) { return &closer{l, worker, broken}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range e.undo {
		u := &e.undo[len(e.undo)-1-i]
		f := u.f
		want = append(want, u.step)
		u.f = func() error {
			err := f()
			if u.step != StepWorkspaces {
				l.add("%s", u.step)
			}
			return err
		}
	}
	if !slices.Equal(want, []string{StepWorkspaces, StepPool, StepNode, StepBackend}) {
		t.Fatalf("what is taken back is %q", want)
	}
	err = e.Close()
	if !errors.Is(err, broken) || strings.Count(err.Error(), "broken") != 2 || !strings.Contains(err.Error(), "worker 1") {
		t.Errorf("got %v, want the errors of both workspaces", err)
	}
	slices.Sort(l.lines[:2]) // the workers are not in an order
	if got := fmt.Sprint(l.lines); got != "[workspace 0 workspace 1 thread pool node communicator backend]" {
		t.Errorf("closed in the order %s", got)
	}
	if err := e.Close(); err != nil || len(l.lines) != 5 {
		t.Errorf("the second Close: %v, and the log is %q", err, l.lines)
	}
}

// In a task of the pool, Close closes nothing and returns ErrBusy. It can be called again later.
func TestCloseInTaskIsErrBusy(t *testing.T) {
	for _, k := range []struct {
		name string
		run  func(p *pool.Pool, f func() error) error
	}{
		{"task", func(p *pool.Pool, f func() error) error {
			return pool.ForEach(p, 1, func(int, int) error { return f() })
		}},
		{"Run", (*pool.Pool).Run},
	} {
		l := &log{}
		e, err := Start(context.Background(), &Config{
			Threads: 2, Workspace: func(worker int) (any, error) { return &closer{l, worker, nil}, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := k.run(e.Pool, e.Close); !errors.Is(err, cohort.ErrBusy) {
			t.Errorf("%s: got %v, want ErrBusy", k.name, err)
		}
		if err := e.World.Barrier(); err != nil {
			t.Errorf("%s: the world was closed: %v", k.name, err)
		}
		if err := e.Close(); err != nil || len(l.lines) != 2 {
			t.Errorf("%s: Close later: %v; closed were %q", k.name, err, l.lines)
		}
	}
}

// A task may call Close while another goroutine's Close waits for the task.
func TestCloseDuringCloseIsErrBusy(t *testing.T) {
	for name, workspace := range map[string]func(int) (any, error){
		"pool": nil, "workspaces": func(worker int) (any, error) { return &closer{&log{}, worker, nil}, nil },
	} {
		e := must.Get(Start(context.Background(), &Config{Threads: 2, Workspace: workspace}))
		begun, closed := make(chan struct{}), make(chan error)
		last := &e.undo[len(e.undo)-1]
		wait := last.f
		last.f = func() error {
			close(begun)
			return wait()
		}
		err := pool.ForEach(e.Pool, 1, func(int, int) error {
			go func() { closed <- e.Close() }()
			<-begun
			return e.Close()
		})
		if !errors.Is(err, cohort.ErrBusy) {
			t.Errorf("%s: the task got %v, want ErrBusy", name, err)
		}
		if err := errors.Join(<-closed, e.Close()); err != nil {
			t.Errorf("%s: the first Close and a later one: %v", name, err)
		}
		if err := e.World.Barrier(); !errors.Is(err, cohort.ErrClosed) {
			t.Errorf("%s: the world after Close: %v, want ErrClosed", name, err)
		}
	}
}

// The program may already have closed the pool.
func TestCloseAcceptsClosedPool(t *testing.T) {
	l := &log{}
	e, err := Start(context.Background(), &Config{
		Threads: 2, Workspace: func(worker int) (any, error) { return &closer{l, worker, nil}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Pool.Close(), e.Close()); err != nil || len(l.lines) != 2 {
		t.Errorf("%v; closed were %q, want both workspaces", err, l.lines)
	}
}

// panicker is a workspace whose Close panics.
type panicker int

func (p panicker) Close() error { panic(fmt.Sprintf("workspace %d is in use", p)) }

// Close closes all workspaces even if this panics on every worker, or in its own goroutine after the pool's Close.
func TestCloseContinuesAfterPanicOfWorkspace(t *testing.T) {
	const threads = 4
	for _, early := range []bool{false, true} {
		e := must.Get(Start(context.Background(), &Config{
			Threads: threads, Workspace: func(worker int) (any, error) { return panicker(worker), nil },
		}))
		if early {
			must.OK(e.Pool.Close())
		}
		err := fmt.Sprint(e.Close())
		for worker := range threads {
			for _, want := range []string{fmt.Sprintf("worker %d: Close panicked in ", worker), fmt.Sprintf(": workspace %d is in use", worker)} {
				if !strings.Contains(err, want) {
					t.Errorf("the pool is closed %v: %s; want %q", early, err, want)
				}
			}
		}
	}
}
