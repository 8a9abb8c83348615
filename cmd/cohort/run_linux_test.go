package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRunReturnsStatusAndOutput(t *testing.T) {
	for _, c := range []struct {
		line    []string
		status  int
		stdout  string // in any order of lines
		message string
	}{
		{[]string{"run", "-n", "2", "sh", "-c", "echo $COHORT_RANK/$COHORT_SIZE"}, 0, "[0] 0/2\n[1] 1/2\n", ""},
		{[]string{"run", "-n", "1", "--tag=false", "echo", "-n", "--tag"}, 0, "--tag", ""},
		{[]string{"run", "-n", "3", "sh", "-c", "test $COHORT_RANK != 1 || exit 9; exec sleep 1000"}, 9, "",
			"cohort: rank 1 exited with status 9 after "},
		{[]string{"run", "-n", "2", "--timeout", "300ms", "sleep", "1000"}, 124, "", "did not end within 300ms (--timeout)"},
		{[]string{"run", "-n", "2", "sh", "-c", "test $COHORT_RANK = 0 || kill -9 $$; exec sleep 1000"}, 137, "",
			"cohort: rank 1 was killed by signal 9 (killed) after "},
	} {
		status, stdout, stderr := run(t, c.line...)
		if status != c.status || !strings.Contains(stderr, c.message) || !sameLines(stdout, c.stdout) {
			t.Errorf("%q: status %d, want %d\nstdout:\n%s\nstderr:\n%s", c.line, status, c.status, stdout, stderr)
		}
	}
}

// sameLines reports whether two texts have the same lines, each once.
func sameLines(a, b string) bool {
	for line := range strings.Lines(b) {
		if strings.Count(a, line) != 1 {
			return false
		}
	}
	return len(a) == len(b)
}

func TestRunStartsOneRankForEachProcessor(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := run(t, "run", "sh", "-c", "echo $COHORT_SIZE; grep Cpus_allowed_list /proc/self/status")
	n, _ := strconv.Atoi(strings.TrimSpace(stdout[strings.Index(stdout, "] ")+2 : strings.Index(stdout, "\n")]))
	if n < 1 || n > set.Count() { // a control group may allow less than the mask
		t.Fatalf("%d ranks on %d processors:\n%s%s", n, set.Count(), stdout, stderr)
	}
	places := map[string]bool{}
	for line := range strings.Lines(stdout) {
		if _, cpus, ok := strings.Cut(line, "Cpus_allowed_list:"); ok {
			places[strings.TrimSpace(cpus)] = true
		}
	}
	if len(places) != n {
		t.Errorf("%d ranks have %d places:\n%s", n, len(places), stdout)
	}
}

// waiting is a Go program that prints its process ID and waits.
func waiting(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/waiting\n\ngo 1.26\n",
		"main.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"time\"\n)\n\nfunc main() {\n\tfmt.Println(\"pid\", os.Getpid())\n\ttime.Sleep(time.Hour)\n}\n", // on purpose: it runs until it is killed
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// hold returns a descriptor that becomes readable when a process ends.
func hold(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func awaitEnd(t *testing.T, what string, fd int) {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(patience.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			t.Errorf("%s does not end (%v)", what, err)
		}
		return
	}
}

func TestKilledLauncherLeavesNothing(t *testing.T) {
	for _, backend := range []string{"shm", "tcp"} {
		t.Run(backend, func(t *testing.T) { killLauncher(t, backend) })
	}
}

func killLauncher(t *testing.T, backend string) {
	tmp := t.TempDir()
	cmd := cohortCommand(t, "run", "-n", "2", "--backend", backend, waiting(t))
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ranks := map[int]bool{}
	for s := bufio.NewScanner(out); len(ranks) < 2 && s.Scan(); {
		var rank, pid int
		if _, err := fmt.Sscanf(s.Text(), "[%d] pid %d", &rank, &pid); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		ranks[pid] = true
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "cohort-run-*")); len(left) != 2 {
		t.Errorf("while it runs, %s has %v, want the folders of the program and of the job", tmp, left)
	}
	var lives []int
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", cmd.Process.Pid, task.Name()))
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			lives = append(lives, hold(t, pid)) // ranks, and the keeper
		}
	}
	if len(lives) != 3 {
		t.Errorf("the launcher has %d processes, want 2 ranks and the keeper", len(lives))
	}
	cmd.Process.Kill()
	for _, fd := range lives {
		awaitEnd(t, "a process of the launcher's", fd)
	}
	cmd.Wait()
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestInterruptEndsBuild has the go command call a tool that creates a temporary folder, as the linker does, reports when it
// runs, and then never ends.
func TestInterruptEndsBuild(t *testing.T) {
	tmp, dir := t.TempDir(), t.TempDir()
	fifo, tool := filepath.Join(dir, "fifo"), filepath.Join(dir, "tool")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nmktemp -d >/dev/null\necho $$ > "+fifo+"\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := cohortCommand(t, "run", "-n", "2", waiting(t))
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp, "GOFLAGS=-toolexec="+tool)
	errs := new(strings.Builder)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(fifo) // waits for the tool
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.Fields(string(said))[0])
	life := hold(t, pid)
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(errs.String(), "stopped while building: interrupt") {
		t.Errorf("status %d, want 130; stderr:\n%s", got, errs)
	}
	awaitEnd(t, "the build's tool", life)
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestResilientJobContinuesAfterLossOfRank(t *testing.T) {
	// Others end when the launcher has seen the end of rank 1.
	const rest = `; cd $COHORT_RUN_DIR; if test $COHORT_RANK = 1; then echo $$ >new; mv new pid; %s; fi
		until test -f pid; do sleep 0.01; done; while kill -0 $(cat pid) 2>/dev/null; do sleep 0.01; done; echo done`
	for _, c := range []struct {
		name, script string
		options      []string
		status       int
		message      string
	}{
		{"option", ":" + fmt.Sprintf(rest, "kill -9 $$"), []string{"--resilient"}, 0, "; the job goes on with 2 ranks\n"},
		{"program", ": >$COHORT_RUN_DIR/resilient" + fmt.Sprintf(rest, "exit 7"), nil, 0,
			"cohort: rank 1 exited with status 7 after "},
		{"neither", "test $COHORT_RANK != 1 || exit 7; exec sleep 1000", nil, 7, "; ending the others\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			line := append(append([]string{"run", "-n", "3"}, c.options...), "sh", "-c", c.script)
			status, stdout, stderr := run(t, line...)
			if status != c.status || !strings.Contains(stderr, c.message) {
				t.Errorf("status %d, want %d; stderr:\n%s", status, c.status, stderr)
			}
			if done := strings.Count(stdout, "done"); c.status == 0 && done != 2 {
				t.Errorf("%d ranks went on, want 2:\n%s", done, stdout)
			}
		})
	}
}
