//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/topo"
)

// toyFlags make a training short, and toy is such a training of the toy case.
var (
	toyFlags = []string{"--iterations", "4", "--passes", "4", "--openings", "3", "--scenarios", "20"}
	toy      = append([]string{"train", filepath.Join("..", "..", "..", "sddp", "cases", "toy"), "--json"}, toyFlags...)
)

// result is the line of JSON that sddp prints at the end.
func result(t *testing.T, out string) (r struct {
	CutsSHA256 string `json:"cuts_sha256"`
	Cuts       int    `json:"cuts"`
	Ranks      int    `json:"ranks"`
}) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("%v in the last line of\n%s", err, out)
	}
	return r
}

// TestTrainingUnderSrunHasSameBits trains the toy case under srun, on one node and on two: the cuts
// have the bits that one process computes.
func TestTrainingUnderSrunHasSameBits(t *testing.T) {
	c := slurm(t)
	sddp := binary(t, "sddp/cmd/sddp")
	alone := result(t, c.must(t, nil, sddp, toy...))
	if alone.Ranks != 1 || len(alone.CutsSHA256) != 64 || alone.Cuts == 0 {
		t.Fatalf("alone: %+v", alone)
	}
	each(t, func(t *testing.T, c *cluster, l library) {
		for _, nodes := range []string{"1", "2"} {
			srun := append([]string{"--mpi=" + l.mpi, "-N", nodes, "-n", "4", "--overcommit", sddp}, toy...)
			got := result(t, c.must(t, l.env, "srun", srun...))
			want := alone
			want.Ranks = 4
			if got != want {
				t.Errorf("on %s nodes: %+v, want %+v", nodes, got, want)
			}
		}
	})
}

// TestTopologyAgreesWithSlurm compares what ranks know of their place with what Slurm reports of
// the job.
func TestTopologyAgreesWithSlurm(t *testing.T) {
	program, env := self(t, "facts")
	each(t, func(t *testing.T, c *cluster, l library) {
		t.Parallel()
		for _, k := range []struct {
			name  string
			tasks int
			args  string
		}{
			{"one node", 3, "-N1 -n3 --mem=96"},
			{"two nodes", 4, "-N2 -n4 -c1 --mem=64"},
			{"two nodes, not even", 3, "-N2 -n3 --mem-per-cpu=48 --job-name=uneven"},
			{"one task", 1, "-N1 -n1 -c1 --mem-per-cpu=32"},
		} {
			t.Run(k.name, func(t *testing.T) {
				// In one allocation: Slurm's report of the job, of each task, and the ranks' own.
				args := append(strings.Fields(k.args), "--overcommit", "sh", "-ec", `
					scontrol --oneliner show job $SLURM_JOB_ID
					echo =
					scontrol show hostnames
					echo =
					srun --label sh -c 'echo $SLURMD_NODENAME $SLURM_NODEID $SLURM_LOCALID'
					echo =
					srun --label --mpi=`+l.mpi+` "$0"`, program)
				parts := strings.Split(c.must(t, append(l.env, env...), "salloc", args...), "=\n")
				if len(parts) != 4 {
					t.Fatalf("%q", parts)
				}
				var s slurmJob
				s.read(t, parts[0], strings.Fields(parts[1]), labeled(t, parts[2]))
				for rank, f := range factsOf(t, parts[3], k.tasks) {
					s.check(t, c, rank, k.tasks, strings.Contains(k.args, "-c1"), f)
				}
			})
		}
	})
}

// slurmJob is what Slurm reports of a job.
type slurmJob struct {
	fields map[string]string
	hosts  []string
	node   []int   // of each task
	local  []int   // local rank of each task
	tasks  [][]int // of each node
}

func (s *slurmJob) read(t *testing.T, job string, hosts []string, places map[int]string) {
	t.Helper()
	s.fields, s.hosts, s.tasks = make(map[string]string), hosts, make([][]int, len(hosts))
	for f := range strings.FieldsSeq(job) {
		name, value, _ := strings.Cut(f, "=")
		s.fields[name] = value
	}
	for task := range len(places) {
		var host string
		var node, local int
		if _, err := fmt.Sscan(places[task], &host, &node, &local); err != nil || node >= len(hosts) || hosts[node] != host {
			t.Fatalf("task %d is at %q of %v: %v", task, places[task], hosts, err)
		}
		s.node, s.local = append(s.node, node), append(s.local, local)
		s.tasks[node] = append(s.tasks[node], task)
	}
}

