package cohorttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/soak"
)

// Test checks that ranks started by l behave as MPI-4.1 and the documentation of
// package cohort require. Every scenario is a subtest for each number of ranks:
// "4ranks/Allreduce".
//
// With COHORT_SOAK set, an operation that ends more than 50 ms after its deadline is
// a failure. Set it only on a machine that does nothing else.
func Test(t *testing.T, l Launcher) {
	Become()
	for _, n := range sizesOf(l, small()) {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			some(t, l, n, small() || crowded(l, n), func(i int, s scenario) bool {
				return !(s.alone || s.few) || !small() || n == s.one(i, sizesOf(l, true))
			})
		})
	}
}

// sizesOf returns the numbers of ranks that l is tested with.
func sizesOf(l Launcher, small bool) []int {
	own, _ := l.(Sizer)
	switch {
	case own != nil && own.Ranks(small) != nil:
		return own.Ranks(small)
	case racing && testing.Short(): // the race detector makes everything several times slower
		return []int{2, 3}
	case racing:
		return []int{3}
	case small:
		return []int{1, 2, 5}
	}
	return []int{1, 2, 3, 4, 5, 7, 8}
}

// small reports whether the matrix is sampled.
func small() bool { return testing.Short() || racing }

// crowded reports whether n ranks get the smaller matrix also without -short.
func crowded(l Launcher, n int) bool {
	if own, ok := l.(Sizer); ok {
		return !own.Whole(n)
	}
	return n >= 7
}

// some runs the scenarios that fit with n ranks: those that leave the job in order in one job, and the others in one
// job each. It reports whether there are any.
func some(t *testing.T, l Launcher, n int, short bool, fits func(i int, s scenario) bool) (any bool) {
	jobs := [][]string{nil}
	for i, s := range all() {
		switch reason := skip(l, s.name, n); {
		case s.sizes != nil && !s.sizes(n):
		case reason != "":
			if fits(i, s) {
				t.Run(s.name, func(t *testing.T) { t.Skip(reason) })
			}
		case !fits(i, s):
		case s.alone:
			jobs = append(jobs, []string{s.name})
		default:
			jobs[0] = append(jobs[0], s.name)
		}
	}
	for _, names := range jobs {
		if len(names) > 0 {
			launch(t, l, n, short, names)
			any = true
		}
	}
	return any
}

// one returns the number of ranks, above 1 if it can be, with which the i-th scenario runs
// in the smaller matrix.
func (s scenario) one(i int, sizes []int) int {
	var fit []int
	for _, n := range sizes {
		if n > 1 && (s.sizes == nil || s.sizes(n)) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return -1
	}
	if s.few {
		i = 0
	}
	return fit[i%len(fit)]
}

func skip(l Launcher, name string, n int) string {
	if s, ok := l.(Skipper); ok {
		return s.Skip(name, n)
	}
	return ""
}

// launch runs one job and reports each of its scenarios as a subtest. It returns the
// ranks' digests of the last scenario.
func launch(t *testing.T, l Launcher, n int, short bool, names []string) (digests []string) {
	job := &Job{Ranks: n, Scenarios: names, Short: short, Dir: t.TempDir(), Patience: 3 * time.Minute,
		Deterministic: slices.Equal(names, []string{bitsScenario})}
	if end, ok := t.Deadline(); ok {
		// The watchdog must act before go test's own timeout.
		job.Patience = max(min(job.Patience, time.Until(end)*3/4), time.Second)
	}
	launchErr := l.Launch(t, job)
	ranks, err := job.reports()
	if err != nil {
		t.Fatal(err)
	}
	failed := false
	for i, name := range names {
		s, _ := find(name)
		if !begun(ranks, name) {
			t.Errorf("the job ended early: %d of %d scenarios did not begin, from %s on", len(names)-i, len(names), name)
			failed = true
			break
		}
		t.Run(name, func(t *testing.T) {
			judge(t, s, ranks)
			failed = failed || t.Failed()
		})
	}
	// If the scenario loses a rank the launcher must report a failure. The other
	// ranks have checked what they saw of it.
	last, _ := find(names[len(names)-1])
	mpiexec, _ := l.(Mpiexec)
	switch {
	case launchErr != nil && (failed || last.lost == nil):
		t.Errorf("%s, %d ranks: %v", l.Name(), n, launchErr)
	case launchErr == nil && last.lost != nil && !mpiexec.LosesStatus:
		t.Errorf("%s, %d ranks: the launcher reports no error after %s", l.Name(), n, last.name)
	}
	for _, e := range unjoin(launchErr) {
		var exit *exec.ExitError
		if last.status != 0 && errors.As(e, &exit) && exit.ExitCode() != last.status {
			t.Errorf("%s, %d ranks: status %d after %s, want %d: %v", l.Name(), n, exit.ExitCode(), last.name, last.status, e)
		}
	}
	for _, r := range ranks {
		digests = append(digests, r[last.name].Digest)
	}
	return digests
}

