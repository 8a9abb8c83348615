//go:build linux || darwin

package jobtest

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// launcher starts the ranks as processes of this machine, which meet at this one.
type launcher struct {
	env []string
	tls *meet.TLS
}

func (launcher) Name() string { return "tcp" }

func (l launcher) Launch(t testing.TB, job *cohorttest.Job) error {
	t.Helper()
	secret, path := meet.NewSecret(), filepath.Join(t.TempDir(), "secret")
	if err := secret.WriteFile(path); err != nil {
		return err
	}
	id := &meet.Identity{Job: rand.Text(), Secret: secret, Rank: meet.Launcher, Size: job.Ranks, Coordinator: true, TLS: l.tls}
	listener, err := meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Identity: id})
	if err != nil {
		return err
	}
	defer meet.Serve(listener)()
	p := cohorttest.Processes{Backend: "tcp", Env: append([]string{
		"COHORT_JOB=" + id.Job, "COHORT_TCP_COORDINATOR=launcher@" + listener.Addrs()[0].String(), "COHORT_SECRET_FILE=" + path,
	}, l.env...)}
	return p.Launch(t, job)
}

// brief is a launcher with the whole matrix for two sizes: schedules are those of shm, which has it for all.
type brief struct{ launcher }

func (brief) Whole(n int) bool { return n == 2 || n == 5 }

// Ranks leaves the other numbers of the smaller matrix to shm.
func (brief) Ranks(small bool) []int {
	if small {
		return []int{3}
	}
	return []int{1, 2, 3, 4, 5, 6, 7, 8}
}

// TestConformance runs the whole suite over sockets, as between nodes.
// Skip leaves out, with -short, jobs that lose a rank and differ from others only in the call that waits. The suite on shm
// has them all.
func (brief) Skip(scenario string, _ int) string {
	if testing.Short() && regexp.MustCompile(`^failing/(allreduce|derived|wait|collective-wait|window-lock|computing)$|^faults/dead-(between-|with-shared-lock)`).MatchString(scenario) {
		return "left out with -short: a lost rank and a call that waits as others do; make test-all runs it"
	}
	return ""
}

func TestConformance(t *testing.T) {
	cohorttest.Test(t, brief{launcher{env: []string{"COHORT_TCP_SHM=0"}}})
}

// few are the families of scenarios with -short where the conformance suite runs again: those for which the connections
// make a difference. Memory between ranks is that of shm, whose suite has the others.
var few = []string{"p2p", "probe", "communicators", "faults", "Alltoall", "Barrier"}

// inFew reports whether a scenario runs again with -short. Each death of a rank is a job, so only those run again whose
// names match deaths.
func inFew(scenario, deaths string) bool {
	family, rest, _ := strings.Cut(scenario, "/")
	if strings.HasPrefix(rest, "dead-") && !regexp.MustCompile(deaths).MatchString(rest) {
		return false
	}
	return slices.Contains(few, family) && !slices.Contains([]string{"p2p/types", "p2p/element-types", "p2p/lengths", "p2p/limits", "p2p/truncation"}, scenario)
}

// TestConformanceShared runs the suite with shared memory, as within a node, in the smaller matrix and
// without windows, which use no messages. With COHORT_SOAK every rank has a processor, to measure how
// late deadlines are.
func TestConformanceShared(t *testing.T) {
	sizes := []int{3, 5}
	switch {
	case os.Getenv("COHORT_SOAK") != "":
		sizes = []int{2}
	case testing.Short():
		sizes = []int{3}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, launcher{}, n, func(s string) bool {
				return !strings.Contains(s, "windows") && (!testing.Short() || inFew(s, "-in-|-with-"))
			})
		})
	}
}

// TestConformanceDemand runs it with connections on demand.
func TestConformanceDemand(t *testing.T) {
	n, short := 5, testing.Short()
	if short {
		n = 3
	}
	cohorttest.Some(t, launcher{env: []string{"COHORT_TCP_CONNECT=demand"}}, n, func(s string) bool {
		return !strings.Contains(s, "windows") && (!short || inFew(s, "-first-|-between-|neighbor"))
	})
}

// TestResultsHaveLocalBits checks that the results are those of ranks that are goroutines.
func TestResultsHaveLocalBits(t *testing.T) {
	sizes := []int{2, 3, 5, 8}
	if testing.Short() {
		sizes = []int{5}
	}
	for _, n := range sizes {
		want := cohorttest.Bits(t, cohorttest.Goroutines{}, n)
		if got := cohorttest.Bits(t, launcher{}, n); got != want {
			t.Errorf("%d ranks: tcp gives %s, local %s", n, got, want)
		}
	}
}
