package spawn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
)

func init() {
	programs["starter"] = starterProgram
	programs["become"] = becomeProgram
}

// launched returns a Config of a job whose ranks another program starts: the test
// binary as a launcher that behaves in the way given.
func launched(t *testing.T, ranks int, way, name string, args ...string) Config {
	t.Helper()
	cfg := program(t, ranks, name, args...)
	cfg.Backend = "mpi"
	cfg.Launch = &Launch{
		Name: "starter", Command: "/usr/bin/env",
		Args: []string{envProgram + "=starter", cfg.Programs[0].Path, way, strconv.Itoa(ranks)},
		Rank: []string{"/usr/bin/env", envProgram + "=become", cfg.Programs[0].Path},
		Env:  []string{envProgram + "=" + name},
	}
	return cfg
}

// starterProgram is a launcher: WAY RANKS COMMAND. It starts the command as many
// times, each in its own session, and waits for all. WAY says what it does when one
// fails, and what else it does wrong.
func starterProgram(args []string) {
	way := args[0]
	ranks, _ := strconv.Atoi(args[1])
	switch way {
	case "fewer":
		ranks--
	case "none", "stubborn":
		if way == "stubborn" {
			signal.Ignore(syscall.SIGTERM)
		}
		fmt.Println("ready")
		time.Sleep(time.Hour) // on purpose: it runs until it is killed
	case "broken":
		fmt.Println("no slots for", ranks)
		os.Exit(3)
	}
	cmds := map[int]*exec.Cmd{}
	for i := range ranks {
		rank := i
		if way == "twice" {
			rank = 0
		}
		cmd := exec.Command(args[2], args[3:]...)
		cmd.Env = append(os.Environ(), EnvRank+"="+strconv.Itoa(rank), EnvSize+"="+strconv.Itoa(ranks))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		cmds[cmd.Process.Pid] = cmd
	}
	if way == "leave" {
		os.Exit(0)
	}
	worst := 0
	for range ranks {
		var w syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &w, 0, nil)
		for err == syscall.EINTR {
			pid, err = syscall.Wait4(-1, &w, 0, nil)
		}
		delete(cmds, pid)
		status := w.ExitStatus()
		if w.Signaled() {
			status = int(w.Signal()) // as Hydra does
		}
		if status != 0 && worst == 0 {
			worst = status
			if way == "abort" {
				worst = 7
			}
			fmt.Println("rank of process", pid, "failed")
		}
		switch {
		case way == "break" && status != 0:
			os.Exit(255) // as Hydra does
		case way == "hang" && status != 0:
			signal.Ignore(syscall.SIGTERM)
			time.Sleep(time.Hour) // on purpose: it runs until it is killed
		}
		if way == "kill" && status != 0 || way == "abort" {
			for other := range cmds {
				syscall.Kill(other, syscall.SIGKILL)
			}
		}
	}
	os.Exit(worst)
}

// becomeProgram is what a starter starts.
func becomeProgram(args []string) {
	rank, _ := strconv.Atoi(os.Getenv(EnvRank))
	size, _ := strconv.Atoi(os.Getenv(EnvSize))
	fmt.Println(Become(args[0], rank, size))
	os.Exit(2)
}

func TestLaunchedJobReturnsStatus(t *testing.T) {
	for _, c := range []struct {
		way     string
		fates   []string
		status  int
		first   int
		message string
	}{
		{"plain", []string{"0=0", "1=0", "2=0"}, 0, -1, ""},
		{"plain", []string{"1=9"}, 9, 1, "cohort: rank 1 exited with status 9 after "}, // the launcher itself would wait
		{"plain", []string{"2=signal9"}, 137, 2, "cohort: rank 2 was killed by signal 9 (killed) after "},
		{"plain", []string{"2=signal1"}, 129, 2, "cohort: rank 2 was killed by signal 1 (hangup) after "},
		{"kill", []string{"1=3"}, 3, 1, "cohort: rank 1 exited with status 3 after "},
		{"kill", []string{"1=signal9"}, 137, 1, "cohort: rank 1 was killed by signal 9 (killed) after "},
		{"kill", []string{"2=signal15"}, 143, 2, "cohort: rank 2 was killed by signal 15 (terminated) after "},
		{"break", []string{"1=signal15"}, 143, 1, "cohort: rank 1 was killed by signal 15 (terminated) after "},
		{"hang", []string{"1=signal15"}, 143, 1, "cohort: rank 1 was killed by signal 15 (terminated) after "},
		{"hang", []string{"1=5"}, 5, 1, "cohort: rank 1 exited with status 5 after "},
		// The launcher ends the others as configured, and prints the status.
		{"abort", []string{"0=0"}, 7, -1, "cohort: starter exited with status 7 after "},
		{"fewer", nil, 1, -1, "cohort: starter started 2 ranks, want 3"},
		{"twice", nil, 1, -1, "cohort: starter started rank 0 of 3 twice"},
		{"broken", nil, 3, -1, "starter: no slots for 3\ncohort: starter exited with status 3 after "},
	} {
		t.Run(c.way+strings.Join(c.fates, ","), func(t *testing.T) {
			cfg := launched(t, 3, c.way, "exit", c.fates...)
			r := wait(t, start(t, cfg))
			said := cfg.Stderr.(*buffer).String()
			if r.Status != c.status || r.First != c.first || !strings.Contains(said, c.message) || (r.First < 0) != (r.Err != nil) && c.status != 0 {
				t.Errorf("got %+v, want status %d of rank %d; stderr:\n%s", r, c.status, c.first, said)
			}
		})
	}
}

