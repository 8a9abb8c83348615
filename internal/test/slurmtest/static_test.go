//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestStaticProgramUnderSrun starts a program that was built without cgo as 4 ranks. They join by what srun offers: its
// PMI, or its variables. On two nodes these need a secret.
func TestStaticProgramUnderSrun(t *testing.T) {
	c := slurm(t)
	build := func(tags string) (program string) {
		program = filepath.Join(t.TempDir(), "ranks")
		cmd := exec.Command("go", "build", "-trimpath", "-tags", tags, "-o", program, "../../pmi/testdata/ranks")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		return program
	}
	program := build("")
	secret := []string{"COHORT_SECRET=" + strings.Repeat("0123456789abcdef", 4)}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	address := append([]string{"COHORT_TCP_COORDINATOR=" + free.Addr().String()}, secret...)
	const noSecret = "can join over tcp if you set, on all ranks, COHORT_SECRET_FILE"
	for _, k := range []struct {
		name, mpi, nodes string
		env              []string
		want             string // of each rank
	}{
		{"pmi2", "pmi2", "1", nil, "on tcp, sum 10"},
		{"pmi2, two nodes", "pmi2", "2", nil, "on tcp, sum 10"},
		{"pmi2, shm", "pmi2", "1", []string{"COHORT_BACKEND=shm"}, "on shm, sum 10"},
		{"pmix", "pmix", "1", nil, "on shm, sum 10"},
		{"pmix, two nodes", "pmix", "2", address, "on tcp, sum 10"},
		{"pmix, two nodes without a secret", "pmix", "2", nil, noSecret},
		{"none", "none", "1", nil, "on shm, sum 10"},
		{"none, two nodes", "none", "2", address, "on tcp, sum 10"},
		{"none, two nodes without a secret", "none", "2", nil, noSecret},
	} {
		t.Run(k.name, func(t *testing.T) {
			status, out := c.output(t, k.env, "srun", "--mpi="+k.mpi, "-N", k.nodes, "-n", "4", "--overcommit", program)
			for r := range 4 {
				if rank := fmt.Sprintf("rank %d of 4", r); strings.Count(out, rank) != 1 || strings.Count(out, k.want) != 4 || (status == 0) != (k.want != noSecret) {
					t.Fatalf("status %d, want %q and %q in\n%s", status, rank, k.want, out)
				}
			}
		})
	}
	t.Run("pmix, two nodes with libpmix", func(t *testing.T) {
		out := c.must(t, nil, "srun", "--mpi=pmix", "-N", "2", "-n", "4", "--overcommit", build("pmix"))
		if strings.Count(out, "of 4 on tcp, sum 10") != 4 {
			t.Error(out)
		}
	})
	t.Run("none, two nodes by their names", func(t *testing.T) {
		if os.Geteuid() != 0 {
			need.MissingRight(t, "root can give a program names of hosts of its own")
		}
		unshare := need.Program(t, "unshare")
		hosts := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost n01 n02\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out := c.must(t, secret, "srun", "--mpi=none", "-N", "2", "-n", "4", "--overcommit",
			unshare, "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$1"`, hosts, program)
		if strings.Count(out, "of 4 on tcp, sum 10") != 4 {
			t.Error(out)
		}
	})
	t.Run("two steps at a time", func(t *testing.T) {
		out := c.must(t, []string{"COHORT_JOB=weather"}, "salloc", "--quiet", "-N1", "-n4", "--overcommit", "sh", "-ec",
			`srun --mpi=none --overlap -n 2 "$0" & srun --mpi=none --overlap -n 2 "$0"; wait $!`, program)
		if strings.Count(out, "rank 0 of 2 on shm, sum 3") != 2 || strings.Count(out, "rank 1 of 2 on shm, sum 3") != 2 {
			t.Error(out)
		}
	})
	t.Run("doctor", func(t *testing.T) {
		cohort := binary(t, "cmd/cohort")
		_, out := c.output(t, []string{"COHORT_BACKEND=shm"}, "srun", "--mpi=none", "-N1", "-n2", "--overcommit", "sh", "-c", `test $SLURM_PROCID != 0 || exec "$0" doctor`, cohort)
		if want := "takes              backend shm, through its variables\n"; !strings.Contains(out, "srun (SLURM_STEP_NUM_TASKS=2): rank 0 of 2 of launch ") || !strings.Contains(out, want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	})
}