// bytes returns a size that Slurm prints as 96M, 0 if it prints none.
func (s *slurmJob) bytes(t *testing.T, name string) int64 {
	text, ok := strings.CutSuffix(s.fields[name], "M")
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s: %v", name, s.fields[name], err)
	}
	return n << 20
}

// check compares what a rank knows. asked is whether the job asked for a number of processors per
// task.
func (s *slurmJob) check(t *testing.T, c *cluster, rank, tasks int, asked bool, f facts) {
	t.Helper()
	node, cpus := s.node[rank], 0
	if asked { // else there is no variable
		cpus, _ = strconv.Atoi(s.fields["CPUs/Task"])
	}
	want := topo.Job{
		Scheduler: "Slurm", ID: s.fields["JobId"], Step: "1", Name: s.fields["JobName"], Queue: s.fields["Partition"], Cluster: "cohort",
		Hosts: s.hosts, Nodes: len(s.hosts), Node: node, CPUsPerTask: cpus, CPUsOnNode: f.Job.CPUsOnNode,
		MemoryPerNode: s.bytes(t, "MinMemoryNode"), MemoryPerCPU: s.bytes(t, "MinMemoryCPU"),
		Launcher: "srun", Rank: rank, Size: tasks, LocalRank: s.local[rank], LocalSize: len(s.tasks[node]),
		Launch: s.fields["JobId"] + ".1.cohort",
	}
	for _, on := range s.tasks {
		want.TasksPerNode = append(want.TasksPerNode, len(on))
	}
	if !reflect.DeepEqual(f.Job, want) {
		t.Errorf("rank %d: the job is\n%+v, by Slurm\n%+v", rank, f.Job, want)
	}
	if f.Job.CPUsOnNode < 1 {
		t.Errorf("rank %d: %d processors on the node", rank, f.Job.CPUsOnNode)
	}
	if f.Problems != nil || f.Size != tasks || f.Conf != filepath.Join(c.dir, "slurm.conf") {
		t.Errorf("rank %d of %d: problems %q, SLURM_CONF=%s", rank, f.Size, f.Problems, f.Conf)
	}
	if tasks == 1 {
		return // one rank uses backend local
	}
	hosts := make([]cohort.Host, len(s.hosts))
	for i, name := range s.hosts {
		hosts[i] = cohort.Host{Name: name, Ranks: s.tasks[i]}
	}
	if f.Topology.Backend != "mpi" || !reflect.DeepEqual(f.Topology.Hosts, hosts) || f.Topology.Scheduler != "Slurm job "+s.fields["JobId"]+".1" {
		t.Errorf("rank %d: the topology is %+v, by Slurm the nodes are %+v of job %s", rank, f.Topology, hosts, s.fields["JobId"])
	}
	if head := fmt.Sprintf("%d ranks on %d node", tasks, len(s.hosts)); !strings.HasPrefix(f.Text, head) || !strings.Contains(f.Text, s.hosts[0]+": 0") {
		t.Errorf("rank %d: the topology is %q, want it to begin with %q", rank, f.Text, head)
	}
}

// TestCohortRunInsideAllocation runs cohort run in an allocation: the ranks are on this node, and
// none is a task of Slurm.
func TestCohortRunInsideAllocation(t *testing.T) {
	installed(t)
	tool, hello := binary(t, "cmd/cohort"), binary(t, "examples/hello")
	each(t, func(t *testing.T, c *cluster, l library) {
		for _, backend := range []string{"shm", "mpi"} {
			out := c.must(t, l.env, "salloc", "-N1", "-n2", "--overcommit", tool, "run", "--backend", backend, "-n", "3", hello)
			for rank := range 3 {
				if want := fmt.Sprintf("[%d] hello from rank %d of 3 (backend %s)\n", rank, rank, backend); !strings.Contains(out, want) {
					t.Errorf("%q, want %q in it", out, want)
				}
			}
		}
	})
}
