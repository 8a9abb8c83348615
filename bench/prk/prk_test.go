package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// small are problems that take milliseconds, with sizes that the numbers of ranks do not divide.
var small = [][]string{
	{"p2p", "-size", "50", "-iterations", "3"},
	{"p2p", "-size", "50", "-iterations", "2", "-group", "8"},
	{"stencil", "-size", "37", "-iterations", "3"},
	{"stencil", "-size", "37", "-iterations", "2", "-radius", "4"},
	{"transpose", "-size", "101", "-iterations", "3"},
	{"transpose", "-size", "101", "-iterations", "2", "-onesided"},
	{"random", "-size", "12", "-iterations", "2", "-group", "100"},
	{"random", "-size", "8", "-iterations", "1", "-onesided"},
	{"reduce", "-size", "1001", "-iterations", "3"},
	{"sparse", "-size", "5", "-iterations", "3", "-radius", "2"},
}

// A kernel returns an error if its result is not the one that it should have.
func TestKernelsAreVerified(t *testing.T) {
	for _, args := range small {
		k, p, err := parse(args)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 6; n++ {
			if k.name == "random" && n&(n-1) != 0 {
				continue
			}
			err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
				work, seconds, err := k.run(world, p)
				if err == nil && (work <= 0 || seconds <= 0) {
					err = fmt.Errorf("work %g in %g s", work, seconds)
				}
				return err
			})
			if err != nil {
				t.Errorf("%q on %d ranks: %v", args, n, err)
			}
		}
	}
}

// If one rank's numbers are wrong, every rank gets the error.
func TestVerify_Errors(t *testing.T) {
	for off, wrong := range map[float64]bool{0: false, 1e-9: false, 1e-7: true, math.Inf(1): true, math.NaN(): true} {
		err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			mine := 0.0
			if world.Rank() == 1 {
				mine = off
			}
			if err := verify(world, mine); (err != nil) != wrong {
				return fmt.Errorf("rank %d: %v", world.Rank(), err)
			}
			return nil
		})
		if err != nil {
			t.Errorf("off by %g: %v", off, err)
		}
	}
}

func TestParse_Errors(t *testing.T) {
	for line, says := range map[string]string{
		"":                       "name a kernel",
		"stensil":                "there is no kernel stensil",
		"stencil -size 0":        "-size 0: want at least 1",
		"stencil -group 2":       "-group",
		"reduce -onesided":       "-onesided",
		"p2p -size 10 -size":     "-size",
		"p2p 10":                 `"10" is not a flag`,
		"random -iterations two": "two",
	} {
		if _, _, err := parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// Problems that do not fit the ranks are errors on every rank.
func TestKernels_Errors(t *testing.T) {
	for _, line := range []string{
		"p2p -size 3", "stencil -size 4", "stencil -size 6 -radius 3", "transpose -size 2", "random -size 1", "random -size 41",
		"sparse -size 15", "sparse -size 2 -radius 2",
	} {
		k, p, err := parse(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		failed := make([]error, 4)
		cohort.Run(context.Background(), len(failed), func(world *cohort.Comm) error {
			_, _, failed[world.Rank()] = k.run(world, p)
			return nil
		})
		for rank, err := range failed {
			if err == nil || !strings.Contains(err.Error(), "-size") {
				t.Errorf("%s: rank %d of 4: %v", line, rank, err)
			}
		}
	}
}

func TestJumpEqualsManySteps(t *testing.T) {
	for x, n := uint64(1), uint64(0); n < 1000; n++ {
		if got := jump(n); got != x {
			t.Fatalf("jump(%d) is %#x, %d steps give %#x", n, got, n, x)
		}
		x = next(x)
	}
	if got := times(jump(1<<40), jump(12345)); got != jump(1<<40+12345) {
		t.Errorf("jumps of 2^40 and 12345 give %#x, one of both %#x", got, jump(1<<40+12345))
	}
}

// program returns the path of prk, or of cohort.
func program(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(programs.Build(t, "cmd/cohort", "bench/prk"), name)
}

// check runs a job of a kernel and looks at the line that it prints.
func check(t *testing.T, cmd *exec.Cmd, kernel string, ranks int, backend string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("%s on %d ranks over %s: result verified; ", kernel, ranks, backend); err != nil || strings.Count(string(out), want) != 1 {
		t.Errorf("%v: %v\n%s\nwant one line with %q", cmd, err, out, want)
	}
}

// With -short each kernel and setting runs over one of two backends, in turn.
func TestKernelsRunAsProcesses(t *testing.T) {
	for i, backend := range []string{"shm", "tcp"} {
		for j, args := range small {
			if testing.Short() && (i+j)%2 != 0 {
				continue
			}
			cmd := exec.Command(program(t, "cohort"), append([]string{"run", "-n", "2", "--backend", backend, program(t, "prk")}, args...)...)
			check(t, cmd, args[0], 2, backend)
		}
	}
}
