//go:build linux || darwin

package tcp_test

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// launcher starts the ranks as processes of this machine, which meet at this one.
type launcher struct {
	env []string
	tls *wire.TLS
}

func (launcher) Name() string { return "tcp" }

func (l launcher) Launch(t testing.TB, job *cohorttest.Job) error {
	t.Helper()
	secret, path := wire.NewSecret(), filepath.Join(t.TempDir(), "secret")
	if err := secret.WriteFile(path); err != nil {
		return err
	}
	id := &wire.Identity{Job: rand.Text(), Secret: secret, Rank: wire.Launcher, Size: job.Ranks, Coordinator: true, TLS: l.tls}
	door, err := wire.Listen(wire.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Identity: id})
	if err != nil {
		return err
	}
	defer wire.Serve(door)()
	p := cohorttest.Processes{Backend: "tcp", Env: append([]string{
		"COHORT_JOB=" + id.Job, "COHORT_TCP_COORDINATOR=launcher@" + door.Addrs()[0].String(), "COHORT_SECRET_FILE=" + path,
	}, l.env...)}
	return p.Launch(t, job)
}

// brief is a launcher with the whole matrix for two sizes: schedules are those of shm, which has it for all.
type brief struct{ launcher }

func (brief) Smaller(n int) bool { return n != 2 && n != 5 }

// More makes it every number from 1 to 8.
func (brief) More() []int { return []int{6} }

// TestConformance is all of it over sockets, as between nodes.
func TestConformance(t *testing.T) {
	cohorttest.Test(t, brief{launcher{env: []string{"COHORT_TCP_SHM=0"}}})
}

// TestConformanceShared is the same with shared memory, as within a node, in the smaller matrix; windows are
// no matter of messages. How late deadlines are kept is looked at with a processor for each rank.
func TestConformanceShared(t *testing.T) {
	sizes := []int{3, 5}
	if os.Getenv("COHORT_SOAK") != "" {
		sizes = []int{2}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, launcher{}, n, func(s string) bool { return !strings.Contains(s, "windows") })
		})
	}
}

// TestConformanceDemand is the same with connections that are made when they are first needed.
func TestConformanceDemand(t *testing.T) {
	cohorttest.Some(t, launcher{env: []string{"COHORT_TCP_CONNECT=demand"}}, 5, func(s string) bool { return !strings.Contains(s, "windows") })
}

// TestBits checks that the results are those of ranks that are goroutines.
func TestBits(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		want := cohorttest.Bits(t, cohorttest.Goroutines{}, n)
		if got := cohorttest.Bits(t, launcher{}, n); got != want {
			t.Errorf("%d ranks: tcp gives %s, local %s", n, got, want)
		}
	}
}
