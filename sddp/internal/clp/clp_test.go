package clp

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// loaded opens the library, which the test needs.
func loaded(t testing.TB) *Library {
	t.Helper()
	l, err := Open()
	if err != nil {
		need.Missing(t, "%v", err)
	}
	return l
}

// example is: minimize 2x + 3y with x + y >= 4, x - y <= 2, y <= 10. Its optimum, by hand, is at
// x = 3, y = 1, where both rows are tight: 2 = d0 + d1 and 3 = d0 - d1.
func example() *Program {
	return &Program{
		Start: []int32{0, 2, 4}, Row: []int32{0, 1, 0, 1}, Value: []float64{1, 1, 1, -1},
		Cost: []float64{2, 3}, Lo: []float64{0, 0}, Hi: []float64{Infinity, 10},
		RowLo: []float64{4, -Infinity}, RowHi: []float64{Infinity, 2},
		PrimalTolerance: 1e-9, DualTolerance: 1e-12,
	}
}

// slacks is the basis in which the rows of example are basic.
var slacks = []Place{AtLower, AtLower, Basic, Basic}

func equal(got []float64, want ...float64) bool {
	for i, w := range want {
		if math.Abs(got[i]-w) > 1e-12 {
			return false
		}
	}
	return len(got) == len(want)
}

func TestSolveEnds(t *testing.T) {
	l := loaded(t)
	for _, method := range []Method{Dual, Primal} {
		var s Solution
		p := example()
		l.Solve(p, slacks, method, 100, &s)
		if s.Status != Optimal || !equal(s.X, 3, 1) || !equal(s.Y, 2.5, -0.5) || !equal(s.D, 0, 0) {
			t.Errorf("method %d: got %+v", method, s)
		}
		if s.Places[0] != Basic || s.Places[1] != Basic || s.Places[2] == Basic || s.Places[3] == Basic {
			t.Errorf("method %d: places %v", method, s.Places)
		}
		final := append([]Place(nil), s.Places...)
		if l.Solve(p, final, method, 100, &s); s.Status != Optimal || s.Iterations != 0 {
			t.Errorf("method %d: from the optimum: got %+v", method, s)
		}
		p.RowHi[0] = 3
		p.RowLo[0] = 4 // and no point has both
		if l.Solve(p, slacks, method, 100, &s); s.Status != PrimalInfeasible {
			t.Errorf("method %d: infeasible: got %+v", method, s)
		}
		p = example()
		p.Cost[0] = -1
		p.RowHi[1] = Infinity
		if l.Solve(p, slacks, method, 100, &s); s.Status != DualInfeasible {
			t.Errorf("method %d: unbounded: got %+v", method, s)
		}
	}
}

// TestSolveStopsAtIterationLimit gives up after one of the two iterations that the example needs.
func TestSolveStopsAtIterationLimit(t *testing.T) {
	l := loaded(t)
	var s Solution
	if l.Solve(example(), slacks, Dual, 1, &s); s.Status != Stopped {
		t.Errorf("got %+v", s)
	}
}

func TestOpenReportsLibraryOrReason(t *testing.T) {
	l := loaded(t)
	if l.Name == "" || strings.Count(l.Version, ".") != 2 {
		t.Errorf("name %q, version %q, want a version of three numbers", l.Name, l.Version)
	}
	for _, c := range []struct{ library, want string }{
		{"libNoSuchLibrary.so.7", "libNoSuchLibrary.so.7"},
		{"libc.so.6", "libc.so.6 has no Clp_"},
	} {
		_, err := open([]string{c.library})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "apt-get install coinor-libclp1") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.library, err)
		}
	}
}

// TestOpenErrorHasReasonUnderThreadMigration opens a missing library while other goroutines move between
// threads. The error must have the dynamic linker's text every time. It lacked it in one of some thousand
// calls, when the goroutine changed its thread between the failed call and the query.
func TestOpenErrorHasReasonUnderThreadMigration(t *testing.T) {
	loaded(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	tries := 20_000
	if testing.Short() {
		tries = 1000
	}
	for range tries {
		if _, err := open([]string{"libNoSuchLibrary.so.7"}); !strings.Contains(err.Error(), "libNoSuchLibrary.so.7") {
			t.Errorf("got %v, want the library's name", err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// TestConcurrentSolvesAreIndependent solves in many goroutines at once, each its own program.
func TestConcurrentSolvesAreIndependent(t *testing.T) {
	l := loaded(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			var s Solution
			for k := range 200 {
				p := example()
				p.RowLo[0] = float64(4 + (g+k)%4) // moves x and y by half a unit each
				l.Solve(p, slacks, Method(k%2), 100, &s)
				half := float64((g+k)%4) / 2
				if s.Status != Optimal || !equal(s.X, 3+half, 1+half) {
					t.Errorf("goroutine %d, solve %d: got %+v", g, k, s)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestInterruptReachesProgramAfterSolve checks that an interrupt reaches the Go program after solves.
func TestInterruptReachesProgramAfterSolve(t *testing.T) {
	l := loaded(t)
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	defer signal.Stop(c)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var s Solution
	for range 10 {
		l.Solve(example(), slacks, Dual, 100, &s)
		if err := self.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		<-c
	}
}

// TestLibraryPrintsNothing solves programs with all results in a child process, which must not print anything.
func TestLibraryPrintsNothing(t *testing.T) {
	const variable = "CLP_TEST_QUIET"
	l := loaded(t)
	if os.Getenv(variable) != "" {
		var s Solution
		for k := range 8 {
			p := example()
			if k&1 != 0 {
				p.RowLo[0], p.RowHi[0] = 5, 4
			}
			if k&2 != 0 {
				p.Cost[0] = -1
				p.RowHi[1] = Infinity
			}
			if k&4 != 0 {
				p.RowHi[1], p.Value[0] = -1e26, 1e26
			}
			l.Solve(p, slacks, Dual, 100, &s)
			l.Solve(p, []Place{Basic, Basic, Basic, Basic}, Primal, 1, &s)
		}
		flush(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestLibraryPrintsNothing$")
	child.Env = append(os.Environ(), variable+"=1")
	out, err := child.CombinedOutput()
	if err != nil || string(out) != "PASS\n" {
		t.Errorf("got %v and the output\n%s", err, out)
	}
}

// TestModelsAreFreed checks that models are freed. A leaked model takes more than 20 kB.
func TestModelsAreFreed(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: 20000 solves free their models; make test-all runs it")
	}
	l := loaded(t)
	var s Solution
	solves := func(n int) {
		for range n {
			l.Solve(example(), slacks, Dual, 100, &s)
		}
	}
	solves(2000)
	before := resident(t)
	solves(20000)
	if grown := resident(t) - before; grown > 64<<20 { // 20000 models take 400 MB
		t.Errorf("resident memory grew by %d bytes over 20000 solves", grown)
	}
}

// BenchmarkSolve measures the example, most of which is the model and the calls.
func BenchmarkSolve(b *testing.B) {
	l := loaded(b)
	var s Solution
	p := example()
	b.ReportAllocs()
	for b.Loop() {
		l.Solve(p, slacks, Dual, 100, &s)
	}
}

// BenchmarkModel measures the creation and deletion of a model.
func BenchmarkModel(b *testing.B) {
	l := loaded(b)
	for b.Loop() {
		l.delete(l.newModel())
	}
}

// BenchmarkCall measures a call of a function that does nothing but return a number.
func BenchmarkCall(b *testing.B) {
	l := loaded(b)
	m := l.newModel()
	defer l.delete(m)
	b.ReportAllocs()
	for b.Loop() {
		l.status(m)
	}
}
