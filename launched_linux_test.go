//go:build !cohort_noshm && !cohort_notcp

package cohort_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/need"
)

// TestStaticProgramUnderHydra starts a program that was built without cgo under MPICH's mpiexec: the ranks find each other
// through PMI.
func TestStaticProgramUnderHydra(t *testing.T) {
	hydra := need.Program(t, "mpiexec.hydra")
	program := filepath.Join(t.TempDir(), "ranks")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./internal/pmi/testdata/ranks")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	run := func(t *testing.T, env string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, hydra, args...)
		cmd.Env = append(os.Environ(), env)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, c := range []struct {
		name, env, backend string
		args               []string
	}{
		{"auto", "", "tcp", nil},
		{"shm", "COHORT_BACKEND=shm", "shm", nil},
		{"by address", "COHORT_BACKEND=tcp", "tcp", []string{"-pmi-port"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, c.env, append(c.args, "-n", "3", program)...)
			for r := range 3 {
				if want := fmt.Sprintf("rank %d of 3 on %s, sum 6\n", r, c.backend); !strings.Contains(out, want) {
					t.Errorf("%v: want %q in\n%s", err, want, out)
				}
			}
		})
	}
	t.Run("joined before", func(t *testing.T) {
		out, err := run(t, "COHORT_BACKEND=tcp", "-n", "2", "sh", "-c", program+"; exec "+program)
		if err == nil || strings.Count(out, "sum 3") != 2 || !strings.Contains(out, "has this process joined before?") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
