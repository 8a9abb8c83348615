//go:build linux

package jobtest

import (
	"crypto/rand"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// hosts launches ranks on hosts of their own, namespaces of this machine. They meet at one that no
// rank is on.
type hosts struct {
	seed uint64
	path netlab.Path // between all hosts

	// after is called with the network when the ranks have ended.
	after func(*netlab.Net)
}

func (hosts) Name() string { return "tcp" }

// Skip leaves out what ranks do that share memory.
func (hosts) Skip(scenario string, _ int) string {
	alone := []string{"windows/region", "windows/close-region", "windows/one-copy"}
	together := []string{"mismatch/windows", "faults/dead-in-allocation"}
	if strings.HasPrefix(scenario, "windows/") && !slices.Contains(alone, scenario) || slices.Contains(together, scenario) {
		return "it takes a window that all ranks share, and here they are on different nodes"
	}
	return ""
}

func (h hosts) Launch(t testing.TB, job *cohorttest.Job) error {
	t.Helper()
	n, err := netlab.New(netlab.Config{Hosts: job.Ranks + 1, Seed: h.seed})
	if err != nil {
		return err
	}
	defer n.Close()
	n.Set(-1, -1, h.path)
	env, end, err := rendezvousAt(t, n, job.Ranks)
	if err != nil {
		return err
	}
	defer end()
	err = cohorttest.Processes{Backend: "tcp", Env: env, Start: n.Start}.Launch(t, job)
	if h.after != nil {
		h.after(n)
	}
	return err
}

// rendezvousAt starts the coordinator of a job on the host after those of its ranks. It returns the
// ranks' environment.
func rendezvousAt(t testing.TB, n *netlab.Net, ranks int) (env []string, end func(), err error) {
	t.Helper()
	secret, path := meet.NewSecret(), filepath.Join(t.TempDir(), "secret")
	if err := secret.WriteFile(path); err != nil {
		return nil, nil, err
	}
	id := &meet.Identity{Job: rand.Text(), Secret: secret, Rank: meet.Launcher, Size: ranks, Coordinator: true}
	var listener *meet.Listener
	err = n.Do(ranks, func() error {
		listener, err = meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{n.Addr(ranks)}, Identity: id})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return []string{"COHORT_JOB=" + id.Job, "COHORT_TCP_COORDINATOR=launcher@" + listener.Addrs()[0].String(), "COHORT_SECRET_FILE=" + path}, meet.Serve(listener), nil
}

// needHosts makes sure that there can be hosts. In a rank it does the rank's part instead.
func needHosts(t *testing.T) bool {
	t.Helper()
	cohorttest.Become()
	return netlab.Need(t)
}

// TestConformanceBetweenHosts runs the conformance suite on 4 ranks, each on its own host.
func TestConformanceBetweenHosts(t *testing.T) {
	cohorttest.Become()
	if testing.Short() {
		t.Skip("left out with -short: the conformance suite between hosts; make test-all runs it")
	}
	if needHosts(t) {
		cohorttest.Some(t, hosts{}, 4, func(string) bool { return true })
	}
}
