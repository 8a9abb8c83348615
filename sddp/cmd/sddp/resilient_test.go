//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// markEnv names the job of a test in the environment of its ranks.
const markEnv = "SDDP_TEST_MARK"

// rankOf returns the process of a rank of a marked job, or nil if it has ended.
func rankOf(t *testing.T, mark string, rank int) *os.Process {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		env, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended, or belongs to another user
		}
		vars := strings.Split(string(env), "\x00")
		if slices.Contains(vars, markEnv+"="+mark) && slices.Contains(vars, "COHORT_RANK="+strconv.Itoa(rank)) {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			p, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	return nil
}

// A job continues when ranks are killed at random moments of the training or the simulation, rank 0
// included: without them, or with others in their places. It gives the bits of an undisturbed job and repeats at most an
// iteration for each.
func TestJobContinuesWhenRanksAreKilled(t *testing.T) {
	const ranks = 4
	scenarios := "600"
	if testing.Short() {
		scenarios = "200"
	}
	args := with(checkpointArgs, "--scenarios", scenarios)
	want, tool := checkpointResult(t, args), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	jobs := []struct {
		backend  string
		replaced bool
		most     int // ranks that are killed
	}{
		{"shm", false, ranks - 1},
		{"tcp", true, ranks - 1},
		{"tcp", false, 1}, // of less than half, the others may be alive
	}
	rounds := 3
	if testing.Short() {
		rounds, jobs = 1, jobs[:1]
	}
	for _, k := range jobs {
		backend, launcher, command := k.backend, []string{"--restarts", "10"}, args
		if !k.replaced {
			launcher, command = nil, with(args, "--resilient")
		}
		losses := 0
		for round := range rounds {
			victims := rng.Perm(ranks)[:1+rng.IntN(k.most)]
			if round == 0 {
				victims = []int{0, 2}[:min(2, k.most)]
			}
			least := ranks
			if !k.replaced {
				least -= len(victims)
			}
			out := t.TempDir()
			mark := fmt.Sprintf("%s-%v-%d-%d", backend, k.replaced, seed, round)
			cmd := exec.Command(tool, slices.Concat([]string{"run", "--backend", backend, "--tag=false", "-n", strconv.Itoa(ranks)}, launcher, []string{exe}, command, []string{"--out", out})...)
			cmd.Env = append(os.Environ(), asCommand+"=1", markEnv+"="+mark)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			pipe, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Each dies soon after an iteration; the simulation follows the last one.
			at := map[int]int{}
			for _, v := range victims {
				at[v] = 1 + rng.IntN(want.Iterations)
			}
			var said strings.Builder
			printed := 0
			for lines := bufio.NewScanner(pipe); lines.Scan(); {
				fmt.Fprintln(&said, lines.Text())
				if !iterationLine.MatchString(lines.Text()) {
					continue
				}
				printed++
				for _, v := range victims {
					if at[v] > printed {
						continue
					}
					if p := rankOf(t, mark, v); p != nil {
						if err := p.Kill(); err != nil && err != os.ErrProcessDone {
							t.Fatal(err)
						}
					}
					at[v] = 1 << 30
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%s, without ranks %v: %v\n%s", backend, victims, err, &said)
			}
			got, lost := lastLine(t, stdout.String()), strings.Count(stdout.String(), "During the run: lost rank")
			losses += lost
			// On a slow machine the job may end before its ranks are killed.
			if got.Ranks < least || !k.replaced && (got.Ranks == ranks) != (lost == 0) {
				t.Errorf("%s, without ranks %v: %d ranks finished, and %d losses are reported\n%s", backend, victims, got.Ranks, lost, &said)
			}
			got.Seconds, got.Ranks = want.Seconds, want.Ranks
			if got != want {
				t.Errorf("%s, without ranks %v: %+v, want %+v\n%s", backend, victims, got, want, &said)
			}
			if printed > want.Iterations+len(victims) {
				t.Errorf("%s, without ranks %v: %d iterations were printed\n%s", backend, victims, printed, &said)
			}
			if _, err := os.Stat(filepath.Join(out, "policy.json")); err != nil {
				t.Errorf("%s, without ranks %v: %v", backend, victims, err)
			}
		}
		if losses == 0 {
			t.Errorf("%+v: no job has lost a rank", k)
		}
	}
}

// After the loss of rank 0 the new first rank reacts to a signal and prints how to continue.
func TestSignalSavesCheckpointAfterLoss(t *testing.T) {
	dir, mark := t.TempDir(), "stopped-"+strconv.Itoa(os.Getpid())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := with(checkpointArgs, "--iterations", "100000", "--checkpoint", dir, "--resilient")
	cmd := exec.Command(cohortTool(t), with([]string{"run", "--backend", "shm", "--tag=false", "-n", "3", exe}, args...)...)
	cmd.Env = append(os.Environ(), asCommand+"=1", markEnv+"="+mark)
	lines := afterIteration(t, cmd, 2)
	first := rankOf(t, mark, 0)
	if first == nil {
		t.Fatal("rank 0 is not running")
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	// The launcher must have noticed too, or it takes the loss for an effect of the signal.
	lost, noticed := false, false
	for lines.Scan() && !(lost && noticed && iterationLine.MatchString(lines.Text())) {
		lost = lost || strings.HasPrefix(lines.Text(), "sddp: warning: lost rank 0; ")
		noticed = noticed || strings.HasPrefix(lines.Text(), "cohort: ")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "sddp: ") {
			said = append(said, lines.Text())
		}
	}
	err = cmd.Wait()
	saved, e := filepath.Glob(filepath.Join(dir, "checkpoint-*.bin"))
	if e != nil || len(saved) == 0 {
		t.Fatalf("the folder holds %v (%v), want a checkpoint", saved, e)
	}
	var n int
	newest := filepath.Base(saved[len(saved)-1])
	if _, err := fmt.Sscanf(newest, "checkpoint-%d.bin", &n); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("sddp: stopped by SIGTERM; continue with --resume %s (%d iterations are saved)", dir, n)
	if !slices.Equal(said, []string{want}) || cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("ended with %v, and said %q, want %q", err, said, want)
	}
}

