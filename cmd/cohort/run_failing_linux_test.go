package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func init() { rankPrograms["failing-rank"] = failingRank }

// failingRank is a rank of three of which rank 1 fails in one way or another, while the others wait for it.
func failingRank(how string) int {
	if how == "returns" { // and all others do
		_, err := cohort.Init(context.Background(), nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return 0
	}
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		err := errors.New("open input.csv: no such file")
		switch {
		case how == "circle":
			if world.Rank() == 0 {
				go func() {
					awaitRanks([]int{0, 1, 2}, in("Recv"))
					syscall.Kill(os.Getppid(), syscall.SIGTERM)
				}()
			}
			_, err := cohort.Recv(world, make([]int64, 1), (world.Rank()+1)%world.Size(), 7)
			return err
		case how == "late" && world.Rank() == 2:
			_, err := cohort.Recv(world, make([]int64, 1), 1, 7)
			return err
		case how == "late":
			if world.Rank() == 0 { // the others learn of the signal from its collective
				go func() {
					awaitRanks([]int{0, 1}, in("Barrier"))
					awaitRanks([]int{2}, in("Recv"))
					syscall.Kill(os.Getpid(), syscall.SIGTERM)
				}()
			}
			return world.Barrier()
		case how == "joined":
			if world.Rank() != 1 {
				err = nil
			}
			return cohort.JoinErrors(world, err)
		case world.Rank() != 1:
			return world.Barrier()
		case how == "exits":
			os.Exit(0)
		case how == "panic":
			panic(err)
		}
		return err
	})
	return 0
}

// patient gives ranks the time to end by themselves: that they are slow decides nothing.
const patient = "--grace=10m"

// A rank's error is printed, and the others print that they end because of it. The launcher reports that rank,
// although it has waited for the others to end.
func TestRunReportsRankThatFailed(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const text = "open input.csv: no such file"
	check := func(t *testing.T, how string, line ...string) {
		status, stdout, stderr := run(t, append(line, "-n", "3", patient, exe, "failing-rank", how)...)
		say := func(rank int, error string) string { return fmt.Sprintf("[%d] rank %[1]d: %s", rank, error) }
		own := map[string]string{"error": text, "panic": "panic: " + text, "joined": text}[how] // named once
		wants := map[string]int{say(1, own): 1, "cohort: rank 1 exited with status 1 after ": 1, "cohort: rank 1 failed: ": 1}
		if how == "joined" {
			wants[say(0, "rank 1: "+own)], wants[say(2, "rank 1: "+own)] = 1, 1
		} else { // or "communicator is broken: peer lost: "
			wants["[0] barrier: rank 0: "], wants["[2] barrier: rank 2: "], wants["peer lost: rank 1 failed: "+own+"\n"] = 1, 1, 2
		}
		for want, times := range wants {
			if n := strings.Count(stderr, want); status != 1 || n != times {
				t.Errorf("status %d, want 1; %q %d times, want %d\n%s%s", status, want, n, times, stdout, stderr)
			}
		}
		if strings.Contains(stderr, "good order") {
			t.Errorf("a failed rank has left in good order:\n%s", stderr)
		}
	}
	for _, c := range sample([][2]string{{"error", "shm"}, {"error", "tcp"}, {"panic", "shm"}, {"panic", "tcp"}, {"joined", "shm"}, {"joined", "tcp"}}, 0, 3, 4) {
		t.Run(c[0]+"/"+c[1], func(t *testing.T) { check(t, c[0], "run", "--backend", c[1]) })
	}
	t.Run("hosts", func(t *testing.T) {
		n := newNetwork(t)
		line := n.line("--hosts", "127.0.0.1,127.0.0.2")
		status, stdout, stderr := run(t, append(line, "-n", "3", patient, exe, "failing-rank", "error")...)
		if first := strings.Index(stderr, "cohort: rank "); status != 1 || first < 0 || !strings.HasPrefix(stderr[first:], "cohort: rank 1 on ") {
			t.Errorf("status %d, want 1 and a report of rank 1 first\n%s%s", status, stdout, stderr)
		}
	})
}

// Ranks that wait end by a signal, which reaches one of them before the others. The launcher's report is still what they
// waited for.
func TestRunReportsWhatRanksWaitedFor(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	blames := regexp.MustCompile(`cohort: rank \d failed`)
	for how, want := range map[string]string{
		"circle": "rank 2 was in Recv from 0, tag 7: each waits for the next",
		"late":   "cohort: rank 2 has not reached Barrier #0, where ranks 0, 1 had waited",
	} {
		status, _, stderr := run(t, "run", "-n", "3", patient, exe, "failing-rank", how)
		if status != 1 || !strings.Contains(stderr, want) || blames.MatchString(stderr) {
			t.Errorf("%s: status %d, want 1 and %q\n%s", how, status, want, stderr)
		}
	}
}

// A rank ends with status 0 and has not closed its world, while others wait for it or not. The job fails, and the launcher
// reports that rank first.
func TestRunReportsRankWithoutClose(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, first := range map[string]string{"exits": "cohort: rank 1 ", "returns": "cohort: rank "} {
		for name, line := range map[string][]string{
			"shm": {"run", "--backend", "shm"}, "tcp": {"run", "--backend", "tcp"}, "hosts": newNetwork(t).line("--hosts", "127.0.0.1,127.0.0.2"),
		} {
			if testing.Short() && (how == "returns") != (name == "tcp") {
				continue
			}
			t.Run(how+"/"+name, func(t *testing.T) {
				status, _, stderr := run(t, append(line, "-n", "3", patient, exe, "failing-rank", how)...)
				at := strings.Index(stderr, "cohort: rank ")
				if at < 0 || status != 1 {
					t.Fatalf("status %d, want 1 and a report:\n%s", status, stderr)
				}
				report, _, _ := strings.Cut(stderr[at:], "\n")
				if !strings.HasPrefix(report, first) || !strings.Contains(report, "exited with status 0 without closing its world (Close)") {
					t.Errorf("the first report is %q, want one of %s that has not called Close:\n%s", report, strings.TrimPrefix(first, "cohort: "), stderr)
				}
			})
		}
	}
}
