package pool

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/leak"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestMain fails if the tests leave goroutines behind, or a changed GOMAXPROCS.
func TestMain(m *testing.M) {
	processors := runtime.GOMAXPROCS(0)
	code := leak.Run(m)
	if n := runtime.GOMAXPROCS(0); code == 0 && n != processors {
		fmt.Fprintf(os.Stderr, "GOMAXPROCS is %d, and was %d\n", n, processors)
		code = 1
	}
	os.Exit(code)
}

// soon waits until a condition holds, or returns false after a generous time.
func soon(so func() bool) bool {
	for end := time.Now().Add(time.Minute); !so(); runtime.Gosched() {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// open starts a pool that is closed at the end of the test.
func open(t testing.TB, cfg Config) *Pool {
	t.Helper()
	p := must.Get(New(cfg))
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// env is an environment of the given names and values.
func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// TestPoolsAdjustGOMAXPROCS opens pools while the program changes GOMAXPROCS.
func TestPoolsAdjustGOMAXPROCS(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, k := range []struct {
		steps string // a, b: loops of pools of 1 and 2 workers; A, B: closing them; 7: the program sets GOMAXPROCS to 7
		want  int
	}{
		{"aA", before}, {"abAB", before}, {"abBA", before}, {"aabb", before + 3}, {"abA", before + 2}, {"7aA", 7},
		{"a7A", 7}, {"a7bA", 8}, {"a7bAB", 7}, {"ab7AB", 7}, {"7abAB", 7}, {"A", before}, {"aA7bB", 7},
	} {
		pools := map[rune]*Pool{'A': open(t, Config{Threads: 1}), 'B': open(t, Config{Threads: 2})}
		for _, step := range k.steps {
			switch p := pools[unicode.ToUpper(step)]; {
			case step == '7':
				runtime.GOMAXPROCS(7)
			case unicode.IsLower(step):
				if err := ForEach(p, 1, func(int, int) error { return nil }); err != nil {
					t.Fatal(err)
				}
			default:
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := runtime.GOMAXPROCS(0); n != k.want {
			t.Errorf("%s: GOMAXPROCS is %d, want %d", k.steps, n, k.want)
		}
		for _, p := range pools {
			p.Close()
		}
		runtime.GOMAXPROCS(before)
	}
}

func TestCloseWaitsForLoops(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	p := must.Get(New(Config{Threads: 3}))
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS is %d beside 3 workers that have had nothing to do, want %d", n, before)
	}
	// Close waits for running loops; waiting ones do not run.
	running, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	var ran atomic.Int32
	wg.Go(func() {
		if err := ForEach(p, 1, func(int, int) error {
			close(running)
			<-release
			ran.Add(1)
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-running
	if n := runtime.GOMAXPROCS(0); n != before+3 {
		t.Errorf("GOMAXPROCS is %d beside 3 workers, want %d", n, before+3)
	}
	wg.Go(func() {
		if err := ForEach(p, 1, func(int, int) error { ran.Add(10); return nil }); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("a loop that waits while the pool is closed: %v", err)
		}
	})
	for range 2 {
		wg.Go(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if ran.Load() != 1 {
				t.Errorf("after Close: %d, want 1", ran.Load())
			}
		})
	}
	<-p.closing
	close(release)
	wg.Wait()
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("GOMAXPROCS is %d after Close, want %d", n, before)
	}
	nothing := func(int, int) error { return nil }
	_, mapped := Map(p, 1, func(int, int) (int, error) { return 0, nil })
	_, local := NewLocals(p, func(int) (int, error) { return 0, nil })
	_, none := NewLocals(nil, func(int) (int, error) { return 0, nil })
	for what, err := range map[string]error{
		"ForEach": ForEach(p, 1, nothing), "ForEach of nothing": ForEach(p, 0, nothing), "Map": mapped, "NewLocals": local,
		"Run": p.Run(func() error { return nil }), "of no pool": ForEach(nil, 1, nothing), "NewLocals of no pool": none,
	} {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Errorf("a third Close: %v", err)
	}
}

// TestCallsInsideTaskAreRejected makes calls in a task that are not allowed there.
func TestCallsInsideTaskAreRejected(t *testing.T) {
	p := open(t, Config{Threads: 2})
	err := ForEach(p, 4, func(int, int) error {
		_, local := NewLocals(p, func(int) (int, error) { return 0, nil })
		for what, err := range map[string]error{
			"Close": p.Close(), "NewLocals": local, "Run": p.Run(func() error { return nil }),
			"ForEachWorker": ForEachWorker(p, func(int) error { return nil }),
		} {
			if !errors.Is(err, backend.ErrBusy) {
				return fmt.Errorf("%s in a task: %v", what, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestConfigOverridesEnvironment checks which setting overrides which.
func TestConfigOverridesEnvironment(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{Env: env()}, 1},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "3")}, 3},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "3", "COHORT_THREADS", "")}, 3},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "3", "COHORT_THREADS", "2")}, 2},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "many", "COHORT_THREADS", "2")}, 2},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "3", "COHORT_THREADS", "2"), Threads: 4}, 4},
		{Config{Env: env("COHORT_THREADS", "no number"), Threads: 4}, 4},
		{Config{Env: env("COHORT_THREADS", "2"), CPUs: [][]int{nil, nil, nil}}, 3},
		{Config{Env: env("COHORT_PIN", "none")}, 1},
		{Config{Env: env("COHORT_PIN", "no policy"), Pin: None}, 1},
	} {
		if p := open(t, c.cfg); p.Workers() != c.want {
			t.Errorf("%+v: %d workers, want %d", c.cfg, p.Workers(), c.want)
		}
	}
	for _, c := range []struct {
		cfg Config
		say []string // what the error names
	}{
		{Config{Threads: -1}, []string{"-1 threads"}},
		{Config{Threads: 1 << 20}, []string{"1048576 threads"}},
		{Config{Env: env("COHORT_THREADS", "0")}, []string{"COHORT_THREADS", `"0"`}},
		{Config{Env: env("COHORT_THREADS", "-3")}, []string{"COHORT_THREADS", `"-3"`}},
		{Config{Env: env("COHORT_THREADS", "two")}, []string{"COHORT_THREADS", `"two"`}},
		{Config{Env: env("COHORT_THREADS", "2 ")}, []string{"COHORT_THREADS", `"2 "`}},
		{Config{Env: env("COHORT_THREADS", "99999999999999999999")}, []string{"COHORT_THREADS"}},
		{Config{Env: env("SLURM_CPUS_PER_TASK", "4(x2)")}, []string{"SLURM_CPUS_PER_TASK", `"4(x2)"`}},
		{Config{Env: env("COHORT_PIN", "core")}, []string{"COHORT_PIN", `"core"`, "none, cores or numa"}},
		{Config{Pin: "everywhere"}, []string{`"everywhere"`}},
		{Config{LocalRank: 2, LocalSize: 2}, []string{"2 of 2"}},
		{Config{LocalRank: -1, LocalSize: 2}, []string{"-1 of 2"}},
		{Config{LocalRank: 1}, []string{"1 of 0"}},
		{Config{LocalSize: -1}, []string{"0 of -1"}},
		{Config{Threads: 3, CPUs: [][]int{{0}, {0}}}, []string{"2 sets", "3 threads"}},
		{Config{CPUs: [][]int{{0}, {-1}}}, []string{"worker 1", "-1"}},
		{Config{CPUs: [][]int{{1 << 20}}}, []string{"worker 0", "1048576"}},
	} {
		if c.cfg.Env == nil {
			c.cfg.Env = env()
		}
		p, err := New(c.cfg)
		if !errors.Is(err, backend.ErrInit) {
			t.Errorf("%+v: %v, want ErrInit", c.cfg, err)
		}
		if err == nil {
			p.Close()
			continue
		}
		for _, s := range c.say {
			if !contains(err, s) {
				t.Errorf("%v does not name %s", err, s)
			}
		}
	}
}

