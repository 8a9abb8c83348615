package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// Ranks that shm does not run take tcp, unless shm was asked for.
func TestBackendFollowsNumberOfRanks(t *testing.T) {
	usual := "tcp"
	if shmem.Supported {
		usual = "shm"
	}
	for _, c := range []struct {
		asked, want string
		ranks       int
	}{{"", usual, 256}, {"", "tcp", 257}, {"shm", "shm", 256}, {"shm", "", 257}, {"tcp", "tcp", 2}, {"mpi", "mpi", 4096}} {
		if got, err := (&runOptions{backend: c.asked}).backendFor(c.ranks); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%d ranks with --backend %q: %q, %v; want %q", c.ranks, c.asked, got, err, c.want)
		}
	}
}

// COHORT_BACKEND is the default of --backend, and errors about its value name it.
func TestBackendVariableIsDefaultOfFlag(t *testing.T) {
	for _, c := range []struct{ flag, variable, want, fails string }{
		{"", "tcp", "tcp", ""}, {"", "mpi", "mpi", ""}, {"shm", "tcp", "shm", ""}, {"shm", "frob", "shm", ""}, {"", "auto", "", ""},
		{"", "local", "", "COHORT_BACKEND=local: "}, {"", "frob", "", "COHORT_BACKEND=frob: "}, {"frob", "tcp", "", "--backend frob: "},
	} {
		t.Setenv("COHORT_BACKEND", c.variable)
		r := runOptions{backend: c.flag}
		programs := spawn.Programs{{Ranks: 2}}
		if c.fails != "" {
			if status, err := r.run(programs); status != cli.StatusUsage || !strings.HasPrefix(fmt.Sprint(err), c.fails) {
				t.Errorf("--backend %q, COHORT_BACKEND=%s: status %d, %v; want %q", c.flag, c.variable, status, err, c.fails)
			}
		} else if err := r.check(programs); err != nil || r.backend != c.want {
			t.Errorf("--backend %q, COHORT_BACKEND=%s: backend %q, %v; want %q", c.flag, c.variable, r.backend, err, c.want)
		}
	}
}

func TestMissingTempFolderIsNamed(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/null/x")
	if _, err := new(runOptions).folder(new(spawn.Config)); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Error(err)
	}
}