// A job whose processes are all killed, with or without the launcher, resumes from the last checkpoint.
func TestKilledJobResumes(t *testing.T) {
	const ranks = 2
	want, tool := checkpointResult(t, checkpointArgs), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, backend := range []string{"shm", "tcp"} {
		for _, launcher := range []bool{false, true} {
			if testing.Short() && launcher != (i == 0) {
				continue
			}
			dir, mark := t.TempDir(), fmt.Sprintf("killed-%s-%v-%d", backend, launcher, os.Getpid())
			args := with(checkpointArgs, "--iterations", "100000", "--checkpoint", dir, "--checkpoint-every", "1")
			cmd := exec.Command(tool, with([]string{"run", "--backend", backend, "--tag=false", "-n", strconv.Itoa(ranks), exe}, args...)...)
			cmd.Env = append(os.Environ(), asCommand+"=1", markEnv+"="+mark)
			lines := afterIteration(t, cmd, 3) // the first is saved then: writing the second waits for it
			victims := []*os.Process{cmd.Process}
			if !launcher {
				victims = victims[:0]
				for r := range ranks {
					victims = append(victims, rankOf(t, mark, r))
				}
			}
			for r, p := range victims {
				if p == nil {
					t.Fatalf("%s: rank %d is not running", backend, r)
				}
				if err := p.Kill(); err != nil && err != os.ErrProcessDone { // the launcher may have killed it after the first one
					t.Fatal(err)
				}
			}
			for lines.Scan() { // until all writers have exited
			}
			if err := cmd.Wait(); err == nil {
				t.Fatalf("%s: the job finished", backend)
			}
			// If the job went further than requested now, the result is its state at that iteration.
			if errs := goesOn(t, want, with(checkpointArgs, "--resume", dir)...); strings.Contains(errs, "damaged") {
				t.Errorf("%s: resumed, it printed %s", backend, errs)
			}
		}
	}
}
