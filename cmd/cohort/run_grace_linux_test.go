package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func init() { rankPrograms["survivor-rank"] = survivorRank }

// survivorRank is a rank of three of which rank 1 fails. The others write a file to folder when they learn of
// the loss.
func survivorRank(folder string) int {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return 4
	}
	err = world.Barrier() // rank 1 may complete it, and fail, before the others complete it
	if world.Rank() == 1 {
		os.Exit(3)
	}
	if err == nil {
		x := []float64{1}
		err = cohort.Allreduce(world, x, x, cohort.Sum)
	}
	fmt.Println(err)
	if !errors.Is(err, cohort.ErrPeerLost) {
		return 5
	}
	if os.WriteFile(filepath.Join(folder, fmt.Sprint(world.Rank())), nil, 0o600) != nil {
		return 6
	}
	return 0
}

func TestSurvivorsLearnOfLossAndSave(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, line func(...string) []string) {
		folder := t.TempDir()
		status, stdout, stderr := run(t, line("-n", "3", "--grace", patience.String(), exe, "survivor-rank", folder)...)
		if status != 3 || strings.Count(stdout, "rank 1") < 2 || !strings.Contains(stderr, "cohort: rank 1 ") {
			t.Errorf("status %d, want 3\n%s%s", status, stdout, stderr)
		}
		for _, rank := range []string{"0", "2"} {
			if _, err := os.Stat(filepath.Join(folder, rank)); err != nil {
				t.Errorf("rank %s saved nothing: %v\n%s%s", rank, err, stdout, stderr)
			}
		}
	}
	for _, backend := range []string{"shm", "tcp"} {
		t.Run(backend, func(t *testing.T) {
			check(t, func(args ...string) []string { return append([]string{"run", "--backend", backend}, args...) })
		})
	}
	t.Run("hosts", func(t *testing.T) {
		n := newNetwork(t)
		check(t, func(args ...string) []string {
			return n.line(append([]string{"--hosts", "127.0.0.1,127.0.0.2"}, args...)...)
		})
	})
}