// TestLauncherReportsStatusThatKernelDoesNot has the system not say how a rank ended, as Linux
// before 6.15: the launcher's word is taken.
func TestLauncherReportsStatusThatKernelDoesNot(t *testing.T) {
	defer func(f func(int) (syscall.WaitStatus, bool)) { exitStatus = f }(exitStatus)
	exitStatus = func(int) (syscall.WaitStatus, bool) { return 0, false }
	cfg := launched(t, 2, "kill", "exit", "1=3")
	r := wait(t, start(t, cfg))
	if said := cfg.Stderr.(*buffer).String(); r.Status != 3 || r.First != -1 || !strings.Contains(said, "cohort: starter exited with status 3 after ") {
		t.Errorf("got %+v; stderr:\n%s", r, said)
	}
}

// TestLaunchWithoutPidfds simulates a system that reports the ends of children only.
func TestLaunchWithoutPidfds(t *testing.T) {
	defer func(f func() bool) { pidfdsWork = f }(pidfdsWork)
	pidfdsWork = func() bool { return false }
	cfg := program(t, 2, "exit", "0=0", "1=4")
	if r := wait(t, start(t, cfg)); r.Status != 4 || r.First != 1 {
		t.Errorf("children: got %+v; stderr:\n%s", r, cfg.Stderr)
	}
	cfg = launched(t, 2, "kill", "exit", "0=0", "1=4")
	if r := wait(t, start(t, cfg)); r.Status != 4 {
		t.Errorf("got %+v; stderr:\n%s", r, cfg.Stderr)
	}
	cfg = launched(t, 2, "plain", "exit", "0=0", "1=0")
	if r := wait(t, start(t, cfg)); r.Status != 0 || r.Err != nil {
		t.Errorf("got %+v; stderr:\n%s", r, cfg.Stderr)
	}
}

func TestTimeoutEndsLaunchedJob(t *testing.T) {
	for _, way := range []string{"plain", "none", "stubborn"} {
		for _, name := range []string{"wait", "stubborn"} {
			if testing.Short() && (way == "plain") == (name == "stubborn") {
				continue // each way once
			}
			cfg := launched(t, 2, way, name)
			cfg.Timeout = 300 * time.Millisecond
			r := wait(t, start(t, cfg))
			if r.Status != job.StatusTimeout || r.Err == nil || !strings.Contains(cfg.Stderr.(*buffer).String(), "did not end within 300ms (--timeout)") {
				t.Errorf("%s, %s: %+v; stderr:\n%s", way, name, r, cfg.Stderr)
			}
		}
	}
}

// TestInterruptEndsLauncherBeforeRanksStart checks that a launcher that does not get
// as far as to ranks heeds a request to end.
func TestInterruptEndsLauncherBeforeRanksStart(t *testing.T) {
	cfg := launched(t, 2, "none", "wait")
	cfg.Signals = make(chan os.Signal, 1)
	j := start(t, cfg)
	cfg.Stderr.(*buffer).await(t, "starter: ready", 1)
	cfg.Signals <- syscall.SIGINT
	if r := wait(t, j); r.Status != 130 {
		t.Errorf("%+v; stderr:\n%s", r, cfg.Stderr)
	}
}

// TestInterruptEndsWaitForOutput has a launcher fail of which a line cannot be passed on: a signal then ends the
// wait for that, and the job has failed all the same.
func TestInterruptEndsWaitForOutput(t *testing.T) {
	cfg := launched(t, 2, "broken", "wait")
	stderr := &held{free: make(chan struct{})}
	cfg.Stderr, cfg.Signals = stderr, make(chan os.Signal)
	j := start(t, cfg)
	for at := j.launcher.listen.Addr(); ; runtime.Gosched() {
		c, err := net.Dial(at.Network(), at.String())
		if err != nil {
			break // the launcher is seen to have ended, and nothing more of the job's is awaited than that line
		}
		c.Close()
	}
	cfg.Signals <- syscall.SIGINT
	r := wait(t, j)
	close(stderr.free)
	if r.Status != 130 || r.Err == nil {
		t.Errorf("%+v, want status 130", r)
	}
	<-j.launcher.passed
}