// begun reports whether any rank has begun a scenario.
func begun(ranks []map[string]report, name string) bool {
	return slices.ContainsFunc(ranks, func(r map[string]report) bool { _, ok := r[name]; return ok })
}

// judge turns the ranks' reports about one scenario into the test's result.
func judge(t *testing.T, s scenario, ranks []map[string]report) {
	var silent []string
	millis, after := int64(0), int64(0)
	for rank, reports := range ranks {
		r, begun := reports[s.name]
		switch lost := s.lost != nil && s.lost(rank, len(ranks)); {
		case lost && r.Ended:
			t.Errorf("rank %d should have been lost, but completed the scenario", rank)
		case lost:
			if !begun {
				t.Errorf("rank %d did not begin", rank)
			}
			continue
		case !begun:
			silent = append(silent, fmt.Sprintf("rank %d did not begin", rank))
		case !r.Ended:
			silent = append(silent, fmt.Sprintf("rank %d began and did not end", rank))
		}
		millis = max(millis, r.Millis)
		if s.name != randomFault { // Faults evaluates all runs together
			after = max(after, r.Late)
		}
		for _, e := range r.Errs {
			t.Errorf("rank %d: %s", rank, e)
		}
	}
	if len(silent) > 0 {
		t.Errorf("%s", strings.Join(silent, ", "))
	}
	worst := time.Duration(after) * time.Microsecond
	if worst > promised && os.Getenv(soak.Variable) != "" {
		t.Errorf("an operation ended %v after its deadline, want at most %v", worst, promised)
	}
	switch {
	case !testing.Verbose():
	case after > 0:
		t.Logf("%d ms; operations ended within %v of their deadlines", millis, worst)
	default:
		t.Logf("%d ms", millis)
	}
}

// Some runs a part of [Test]: one number of ranks, the smaller matrix, and the
// scenarios for whose names fits returns true. It is meant for what would be too slow
// with all of them, such as a network that loses packets.
func Some(t *testing.T, l Launcher, ranks int, fits func(scenario string) bool) {
	Become()
	if !some(t, l, ranks, true, func(_ int, s scenario) bool { return fits(s.name) }) {
		t.Fatal("no scenario fits")
	}
}

// HasCollectives reports whether a scenario shows something of collectives, for [Some]: messages, probes, requests,
// windows and most views do not.
func HasCollectives(scenario string) bool {
	family, rest, _ := strings.Cut(scenario, "/")
	return !slices.Contains([]string{"p2p", "probe", "requests", "windows", "onesided"}, family) &&
		!strings.Contains(rest, "windows") && (family != "views" || strings.HasPrefix(rest, "alltoall"))
}

// Bits returns a digest of the results that n ranks started by l get from
// floating-point reductions whose rounding depends on the order of operands.
// Backends whose results are equal bit for bit have the same digest.
func Bits(t *testing.T, l Launcher, n int) string {
	t.Helper()
	Become()
	digests := launch(t, l, n, small() || crowded(l, n), []string{bitsScenario})
	if slices.Contains(digests, "") {
		t.Fatalf("%s, %d ranks: no digest", l.Name(), n)
	}
	return strings.Join(digests, " ")
}
