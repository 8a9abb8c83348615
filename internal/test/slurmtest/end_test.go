//go:build cgo && linux && !cohort_nompi

package slurmtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// until waits until another process has done something.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) { // poll
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// running reports whether a process exists and has not ended.
func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := bytes.Cut(b, []byte(") "))
	return err == nil && len(state) > 0 && state[0] != 'Z' && state[0] != 'X'
}

// staying reads the process ids that n programs print.
func staying(t *testing.T, out io.Reader, n int) (pids []int) {
	t.Helper()
	for in := bufio.NewScanner(out); len(pids) < n && in.Scan(); {
		pid, err := strconv.Atoi(strings.TrimPrefix(in.Text(), "staying "))
		if err != nil {
			t.Fatalf("got %q", in.Text())
		}
		pids = append(pids, pid)
	}
	if len(pids) < n {
		t.Fatalf("%d of %d processes run", len(pids), n)
	}
	return pids
}

// TestKilledRankEndsStep kills a rank. With --kill-on-bad-exit, as in the job scripts, the step
// ends with any library.
func TestKilledRankEndsStep(t *testing.T) {
	program, env := self(t, "die")
	each(t, func(t *testing.T, c *cluster, l library) {
		cmd := c.command(t, append(l.env, env...), "srun", "-N1", "-n3", "--overcommit", "--mpi="+l.mpi, "--kill-on-bad-exit=1", program)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err == nil || cmd.ProcessState.ExitCode() < 1 || !strings.Contains(errs.String(), "task 1: Killed") {
			t.Fatalf("%v: %v\n%s%s", cmd, err, out, &errs)
		}
		for _, pid := range staying(t, bytes.NewReader(out), 3) {
			until(t, fmt.Sprintf("rank of process %d", pid), func() bool { return !running(pid) })
		}
	})
}

// TestScancelEndsStubbornRanks cancels a job whose ranks ignore the signal to end.
func TestScancelEndsStubbornRanks(t *testing.T) {
	program, env := self(t, "stay")
	each(t, func(t *testing.T, c *cluster, l library) {
		t.Parallel() // most of it is the time that Slurm gives ranks to end
		name := "stay-" + l.mpi
		cmd := c.command(t, append(l.env, env...), "srun", "-N2", "-n3", "--overcommit", "--mpi="+l.mpi, "--job-name="+name, program)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids := staying(t, out, 3)
		for _, pid := range pids {
			if !running(pid) {
				t.Errorf("process %d does not run", pid)
			}
		}
		c.must(t, nil, "scancel", "--name="+name)
		cmd.Wait() // Slurm decides the status
		for _, pid := range pids {
			until(t, fmt.Sprintf("rank of process %d", pid), func() bool { return !running(pid) })
		}
	})
}

// leftOf returns the processes that were started to use the Slurm in a folder.
func leftOf(t *testing.T, dir string) (left []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f) // the process may end meanwhile, or be another user's
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && running(pid) && bytes.Contains(append([]byte{0}, b...), []byte("\x00SLURM_CONF="+dir+"/slurm.conf\x00")) {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			left = append(left, fmt.Sprintf("%d %s", pid, bytes.TrimSpace(name)))
		}
	}
	return left
}

// another starts a separate Slurm, with tasks that stay and have child processes without their
// environment.
func another(t *testing.T, start func(dir string)) (dir string, pids []int) {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(script, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stop: %v\n%s", err, out)
		}
	})
	start(dir)
	jobs := exec.Command("srun", "-N1", "-n3", "--overcommit", "sh", "-c", `trap "" TERM; env -i sleep 1000 & echo staying $!; wait`)
	jobs.Env = append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf")
	out, err := jobs.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { jobs.Wait() }) // the test kills them
	pids = staying(t, out, 3)
	if left := leftOf(t, dir); len(left) < 3+1+3 { // daemons, a slurmstepd, the tasks, srun
		t.Fatalf("got only %q", left)
	}
	return dir, pids
}

// holder is a program that has started a Slurm and does not end.
func holder() int {
	hold := exec.Command(script, "hold", os.Args[1])
	hold.Stdout, hold.Stderr = os.Stdout, os.Stderr
	in, err := hold.StdinPipe()
	if err == nil {
		err = hold.Start()
	}
	if err == nil {
		err = hold.Wait()
	}
	fmt.Fprintln(os.Stderr, in, err)
	return 1
}

// TestSlurmStopsWhenHolderIsKilled kills the process that scripts/slurm hold serves: Slurm stops,
// and nothing of it or its jobs is left.
func TestSlurmStopsWhenHolderIsKilled(t *testing.T) {
	installed(t)
	program, env := self(t, "holder")
	var cmd *exec.Cmd
	var out *os.File // which ends when the script does
	dir, pids := another(t, func(dir string) {
		cmd = exec.Command(program, dir)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stderr = os.Stderr
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		out, cmd.Stdout = r, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		line := make([]byte, len("ready\n"))
		if _, err := io.ReadFull(r, line); err != nil || string(line) != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("the script prints %q, %v", rest, err)
	}
	gone(t, dir, pids)
}

// TestStopEndsJobsWithoutDaemons kills the daemons and leaves the jobs: stop ends them too.
func TestStopEndsJobsWithoutDaemons(t *testing.T) {
	installed(t)
	dir, pids := another(t, func(dir string) {
		// The daemons must not inherit the pipe that this reads.
		if out, err := exec.Command(script, "start", dir).CombinedOutput(); err != nil {
			t.Fatalf("start: %v\n%s", err, out)
		}
	})
	if out, err := exec.Command(script, "start", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "scripts/slurm stop "+dir) {
		t.Errorf("a second start: %v\n%s", err, out)
	}
	lines, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		pid, err := strconv.Atoi(strings.Fields(line)[0])
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(script, "stop", dir).CombinedOutput(); err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	gone(t, dir, pids)
}

// gone checks that nothing is left of a Slurm and its tasks.
func gone(t *testing.T, dir string, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("left: process %d of a task", pid)
		}
	}
	if left := leftOf(t, dir); left != nil {
		t.Errorf("left: %q", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		files, _ := filepath.Glob(dir + "/*")
		t.Errorf("%s still exists, with %q", dir, files)
	}
}

// TestScriptRejectsWrongArguments checks that the script does not touch files that it did not
// create.
func TestScriptRejectsWrongArguments(t *testing.T) {
	installed(t)
	full := t.TempDir()
	mine := filepath.Join(full, "mine")
	if err := os.WriteFile(mine, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"start", full}, 1, "is not empty"},
		{[]string{"stop", full}, 1, "holds no Slurm"},
		{[]string{"run", full, "true"}, 1, "no Slurm was started"},
		{[]string{"start", full + "/a b"}, 1, "reads some of these characters"},
		{[]string{"start", full + "/" + strings.Repeat("x", 60)}, 1, "at most 60"},
		{[]string{"start", full + "/s", "many"}, 2, "start DIR [NODES]"},
		{[]string{"walk", full}, 2, "start DIR [NODES]"},
		{[]string{"stop", full + "/none"}, 0, ""},
	} {
		cmd := exec.Command(script, k.args...)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != k.status || !strings.Contains(string(out), k.says) {
			t.Errorf("%q: status %d, %q, want %d, %q", k.args, cmd.ProcessState.ExitCode(), out, k.status, k.says)
		}
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
