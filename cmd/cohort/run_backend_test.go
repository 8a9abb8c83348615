package main

import (
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// Ranks that shm does not run take tcp, unless shm was asked for.
func TestBackendFollowsNumberOfRanks(t *testing.T) {
	for _, c := range []struct {
		asked, want string
		ranks       int
	}{{"", "shm", 256}, {"", "tcp", 257}, {"shm", "shm", 256}, {"shm", "", 257}, {"tcp", "tcp", 2}, {"mpi", "mpi", 4096}} {
		if got, err := backendFor(c.asked, c.ranks); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%d ranks with --backend %q: %q, %v; want %q", c.ranks, c.asked, got, err, c.want)
		}
	}
}

func TestMissingTempFolderIsNamed(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/null/x")
	if _, err := new(runOptions).folder(new(spawn.Config)); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Error(err)
	}
}
