package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// verdictProgram makes a copy of the test binary be one of three ranks, of which some fail. With --hosts, rank 2 is on
// another host than ranks 0 and 1.
const verdictProgram = "verdict-rank"

func init() {
	rankPrograms[verdictProgram] = func(how string) (status int) {
		cohort.Main(func(ctx context.Context, world *cohort.Comm) error { return verdictRank(ctx, world, how) })
		return 0
	}
}

func verdictRank(ctx context.Context, world *cohort.Comm, how string) error {
	rank := world.Rank()
	if err := world.Barrier(); err != nil {
		return err
	}
	switch how {
	case "next 0 aborts", "next 1 aborts": // rank 0 dies, and the others join the next world, whose rank aborts the job
		if rank == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		err := world.Barrier()
		for err != nil && errors.Is(err, cohort.ErrPeerLost) && world.Generation() == 0 {
			world, err = cohort.Rejoin(ctx, world)
		}
		if err == nil {
			err = world.Barrier()
		}
		if err == nil && how == fmt.Sprintf("next %d aborts", world.Rank()) {
			world.Abort(7)
		}
		if err == nil {
			err = world.Barrier()
		}
		return err
	case "rank 2 reacts": // rank 0 fails, and rank 2, told of that, aborts the job
		if rank == 0 {
			os.Exit(3)
		}
		err := world.Barrier()
		if rank == 2 {
			world.Abort(9)
		}
		return err
	}
	return fmt.Errorf("no case %q", how)
}

// TestVerdictIsTheSameOnHosts checks that a job on several hosts ends as one on this machine does, though a host knows only what
// its own ranks have left in its folder.
func TestVerdictIsTheSameOnHosts(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t)
	script := func(text string) []string { return []string{"sh", "-c", "cd $COHORT_VERDICT_DIR; " + text} }
	const ask = "test $COHORT_RANK = 2 || : >$COHORT_RUN_DIR/resilient; " // as Config.Resilient does
	for _, c := range []struct {
		name   string
		line   []string
		status int
		said   []string
	}{
		{"rank 1 aborts as rank 0 of the next world", []string{"--resilient", exe, verdictProgram, "next 0 aborts"}, 7, []string{"rank 1@ aborted the job with code 7 after "}},
		{"rank 2 aborts as rank 1 of the next world", []string{"--resilient", exe, verdictProgram, "next 1 aborts"}, 7, []string{"rank 2@ aborted the job with code 7 after "}},
		{"Abort because of a failure", []string{exe, verdictProgram, "rank 2 reacts"}, 3, []string{"rank 0@ exited with status 3 after "}},
		{"Abort because of a failure, resilient", []string{"--resilient", exe, verdictProgram, "rank 2 reacts"}, 9, []string{"rank 2@ aborted the job with code 9 after "}},
		{"Abort because of a failure, elastic", []string{"--elastic", "1:3", exe, verdictProgram, "rank 2 reacts"}, 9, []string{"rank 2@ aborted the job with code 9 after "}},
		{"ranks of one host ask that the job goes on", script(ask + `case $COHORT_RANK in
			2) until test -e 0 && test -e 1; do sleep 0.01; done; exit 3;;
			*) : >$COHORT_RANK; until grep -q "rank 2.*exited" stderr; do sleep 0.01; done; esac`), 0,
			[]string{"rank 2@ exited with status 3 after ", "; the job goes on with 2 ranks\n"}},
		{"and one of another host is stopped", script(ask + `case $COHORT_RANK in
			2) echo $$ >pid; mv pid 2; kill -STOP $$;;
			*) until test -e 2 && grep -q "State:.T" /proc/$(cat 2)/status; do sleep 0.01; done; esac`), 0,
			[]string{"rank 2 is stopped, and all others have ended; ending it\n"}},
	} {
		for where, place := range map[string][]string{"shm": {"run", "--backend", "shm"}, "tcp": {"run", "--backend", "tcp"}, "hosts": n.line("--hosts", "127.0.0.1,127.0.0.2")} {
			t.Run(c.name+", "+where, func(t *testing.T) {
				folder := t.TempDir()
				t.Setenv("COHORT_VERDICT_DIR", folder)
				cmd := cohortCommand(t, append(append(place, "-n", "3", "--bind", "none", "--timeout", "1m"), c.line...)...)
				file, err := os.Create(filepath.Join(folder, "stderr"))
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				cmd.Stderr = file
				cmd.Run() // its status follows
				if got := cmd.ProcessState.ExitCode(); got != c.status {
					t.Errorf("status %d, want %d", got, c.status)
				}
				b, err := os.ReadFile(file.Name())
				if err != nil {
					t.Fatal(err)
				}
				stderr := string(b)
				for _, part := range c.said {
					for rank, host := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.2"} {
						on := ""
						if where == "hosts" {
							on = " on " + host
						}
						part = strings.ReplaceAll(part, fmt.Sprintf("rank %d@", rank), fmt.Sprintf("rank %d%s", rank, on))
					}
					if !strings.Contains(stderr, part) {
						t.Errorf("does not say %q", part)
					}
				}
				if t.Failed() {
					t.Logf("stderr:\n%s", stderr)
				}
			})
		}
	}
	n.nothingLeft(t)
}
