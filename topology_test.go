package cohort

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/topo"
)

// inJob has the topologies of a test be of a process with an environment.
func inJob(t *testing.T, env map[string]string) {
	saved := thisJob
	t.Cleanup(func() { thisJob = saved })
	thisJob = sync.OnceValue(func() *topo.Job {
		return topo.ReadJob(func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		}, nil)
	})
}

// apart is a communicator whose ranks are on several nodes, and named one whose
// nodes have names besides. Only Comm's own methods are a communicator's here: all
// collectives are schedules.
type apart struct {
	backend.Comm
	nodes []int // by world rank
}

func (a apart) NodeOf(rank int) int { return a.nodes[a.WorldRank(rank)] }

func (a apart) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := a.Comm.Derive(b, members, id)
	return apart{d, a.nodes}, err
}

type named struct {
	apart
	names []string // by node
}

func (n named) HostOf(rank int) string { return n.names[n.NodeOf(rank)] }

func (n named) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := n.apart.Derive(b, members, id)
	if err != nil {
		return nil, err
	}
	return named{d.(apart), n.names}, nil
}

// spreadOut runs body as ranks on the given nodes, with names if there are any.
func spreadOut(t *testing.T, nodes []int, names []string, body func(*Comm) error) {
	t.Helper()
	s, err := resolve(&Config{Backend: "local", Size: 1}, osEnv)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for rank, bc := range local.New(len(nodes)) {
		a := apart{bc, nodes}
		var world *Comm
		if names != nil {
			world = newWorld(context.Background(), named{a, names}, s)
		} else {
			world = newWorld(context.Background(), a, s)
		}
		all.Go(func() {
			if err := world.CloseWith(must.Return(body)(world)); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
}

// thisHost is the name that the system gives this node.
func thisHost(t *testing.T) string {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func sameHosts(a, b []Host) bool {
	return slices.EqualFunc(a, b, func(a, b Host) bool { return a.Name == b.Name && slices.Equal(a.Ranks, b.Ranks) })
}

func TestTopologyOfOneNode(t *testing.T) {
	inJob(t, nil)
	host := thisHost(t)
	ranks(t, 4, func(w *Comm) error {
		top := w.Topology()
		if want := []Host{{Name: host, Ranks: []int{0, 1, 2, 3}}}; !sameHosts(top.Hosts, want) || top.Backend != "local" {
			t.Errorf("got %+v, want %v", top, want)
		}
		if top.Library+top.Version+top.ThreadLevel+top.Scheduler != "" {
			t.Errorf("of a library or scheduler: %+v", top)
		}
		if got, want := top.String(), "4 ranks on 1 node: "+host+": 0-3; local"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		odd := must.Get(w.Split(w.Rank()%2, -w.Rank()))
		if want := []Host{{Name: host, Ranks: []int{0, 1}}}; !sameHosts(odd.Topology().Hosts, want) {
			t.Errorf("got %v, want %v", odd.Topology().Hosts, want)
		}
		return nil
	})
	var none *Comm
	if top := none.Topology(); top.Hosts != nil || top.String() != "" {
		t.Errorf("of no communicator: %+v", top)
	}
}

func TestTopologyOfManyNodes(t *testing.T) {
	inJob(t, nil)
	host := thisHost(t)
	for _, c := range []struct {
		nodes []int
		names []string
		want  string // %[1]s is this node's name, of ranks 0 and 1
	}{
		{[]int{0, 0, 1, 1}, []string{"n01", "n02"}, "4 ranks on 2 nodes: n01: 0-1, n02: 2-3; local"},
		{[]int{1, 0, 1, 0, 2}, []string{"a", "b", "c"}, "5 ranks on 3 nodes: b: 0,2, a: 1,3, c: 4; local"},
		// Containers often have the same name on every machine.
		{[]int{0, 0, 1, 2}, []string{"box", "box", "box"}, "4 ranks on 3 nodes: box: 0-1, box: 2, box: 3; local"},
		// Those that are not known are told apart all the same.
		{[]int{0, 0, 1, 2}, []string{"n01", "", "n03"}, "4 ranks on 3 nodes: n01: 0-1, node1: 2, n03: 3; local"},
		{[]int{0, 0, 1, 2}, nil, "4 ranks on 3 nodes: %[1]s: 0-1, node1: 2, node2: 3; local"},
		{[]int{0, 0, 1, 2}, []string{"", "", "n03"}, "4 ranks on 3 nodes: %[1]s: 0-1, node1: 2, n03: 3; local"},
	} {
		spreadOut(t, c.nodes, c.names, func(w *Comm) error {
			if w.Rank() == 0 {
				want := c.want
				if c.names == nil || c.names[0] == "" {
					want = fmt.Sprintf(want, host)
				}
				if got := w.Topology().String(); got != want {
					t.Errorf("nodes %v, names %q:\n got %s\nwant %s", c.nodes, c.names, got, want)
				}
			}
			return nil
		})
	}
}

// The topology of a derived communicator lists its own ranks.
func TestTopologyOfDerivedUsesItsRanks(t *testing.T) {
	inJob(t, nil)
	spreadOut(t, []int{0, 0, 1, 1, 1, 0}, []string{"n01", "n02"}, func(w *Comm) error {
		back := must.Get(w.Split(0, -w.Rank())) // 5 is 0 there, 4 is 1
		if want := []Host{{Name: "n01", Ranks: []int{0, 4, 5}}, {Name: "n02", Ranks: []int{1, 2, 3}}}; !sameHosts(back.Topology().Hosts, want) {
			t.Errorf("backwards: got %v, want %v", back.Topology().Hosts, want)
		}
		node := must.Get(w.SplitShared())
		name := []string{"n01", "n01", "n02", "n02", "n02", "n01"}[w.Rank()]
		if want := []Host{{Name: name, Ranks: []int{0, 1, 2}}}; !sameHosts(node.Topology().Hosts, want) {
			t.Errorf("rank %d: on the node: got %v, want %v", w.Rank(), node.Topology().Hosts, want)
		}
		return nil
	})
}

func TestTopologyNamesTheSchedulerJob(t *testing.T) {
	inJob(t, map[string]string{
		"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "n[07-09]",
		"SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "1", "SLURM_NODEID": "1",
	})
	ranks(t, 1, func(w *Comm) error {
		if got, want := w.Topology().String(), "1 rank on 1 node: n08: 0; local; Slurm job 4711.3"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

func TestTopologyPrintsInOneLine(t *testing.T) {
	top := Topology{
		Backend: "mpi", Library: "MPICH 4.0.2", Version: "MPI 4.0", ThreadLevel: "multiple", Scheduler: "Slurm job 4711.0",
		Hosts: []Host{{Name: "n01", Ranks: []int{0, 1, 2, 3}}, {Name: "n02", Ranks: []int{4, 5, 6, 7}}},
	}
	want := "8 ranks on 2 nodes: n01: 0-3, n02: 4-7; mpi (MPICH 4.0.2, MPI 4.0, threads: multiple); Slurm job 4711.0"
	if got := top.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	s := top.Summary()
	s.Threads, s.Policy = 16, topo.NUMA
	want = "8 ranks on 2 nodes: n01: 0-3, n02: 4-7; 16 threads per rank pinned to NUMA domains; " +
		"mpi (MPICH 4.0.2, MPI 4.0, threads: multiple); Slurm job 4711.0"
	if got := s.String(); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}
