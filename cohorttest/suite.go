package cohorttest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Test checks that ranks started by l behave as MPI-4.1 and the documentation
// of package cohort say. Every scenario is a subtest for every number of ranks:
// "4ranks/Allreduce". With COHORT_SOAK set, for a machine that has nothing else to do, a deadline
// that is kept more than 50 ms late is a failure.
func Test(t *testing.T, l Launcher) {
	become()
	for _, n := range sizesOf(l, small()) {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) { testRanks(t, l, n) })
	}
}

// sizesOf returns the numbers of ranks that ranks started by l are tested with.
func sizesOf(l Launcher, small bool) []int {
	if m, ok := l.(Mpiexec); ok && m.Sizes != nil {
		return m.Sizes
	}
	if racing { // several times as slow
		return []int{2, 3}
	}
	if small {
		return []int{1, 2, 3, 5}
	}
	sizes := []int{1, 2, 3, 4, 5, 7, 8}
	if m, ok := l.(More); ok {
		sizes = append(sizes, m.More()...)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// small reports whether the matrix is to be the smaller one.
func small() bool { return testing.Short() || racing }

// crowded reports whether the smaller matrix is enough for n ranks: what 7 and 8 add
// to 5 is their number, and some launchers are content with less.
func crowded(l Launcher, n int) bool {
	if m, ok := l.(Mpiexec); ok && m.ShortFrom > 0 {
		return n >= m.ShortFrom
	}
	s, ok := l.(Smaller)
	return n >= 7 || ok && s.Smaller(n)
}

// testRanks runs all scenarios with n ranks: those that leave the job in order
// in one job, the others in one each.
func testRanks(t *testing.T, l Launcher, n int) {
	var together []string
	for _, s := range all() {
		if s.sizes != nil && !s.sizes(n) {
			continue
		}
		if reason := skip(l, s.name, n); reason != "" {
			t.Run(s.name, func(t *testing.T) { t.Skip(reason) })
			continue
		}
		if !s.alone {
			together = append(together, s.name)
		}
	}
	launch(t, l, n, together)
	for _, s := range all() {
		if s.alone && (s.sizes == nil || s.sizes(n)) && skip(l, s.name, n) == "" {
			launch(t, l, n, []string{s.name})
		}
	}
}

func skip(l Launcher, name string, n int) string {
	if s, ok := l.(Skipper); ok {
		return s.Skip(name, n)
	}
	return ""
}

// launch runs one job and reports each of its scenarios as a subtest. It
// returns the digests of the last one, rank by rank.
func launch(t *testing.T, l Launcher, n int, names []string) (digests []string) {
	job := &Job{Ranks: n, Scenarios: names, Short: small() || crowded(l, n), Dir: t.TempDir(), Patience: 3 * time.Minute,
		Deterministic: slices.Equal(names, []string{bitsScenario})}
	if end, ok := t.Deadline(); ok {
		// The dump has to come before the one that go test would make.
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
			t.Errorf("the job ended early: %d of %d scenarios have not begun, from %s on", len(names)-i, len(names), name)
			failed = true
			break
		}
		t.Run(name, func(t *testing.T) {
			judge(t, s, ranks)
			failed = failed || t.Failed()
		})
	}
	// Where a rank is to be lost the launcher reports a failure; what the others
	// had to see of it they have checked themselves.
	last, _ := find(names[len(names)-1])
	switch {
	case launchErr != nil && (failed || last.lost == nil):
		t.Errorf("%s, %d ranks: %v", l.Name(), n, launchErr)
	case launchErr == nil && last.lost != nil:
		t.Errorf("%s, %d ranks: no error after %s", l.Name(), n, last.name)
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
			t.Errorf("rank %d was to be lost and has ended the scenario", rank)
		case lost:
			if !begun {
				t.Errorf("rank %d has not begun", rank)
			}
			continue
		case !begun:
			silent = append(silent, fmt.Sprintf("rank %d has not begun", rank))
		case !r.Ended:
			silent = append(silent, fmt.Sprintf("rank %d has begun and not ended", rank))
		}
		millis = max(millis, r.Millis)
		if s.name != randomFault { // Faults looks at those of all runs
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
	if worst > promised && os.Getenv(soakVariable) != "" {
		t.Errorf("a deadline was kept %v late, want at most %v", worst, promised)
	}
	switch {
	case !testing.Verbose():
	case after > 0:
		t.Logf("%d ms; deadlines were kept within %v", millis, worst)
	default:
		t.Logf("%d ms", millis)
	}
}

// Bits returns a digest of the results, bit for bit, that n ranks started by l
// get from floating-point reductions whose rounding shows the order in which
// operands were combined. Backends whose results are the same give the same
// digest.
func Bits(t *testing.T, l Launcher, n int) string {
	t.Helper()
	become()
	digests := launch(t, l, n, []string{bitsScenario})
	if slices.Contains(digests, "") {
		t.Fatalf("%s, %d ranks: no digest", l.Name(), n)
	}
	return strings.Join(digests, " ")
}

// all returns the scenarios, simple ones first.
func all() []scenario {
	return slices.Concat(
		p2pScenarios(), probeScenarios(), requestScenarios(), recorderScenarios(),
		collectiveScenarios(), operationScenarios(), sequenceScenarios(), bitsScenarios(),
		communicatorScenarios(), argumentScenarios(), mismatchScenarios(), windowScenarios(), limitScenarios(), faultScenarios(), recoverScenarios(),
	)
}

func find(name string) (scenario, bool) {
	for _, s := range all() {
		if s.name == name {
			return s, true
		}
	}
	return scenario{}, false
}
