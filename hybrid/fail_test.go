package hybrid

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

var errTest = errors.New("broken for the test")

// failingWriter takes nothing.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errTest }

// A step that fails on one rank fails on all. The error names the step, the rank and the reason,
// and all ranks undo the steps taken.
func TestStepFailureFailsAllRanks(t *testing.T) {
	made, l := &log{}, &log{}
	workspaces := func(fails func(worker int) error) func(*Config, *tools) {
		return func(c *Config, _ *tools) {
			c.Threads = 2
			c.Workspace = func(worker int) (any, error) {
				err := fails(worker)
				if err == nil {
					made.add("workspace %d", worker)
				}
				return &closer{l, worker, nil}, err
			}
		}
	}
	never := func(int) error { return nil }
	for _, k := range []struct {
		step   string
		rank   int
		change func(*Config, *tools) // on the rank that fails
		others func(*Config, *tools) // nil: nothing
		is     error                 // the failing rank's
		text   string                // in every rank's
		least  int                   // workspaces that were made, at least, and closed
	}{
		{StepTopology, 1, func(_ *Config, with *tools) {
			with.here = func() (*topo.Node, error) { return nil, errTest }
		}, nil, errTest, "broken", 0},
		{StepPool, 1, func(c *Config, _ *tools) { c.Threads = -1 }, nil, cohort.ErrInit, "-1 threads", 0},
		{StepPool, 2, func(c *Config, _ *tools) { c.Pin = "sideways" }, nil, cohort.ErrInit, `"sideways"; want none, cores or numa`, 0},
		{StepSolvers, 1, func(_ *Config, with *tools) {
			with.quiet = func() ([]pool.Setting, error) { return nil, errTest }
		}, nil, errTest, "broken", 0},
		{StepWorkspaces, 1, workspaces(func(worker int) error {
			if worker == 1 {
				return errTest
			}
			return nil
		}), workspaces(never), errTest, "worker 1", 2 * 2},
		{StepWorkspaces, 0, workspaces(func(int) error { panic(errTest) }), workspaces(never), errTest, "panic", 2 * 2},
		{StepSummary, 0, func(c *Config, _ *tools) { c.Summary = failingWriter{} }, nil, errTest, "broken", 0},
	} {
		t.Run(fmt.Sprintf("%s %d", k.step, k.rank), func(t *testing.T) {
			made.lines, l.lines = nil, nil
			var mu sync.Mutex
			got := map[int]error{}
			err := cohort.Run(context.Background(), 3, func(w *cohort.Comm) error {
				cfg, with := &Config{}, machinery
				if w.Rank() == k.rank {
					k.change(cfg, &with)
				} else if k.others != nil {
					k.others(cfg, &with)
				}
				e := &Env{World: w}
				started, err := e.start(context.Background(), cfg, &with)
				mu.Lock()
				got[w.Rank()] = err
				mu.Unlock()
				if started != nil || err == nil {
					return errors.New("it started")
				}
				if e.Node != nil {
					if err := e.Node.Barrier(); !errors.Is(err, cohort.ErrClosed) {
						return fmt.Errorf("the node communicator: %v, want ErrClosed", err)
					}
				}
				if e.Pool != nil {
					if err := pool.ForEach(e.Pool, 1, func(int, int) error { return nil }); !errors.Is(err, cohort.ErrClosed) {
						return fmt.Errorf("the pool: %v, want ErrClosed", err)
					}
				}
				return w.Barrier() // which is as usable as before
			})
			if err != nil {
				t.Fatal(err)
			}
			for rank, err := range got {
				var s *StepError
				if !errors.As(err, &s) || s.Step != k.step || s.Rank != k.rank || s.Peer != (rank != k.rank) || !strings.Contains(err.Error(), k.text) ||
					!strings.Contains(err.Error(), fmt.Sprintf("hybrid: %s: rank %d: ", k.step, k.rank)) {
					t.Errorf("rank %d got %v, want step %s of rank %d, with %q", rank, err, k.step, k.rank, k.text)
				}
				if (rank == k.rank || k.is != errTest) && !errors.Is(err, k.is) {
					t.Errorf("rank %d got %v, want %v in it", rank, err, k.is)
				}
			}
			if len(made.lines) < k.least || len(l.lines) != len(made.lines) {
				t.Errorf("%d workspaces were made and %d closed, want at least %d", len(made.lines), len(l.lines), k.least)
			}
		})
	}
}

// Ranks that fail return their own errors. The others return that of the lowest failed rank.
func TestSeveralFailuresKeepOwnErrors(t *testing.T) {
	var mu sync.Mutex
	got := map[int]error{}
	cohort.Run(context.Background(), 4, func(w *cohort.Comm) error {
		cfg := &Config{}
		if w.Rank() >= 2 {
			cfg.Threads = -w.Rank()
		}
		_, err := Join(w, cfg)
		mu.Lock()
		got[w.Rank()] = err
		mu.Unlock()
		return err
	})
	for rank, want := range []string{"rank 2: pool: -2 threads", "rank 2: pool: -2 threads", "rank 2: pool: -2 threads", "rank 3: pool: -3 threads"} {
		if !strings.Contains(fmt.Sprint(got[rank]), want) {
			t.Errorf("rank %d got %v, want %q", rank, got[rank], want)
		}
	}
}