// TestLauncherThatStartsNoRankIsAnError has the launcher end with status 0 without ranks.
func TestLauncherThatStartsNoRankIsAnError(t *testing.T) {
	cfg := launched(t, 2, "plain", "wait")
	cfg.Launch.Args = []string{"true"}
	const want = "starter ended without an error, but has not started rank 0"
	r := wait(t, start(t, cfg))
	if text := cfg.Stderr.(*buffer).String(); r.Status != 1 || r.Err == nil || text != "cohort: "+want+"\n" {
		t.Errorf("%+v, stderr %q; want status 1 and %q", r, text, want)
	}
}

// TestRanksThatOutliveLauncherAreEnded checks that ranks are ended that are
// there when their launcher is not any more.
func TestRanksThatOutliveLauncherAreEnded(t *testing.T) {
	cfg := launched(t, 2, "plain", "parent")
	j := start(t, cfg)
	lives := hold(t, pids(t, cfg.Stdout.(*buffer).await(t, "pids", 2)))
	syscall.Kill(j.launcher.proc.Pid, syscall.SIGKILL)
	if r := wait(t, j); r.Status != 137 {
		t.Errorf("%+v; stderr:\n%s", r, cfg.Stderr)
	}
	lives.ended(t)
}

// TestChildrenOfLaunchedRanksAreEnded is the same of ranks' own processes.
func TestChildrenOfLaunchedRanksAreEnded(t *testing.T) {
	cfg := launched(t, 2, "plain", "parent", "leave")
	j := start(t, cfg)
	lives := hold(t, pids(t, cfg.Stdout.(*buffer).await(t, "pids", 2))[1:2])
	if r := wait(t, j); r.Status != 0 || !strings.Contains(cfg.Stderr.(*buffer).String(), "left processes behind; ending them") {
		t.Errorf("%+v; stderr:\n%s", r, cfg.Stderr)
	}
	lives.ended(t)
}

func TestLaunchReportsErrors(t *testing.T) {
	cfg := launched(t, 2, "plain", "exit", "0=0", "1=0")
	cfg.Launch.Command = filepath.Join(t.TempDir(), "none")
	if _, err := Start(cfg); err == nil || !strings.Contains(err.Error(), "starting starter: "+cfg.Launch.Command) {
		t.Errorf("got %v", err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("no script\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg = launched(t, 1, "plain", "exit")
	cfg.Programs[0].Path = script
	r := wait(t, start(t, cfg))
	if said := cfg.Stdout.(*buffer).String(); r.Status != 2 || !strings.Contains(said, "neither a program for ") {
		t.Errorf("%+v: %s", r, said)
	}
	if err := Become("@no such job", 0, 1); err == nil || !strings.Contains(err.Error(), "must be on the same machine") {
		t.Errorf("got %v", err)
	}
}

// TestWatchReportsEndsOfOthersInOrder has children end one after the other, and be waited for
// in the opposite order: the ends come in the first, what they were in the second.
func TestWatchReportsEndsOfOthersInOrder(t *testing.T) {
	f, err := newWatch()
	if err != nil || f == nil {
		t.Fatal(f, err)
	}
	ended, done := make(chan exit, 64), make(chan struct{})
	returned := make(chan struct{})
	const n = 5
	var all []*exec.Cmd
	var ins []*os.File
	for i := range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("read x; exit %d", 10+i))
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if err := f.follow(i, cmd.Process.Pid, nil, -1); err != nil {
			t.Fatal(err)
		}
		all, ins = append(all, cmd), append(ins, w)
	}
	go func() {
		f.run(ended, done)
		close(returned)
	}()
	var order []int
	for _, i := range []int{3, 0, 4, 1, 2} {
		ins[i].Close()
		e := next(t, ended)
		if !e.unknown {
			t.Errorf("rank %d: how it ended is known before it was waited for", e.rank)
		}
		order = append(order, e.rank)
	}
	if !slices.Equal(order, []int{3, 0, 4, 1, 2}) {
		t.Errorf("order %v", order)
	}
	known := 0
	for i := n - 1; i >= 0; i-- {
		var ee *exec.ExitError
		if err := all[i].Wait(); !errors.As(err, &ee) {
			t.Fatal(err)
		}
		if !kernelReportsStatus(t) {
			continue
		}
		if e := next(t, ended); e.rank != i || e.unknown || e.wait.ExitStatus() != 10+i {
			t.Errorf("got %+v, want status %d of rank %d", e, 10+i, i)
		}
		known++
	}
	t.Logf("known how %d of %d ended", known, n)
	f.close()
	<-returned
}

func next(t *testing.T, ended <-chan exit) exit {
	t.Helper()
	select {
	case e := <-ended:
		return e
	case <-time.After(patience):
		t.Fatal("no end is reported")
		return exit{}
	}
}

// kernelReportsStatus reports whether this kernel provides the status of a process that is not a child.
func kernelReportsStatus(t *testing.T) bool {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	fmt.Sscanf(string(b), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 15
}