func TestQuietSolversSetsVariables(t *testing.T) {
	vars := map[string]string{"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "", "GOTO_NUM_THREADS": "1,2"}
	before := len(vars)
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	bad := errors.New("read only")
	set := func(name, value string) error {
		if name == "BLIS_NUM_THREADS" {
			return bad
		}
		if old := vars[name]; old != "" {
			t.Errorf("%s=%s is overwritten", name, old)
		}
		vars[name] = value
		return nil
	}
	settings, err := QuietSolvers(lookup, set)
	if !errors.Is(err, bad) || !contains(err, "BLIS_NUM_THREADS") {
		t.Errorf("an error in setting: %v", err)
	}
	var differ []string
	for _, s := range settings {
		if s.Differs() && s.Value != "" {
			differ = append(differ, s.String())
		}
		if want := s.Name != "OMP_NUM_THREADS" && s.Name != "MKL_NUM_THREADS" && s.Name != "GOTO_NUM_THREADS" && s.Name != "BLIS_NUM_THREADS"; s.Set != want {
			t.Errorf("%s: set %v, want %v", s.Name, s.Set, want)
		}
		if s.Set && vars[s.Name] != s.Quiet {
			t.Errorf("%s=%q, want %q", s.Name, vars[s.Name], s.Quiet)
		}
	}
	want := []string{
		"OMP_NUM_THREADS=4 (not 1: OpenMP may start its own threads)",
		"GOTO_NUM_THREADS=1,2 (not 1: OpenBLAS and GotoBLAS may start its own threads)",
	}
	if !slices.Equal(differ, want) {
		t.Errorf("got %q, want %q", differ, want)
	}
	if vars["HIGHS_PARALLEL"] != "off" || len(vars) <= before {
		t.Errorf("the variables are %v", vars)
	}

	// In the process itself, and in the environment of a child.
	t.Setenv("OMP_NUM_THREADS", "")
	for _, s := range quieting {
		t.Setenv(s.Name, "") // to be put back by the test
	}
	if _, err := QuietSolvers(nil, nil); err != nil || os.Getenv("OMP_NUM_THREADS") != "1" {
		t.Errorf("%v, and OMP_NUM_THREADS is %q", err, os.Getenv("OMP_NUM_THREADS"))
	}
}

// TestResolvedFillsInEnvironment checks that Resolved returns what New takes from the environment.
func TestResolvedFillsInEnvironment(t *testing.T) {
	env := map[string]string{"COHORT_THREADS": "3", "COHORT_PIN": "numa"}
	c, err := Config{LocalSize: 2, Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}.Resolved()
	if err != nil || c.Threads != 3 || c.Pin != NUMA || c.LocalSize != 2 {
		t.Errorf("got %+v (%v), want 3 threads pinned to NUMA domains", c, err)
	}
	env["COHORT_THREADS"] = "three"
	if _, err := c.Resolved(); err != nil {
		t.Errorf("a resolved configuration does not stay so: %v", err)
	}
	c.Threads = 0
	if _, err := c.Resolved(); !errors.Is(err, backend.ErrInit) {
		t.Errorf("got %v, want ErrInit", err)
	}
}
