//go:build cgo && linux

package jobtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// remote takes the place of ssh for the launchers of these tests. It runs the command here, under
// the name of the requested node, so that the library really sees several nodes. FIXED is a name
// that all nodes have. Each node has a /dev/shm, since Open MPI creates files with the node's name
// there.
const remote = `#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=${FIXED-$1}; shift
exec unshare --uts --mount sh -c 'hostname "$0" && mount -t tmpfs none /dev/shm && exec sh -c "$1"' "$host" "$*"
`

// across is start with 4 ranks on nodes n01 and n02, two on each.
func across(t *testing.T, library, name string, env ...string) (e ended) {
	t.Helper()
	if about := standardOf(t, mpicc(t, library)); strings.HasPrefix(about, "Open MPI v5.") {
		t.Skipf("left out: %s connects no two nodes that have one address, as these have", about)
	}
	if b, err := exec.Command("unshare", "--uts", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm").CombinedOutput(); err != nil {
		need.MissingRight(t, "a private node name and /dev/shm need unshare and root: %v\n%s", err, b)
	}
	agent := filepath.Join(t.TempDir(), "remote")
	if err := os.WriteFile(agent, []byte(remote), 0o700); err != nil {
		t.Fatal(err)
	}
	var args []string
	switch library {
	case "mpich":
		args = []string{"-launcher", "ssh", "-launcher-exec", agent, "-hosts", "n01,n02", "-ppn", "2"}
	case "openmpi":
		args = []string{"--mca", "plm_rsh_agent", agent, "--host", "n01:2,n02:2"}
	}
	for range 3 { // Open MPI 4.1's daemons sometimes die if two are on one machine
		cmd := command(t, library, 4, name, env...)
		cmd.Args = slices.Insert(cmd.Args, 1, args...)
		if e = wait(t, cmd); e.status == 0 || !strings.Contains(e.out, "hwloc_shmem_topology_write") {
			break
		}
	}
	return e
}

func printTopology(w *cohort.Comm) error {
	must.OK(traffic(w, 1))
	node := must.Get(w.SplitShared())
	say("rank %d: %v", w.Rank(), w.Topology())
	say("rank %d on its node: %v", w.Rank(), node.Topology().Hosts)
	return nil
}

// TestTopologyReportsNodes checks the topology on one node, on two, and on two with the same name.
func TestTopologyReportsNodes(t *testing.T) {
	skipShort(t, "ranks on two nodes")
	rank("topology", printTopology)
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	inLibraries(t, func(t *testing.T, library string) {
		about := standardOf(t, mpicc(t, library))
		for _, c := range []struct {
			name   string
			ranks  int
			across bool
			env    []string
			hosts  string
			nodes  []string // of each rank, as SplitShared has it
			job    string
		}{
			{"one rank", 1, false, nil, "1 rank on 1 node: " + own + ": 0", []string{"[{" + own + " [0]}]"}, ""},
			{"one node", 2, false, nil, "2 ranks on 1 node: " + own + ": 0-1", slices.Repeat([]string{"[{" + own + " [0 1]}]"}, 2), ""},
			{
				"two nodes", 4, true, nil, "4 ranks on 2 nodes: n01: 0-1, n02: 2-3",
				[]string{"[{n01 [0 1]}]", "[{n01 [0 1]}]", "[{n02 [0 1]}]", "[{n02 [0 1]}]"}, "",
			},
			{
				"two nodes of one name", 4, true, []string{"FIXED=box"}, "4 ranks on 2 nodes: box: 0-1, box: 2-3",
				slices.Repeat([]string{"[{box [0 1]}]"}, 4), "",
			},
			{
				"as the scheduler calls them", 4, true,
				[]string{"SLURM_JOB_ID=4711", "SLURM_JOB_NODELIST=n[01-02].cluster", "SLURM_NODEID=0"},
				"4 ranks on 2 nodes: n01.cluster: 0-1, n02.cluster: 2-3",
				[]string{"[{n01.cluster [0 1]}]", "[{n01.cluster [0 1]}]", "[{n02.cluster [0 1]}]", "[{n02.cluster [0 1]}]"}, "; Slurm job 4711",
			},
		} {
			t.Run(c.name, func(t *testing.T) {
				var e ended
				if c.across {
					e = across(t, library, "topology", c.env...)
				} else {
					e = start(t, library, c.ranks, "topology", c.env...)
				}
				e.must(t)
				for rank := range c.ranks {
					lines := e.lines("rank")
					for _, want := range []string{
						fmt.Sprintf("%d: %s; mpi (%s)%s", rank, c.hosts, about, c.job),
						fmt.Sprintf("%d on its node: %s", rank, c.nodes[rank]),
					} {
						if !slices.Contains(lines, want) {
							t.Errorf("no line %q in\n%s", want, e.out)
						}
					}
				}
			})
		}
	})
}

// standardOf returns the library, its version and its MPI version, as its own header has them.
func standardOf(t *testing.T, compiler string) string {
	t.Helper()
	exe := compiledC(t, compiler, `#include <mpi.h>
#include <stdio.h>
int main(void) {
#ifdef OPEN_MPI
	printf("Open MPI v%d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#else
	printf("MPICH %s", MPICH_VERSION);
#endif
	printf(", MPI %d.%d, threads: multiple", MPI_VERSION, MPI_SUBVERSION);
	return 0;
}`, "version"+strconv.Itoa(os.Getpid()))
	b, err := exec.Command(exe).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
