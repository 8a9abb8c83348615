package budget

import (
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

func TestTightestLimitDecides(t *testing.T) {
	slurm := topo.Job{Scheduler: "Slurm", MemoryPerNode: 2 << 30}
	for _, c := range []struct {
		name  string
		room  int64
		job   topo.Job
		used  int64
		want  int64
		words string
	}{
		{"nothing known", -1, topo.Job{}, 1 << 20, -1, ""},
		{"the machine alone", 5 << 30, topo.Job{}, 1 << 20, 5 << 30, "room"},
		{"the scheduler alone", -1, slurm, 48 << 20, 2000 << 20, "SLURM_MEM_PER_NODE gives the job 2048 MiB on this node, of which this process uses 48 MiB; ask for less, or ask Slurm"},
		{"the scheduler gives less", 5 << 30, slurm, 48 << 20, 2000 << 20, "SLURM_MEM_PER_NODE"},
		{"the machine has less", 1 << 30, slurm, 48 << 20, 1 << 30, "room"},
		{"all used", 5 << 30, slurm, 3 << 30, 0, "3072 MiB"},
		{"by processor", 5 << 30, topo.Job{MemoryPerCPU: 1000 << 20, CPUsOnNode: 3}, 0, 3000 << 20, "SLURM_MEM_PER_CPU for 3 processors"},
	} {
		free, limit := tighter(c.room, "room", &c.job, c.used)
		if free != c.want || c.room >= 0 && !strings.Contains(limit, c.words) {
			t.Errorf("%s: %d bytes, %q; want %d, %q", c.name, free, limit, c.want, c.words)
		}
	}
}

func TestFreeReadsThisProcess(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "7")
	t.Setenv("SLURM_NODEID", "")
	t.Setenv("SLURMD_NODENAME", "")
	t.Setenv("SLURM_MEM_PER_NODE", "1")
	if free, limit := Free(); strings.Contains(limit, "SLURM") {
		t.Errorf("in a shell of salloc: %d bytes: %s", free, limit)
	}
	t.Setenv("SLURM_NODEID", "0")
	if free, limit := Free(); free > 1<<20 || !strings.Contains(limit, "SLURM_MEM_PER_NODE gives") {
		t.Errorf("in the job: %d bytes: %s", free, limit)
	}
}