// A rank that is lost between two steps makes Start fail on the others.
func TestLostRankFailsStart(t *testing.T) {
	var mu sync.Mutex
	got := map[int]error{}
	cohort.Run(context.Background(), 3, func(w *cohort.Comm) error {
		if w.Rank() == 1 {
			if err := agree(w, failure{}); err != nil { // its part in the first exchange
				return err
			}
			return errTest
		}
		e, err := Join(w, nil)
		mu.Lock()
		got[w.Rank()] = err
		mu.Unlock()
		e.Close()
		return err
	})
	for _, rank := range []int{0, 2} {
		var s *StepError
		if err := got[rank]; !errors.As(err, &s) || s.Step != StepNode || !errors.Is(err, cohort.ErrPeerLost) || !strings.Contains(err.Error(), "rank 1") {
			t.Errorf("rank %d got %v, want ErrPeerLost in %s, naming rank 1", rank, err, StepNode)
		}
	}
}

// twoPerNode is a communicator on nodes of two ranks. That of node 0 breaks when it sends a message.
type twoPerNode struct{ backend.Comm }

func (c twoPerNode) NodeOf(rank int) int { return c.WorldRank(rank) / 2 }

func (c twoPerNode) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := c.Comm.Derive(b, members, id)
	return twoPerNode{d}, err
}

func (c twoPerNode) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if c.Size() == 2 && c.NodeOf(0) == 0 {
		c.Break(errTest)
	}
	c.Comm.Isend(r, buf, dest, tag, mode)
}

// If the ranks of one node cannot exchange their processors, Join fails on the other nodes too.
func TestNodeFailureFailsAllRanks(t *testing.T) {
	var all sync.WaitGroup
	for _, bc := range local.New(4) {
		all.Go(func() {
			w := (*cohort.Comm)(comm.NewWorld(context.Background(), twoPerNode{bc}, comm.Options{}))
			defer w.Close()
			_, err := Join(w, &Config{Threads: 1, KeepEnvironment: true})
			var s *StepError
			if !errors.As(err, &s) || s.Step != StepNode || !strings.Contains(err.Error(), errTest.Error()) {
				t.Errorf("rank %d got %v, want the error of node 0 in %s", w.Rank(), err, StepNode)
			}
			if err := w.Barrier(); err != nil {
				t.Errorf("rank %d: a barrier after Join: %v", w.Rank(), err)
			}
		})
	}
	all.Wait()
}

// An unknown backend is an error of the first step.
func TestUnknownBackendFailsFirstStep(t *testing.T) {
	_, err := Start(context.Background(), &Config{Job: &cohort.Config{Backend: "carrier pigeon"}})
	var s *StepError
	if !errors.As(err, &s) || s.Step != StepBackend || !errors.Is(err, cohort.ErrInit) || !strings.Contains(err.Error(), "carrier pigeon") {
		t.Errorf("got %v, want ErrInit in %s", err, StepBackend)
	}
	if _, err := Join(nil, nil); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("Join(nil): %v, want ErrComm", err)
	}
}

// A context that ends before the start or during a step is an error of the next step.
func TestEndedContextFailsNextStep(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	for _, step := range []string{StepSummary, StepBackend} { // the second time it has ended before
		_, err := Start(ctx, &Config{Workspace: func(int) (any, error) {
			cancel(errTest)
			return nil, nil
		}})
		var s *StepError
		if !errors.As(err, &s) || s.Step != step || !errors.Is(err, cohort.ErrCanceled) {
			t.Errorf("got %v, want ErrCanceled in %s", err, step)
		}
	}
	late, stop := context.WithTimeout(context.Background(), 0)
	defer stop()
	if _, err := Start(late, nil); !errors.Is(err, cohort.ErrTimeout) {
		t.Errorf("after a deadline: %v, want ErrTimeout", err)
	}
}

// A rank that waits for others in vain returns when its context ends.
func TestStartStopsWaitingWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got error
	over := make(chan struct{})
	err := cohort.Run(context.Background(), 2, func(w *cohort.Comm) error {
		if w.Rank() == 1 {
			cancel() // rank 0 is in the first exchange, or on its way there
			<-over
			return nil
		}
		defer close(over)
		_, got = Join(w.WithContext(ctx), nil)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var s *StepError
	if !errors.As(got, &s) || s.Step != StepPool || !errors.Is(got, cohort.ErrCanceled) {
		t.Errorf("got %v, want ErrCanceled", got)
	}
}

// The ranks exchange their processors: each learns which ranks share them, and the largest number
// of threads.
func TestFindPlaceCountsSharers(t *testing.T) {
	sets := []topo.CPUSet{{0, 1}, {64, 200}, {0, 1}, {0}, {64, 200}, {0, 1}}
	threads := []int{1, 9, 4, 7, 2, 3}
	// Those of 0 and 1 have one that is another's alone, and it one of theirs.
	want := []place{{0, 3, 4, true}, {0, 2, 9, false}, {1, 3, 4, true}, {0, 1, 7, true}, {1, 2, 9, false}, {2, 3, 4, true}}
	err := cohort.Run(context.Background(), len(sets), func(w *cohort.Comm) error {
		r := w.Rank()
		if got, err := findPlace(w, sets[r], threads[r]); err != nil || got != want[r] {
			return fmt.Errorf("rank %d: %+v (%v), want %+v", r, got, err, want[r])
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
