package spawn

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/test/denied"
	"github.com/cohort-hpc/cohort/topo"
)

// processes are held by descriptors that become readable when they end, whichever process waits for them.
type processes struct{ pids, fds []int }

func hold(t *testing.T, pids []int) processes {
	t.Helper()
	p := processes{pids: pids}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		p.fds = append(p.fds, fd)
	}
	return p
}

// ended waits until all have ended, and kills and reports what does not.
func (p processes) ended(t *testing.T) {
	t.Helper()
	for i, fd := range p.fds {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(poll, int(patience.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n != 1 || err != nil {
				t.Errorf("process %d does not end (%v)", p.pids[i], err)
				syscall.Kill(p.pids[i], syscall.SIGKILL)
			}
			break
		}
	}
}

// pids reads the output of parentProgram.
func pids(t *testing.T, text string) (all []int) {
	t.Helper()
	for line := range strings.Lines(text) {
		var rank, pid, child int
		if n, _ := fmt.Sscanf(line, "[%d] pids %d %d", &rank, &pid, &child); n == 3 {
			all = append(all, pid, child)
		}
	}
	return all
}

func TestGrandchildrenAreEnded(t *testing.T) {
	cfg := program(t, 2, "parent")
	j := start(t, cfg)
	all := pids(t, cfg.Stdout.(*buffer).await(t, "pids", 2))
	lives := hold(t, all)
	j.Stop()
	wait(t, j)
	lives.ended(t)
}

func TestProcessesThatRankLeavesAreEnded(t *testing.T) {
	cfg := program(t, 1, "parent", "leave")
	j := start(t, cfg)
	all := pids(t, cfg.Stdout.(*buffer).await(t, "pids", 1))
	lives := hold(t, all[1:])
	if r := wait(t, j); r.Status != 0 {
		t.Errorf("got %+v", r)
	}
	lives.ended(t)
	if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "cohort: rank 0 left processes behind; ending them\n") {
		t.Errorf("stderr:\n%s", text)
	}
}

// TestPartDrainsWhenNoProcessIsLeft has a rank of a larger job leave a process behind. That one counts until it has ended.
func TestPartDrainsWhenNoProcessIsLeft(t *testing.T) {
	cfg := program(t, 1, "parent", "leave")
	var left []bool // when the rank has ended, and when its part drains
	look := func() {
		left = append(left, groupAlive(pids(t, cfg.Stdout.(*buffer).await(t, "pids", 1))[0]))
	}
	cfg.Part = &Part{Size: 1, Ended: func(job.Exit) { look() }, Drains: look, Log: func(string) {}}
	if wait(t, start(t, cfg)); !slices.Equal(left, []bool{true, false}) {
		t.Errorf("a process was left at the end of the rank, and when the part drained: %v", left)
	}
}

// TestWatchReportsEndsInOrder ends processes one after another while nobody looks: the order must still be known, also
// where a container's rules deny pidfd_open.
func TestWatchReportsEndsInOrder(t *testing.T) {
	if err := endInOrder(); err != nil {
		t.Error(err)
	}
	cmd, stdout, _ := launcher(t, 0, "")
	cmd.Env = append(os.Environ(), envProgram+"=without pidfd_open")
	if err := cmd.Run(); err != nil {
		t.Errorf("%v: %s", err, stdout)
	}
}

func init() {
	programs["without pidfd_open"] = func([]string) {
		if err := cmp.Or(denied.Syscall(unix.SYS_PIDFD_OPEN), endInOrder()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func endInOrder() error {
	const n = 16
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	w, err := newWatch()
	if err != nil {
		return err
	}
	var procs []*os.Process
	for i := range n {
		fd := -1
		p, err := os.StartProcess(exe, []string{"stubborn"}, &os.ProcAttr{
			Env: append(without(os.Environ(), envProgram), envProgram+"=stubborn"), Files: []*os.File{nil, nil, nil}, Sys: &syscall.SysProcAttr{PidFD: &fd},
		})
		if err == nil {
			procs = append(procs, p)
			err = w.follow(i, p.Pid, p, fd)
		}
		if err != nil {
			return err
		}
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	for _, i := range order {
		procs[i].Kill()
		for n := 0; n < 1; { // a signal may end the call
			n, _ = unix.Poll([]unix.PollFd{{Fd: int32(w.ranks[i].pidfd), Events: unix.POLLIN}}, -1)
		}
	}
	ended := make(chan exit)
	go w.run(ended, nil)
	defer w.close()
	for k, i := range order {
		if e := <-ended; e.rank != i || e.wait.Signal() != syscall.SIGKILL {
			return fmt.Errorf("end %d: %+v, want rank %d", k, e, i)
		}
	}
	return nil
}

func TestSignalsReachEveryRank(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		cmd, stdout, stderr := launcher(t, 3, "wait")
		begin(t, cmd)
		stdout.await(t, "ready", 3)
		cmd.Process.Signal(sig)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s%s", sig, err, stdout, stderr)
		}
		if n := strings.Count(stdout.String(), "got "+sig.String()); n != 3 {
			t.Errorf("%v reached %d ranks of 3:\n%s", sig, n, stdout)
		}
	}
}

func init() { programs["count"] = countProgram }

// countProgram prints its process ID, and then each signal that it gets.
func countProgram([]string) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, passedOn...)
	fmt.Println("pids", os.Getpid(), 0)
	for s := range c {
		fmt.Println("got", s)
	}
}

// TestSignalToAllProcessesReachesRanksOnce sends a signal to the launcher, its ranks and its keeper, as systemd does to a control
// group. A signal that only the launcher gets reaches the ranks after it, and so shows how often they got the first one.
// The launcher compares what it gets with what its keeper gets in a second at most, which a slow machine may exceed: one try of
// several must succeed.
func TestSignalToAllProcessesReachesRanksOnce(t *testing.T) {
	for i, sig := range passedOn {
		if sig == syscall.SIGTSTP {
			continue // it stops the launcher
		}
		reached := 0
		for try := 0; reached != 2 && try < 5; try++ {
			reached = signalAll(t, sig.(syscall.Signal), i%2 == 0)
		}
		if reached != 2 {
			t.Errorf("%v reached 2 ranks %d times", sig, reached)
		}
	}
}

// signalAll sends all processes of a job a signal, and returns how often two ranks got it.
func signalAll(t *testing.T, sig syscall.Signal, reverse bool) int {
	cmd, stdout, _ := launcher(t, 2, "count")
	begin(t, cmd)
	ranks := pids(t, stdout.await(t, "pids", 2))
	all := append(others(t, cmd.Process.Pid, ranks), ranks[0], ranks[2], cmd.Process.Pid)
	if reverse {
		slices.Reverse(all)
	}
	for _, pid := range all {
		syscall.Kill(pid, sig)
	}
	after := syscall.SIGUSR2
	if sig == after {
		after = syscall.SIGUSR1
	}
	stdout.await(t, "got "+sig.String(), 2)
	cmd.Process.Signal(after)
	n := strings.Count(stdout.await(t, "got "+after.String(), 2), "got "+sig.String())
	cmd.Process.Kill()
	cmd.Wait()
	return n
}

// TestSignalByNameOfLauncherReachesRanks sends a signal to the launcher, and to its keeper if the keeper's command line has the
// launcher's name, as pkill -f does.
func TestSignalByNameOfLauncherReachesRanks(t *testing.T) {
	cmd, stdout, _ := launcher(t, 1, "count")
	begin(t, cmd)
	ranks := pids(t, stdout.await(t, "pids", 1))
	for _, pid := range append(others(t, cmd.Process.Pid, ranks), cmd.Process.Pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(line), filepath.Base(cmd.Path)) {
			syscall.Kill(pid, syscall.SIGTERM)
		}
	}
	stdout.await(t, "got terminated", 1)
	cmd.Process.Kill()
	cmd.Wait()
}

func TestStatusIs128PlusSignal(t *testing.T) {
	cmd, stdout, stderr := launcher(t, 3, "exit")
	begin(t, cmd)
	stdout.await(t, "ready", 3)
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 143 {
		t.Errorf("status %d, want 143\n%s", got, stderr)
	}
}

func TestSecondInterruptEndsRanks(t *testing.T) {
	cmd, stdout, stderr := launcher(t, 2, "stubborn")
	begin(t, cmd)
	stdout.await(t, "ready", 2)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	late := time.After(patience)
	// As a user who presses ^C until it helps.
	for again := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-done:
			again.Stop()
			if got := cmd.ProcessState.ExitCode(); got != 130 {
				t.Errorf("status %d, want 130\n%s", got, stderr)
			}
			return
		case <-again.C:
			cmd.Process.Signal(syscall.SIGINT)
		case <-late:
			t.Fatalf("it does not end:\n%s", stderr)
		}
	}
}

func TestRanksEndWithKilledLauncher(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "built")
	if err := os.MkdirAll(filepath.Join(folder, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd, stdout, _ := launcher(t, 3, "parent")
	cmd.Env = append(cmd.Env, "SPAWN_TEST_FOLDER="+folder)
	begin(t, cmd)
	all := pids(t, stdout.await(t, "pids", 3))
	if len(all) != 6 {
		t.Fatalf("pids %v", all)
	}
	lives := hold(t, all)
	keeper := hold(t, others(t, cmd.Process.Pid, all))
	if len(keeper.pids) != 1 {
		t.Fatalf("the launcher has processes %v besides its ranks, want the keeper", keeper.pids)
	}
	began := time.Now()
	cmd.Process.Kill()
	lives.ended(t)
	t.Logf("ranks and their children ended %v after the launcher was killed", time.Since(began))
	keeper.ended(t)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	cmd.Wait()
}

// others returns the children of a process that are not in known.
func others(t *testing.T, pid int, known []int) (rest []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, f := range strings.Fields(string(b)) {
			if n, _ := strconv.Atoi(f); !contains(known, n) {
				rest = append(rest, n)
			}
		}
	}
	return rest
}

func contains(all []int, n int) bool {
	for _, a := range all {
		if a == n {
			return true
		}
	}
	return false
}

func TestRanksEndWithLauncherWithoutKeeper(t *testing.T) {
	cmd, stdout, _ := launcher(t, 2, "parent")
	begin(t, cmd)
	all := pids(t, stdout.await(t, "pids", 2))
	for _, k := range others(t, cmd.Process.Pid, all) {
		syscall.Kill(k, syscall.SIGKILL)
	}
	lives := hold(t, []int{all[0], all[2]})
	cmd.Process.Kill()
	lives.ended(t)
	for _, pid := range []int{all[1], all[3]} { // nobody is left to end these
		syscall.Kill(pid, syscall.SIGKILL)
	}
	cmd.Wait()
}

func TestClosedOutputEndsJob(t *testing.T) {
	cmd, _, stderr := launcher(t, 2, "endless")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, cmd)
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 141 {
		t.Errorf("status %d, want 141\n%s", got, stderr)
	}
}

// TestRanksInheritNoDescriptors has a program list its own descriptors.
func TestRanksInheritNoDescriptors(t *testing.T) {
	ls, err := exec.LookPath("ls")
	if err != nil {
		t.Fatal(err)
	}
	before, err := exec.Command(ls, "/proc/self/fd").Output() // with what the tests were started with
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	out := new(buffer)
	cfg := Config{Programs: Programs{{ls, []string{"/proc/self/fd"}, 4}}, Stdout: out, Stderr: out, Tag: true, Keeper: keeper}
	if r := wait(t, start(t, cfg)); r.Status != 0 {
		t.Fatalf("%+v\n%s", r, out)
	}
	for rank := range 4 {
		tag := fmt.Sprintf("[%d] ", rank)
		got := ""
		for line := range strings.Lines(out.String()) {
			if rest, ok := strings.CutPrefix(line, tag); ok {
				got += rest
			}
		}
		if got != string(before) {
			t.Errorf("rank %d has descriptors %q, want %q", rank, got, before)
		}
	}
}

// TestRankGetsLastValueOfVariable has a job's environment name variables that were there before, as what is appended
// for a job does: of the two, ranks would see the first.
func TestRankGetsLastValueOfVariable(t *testing.T) {
	for how, cfg := range map[string]Config{"by this package": program(t, 2, ""), "by another program": launched(t, 2, "-", "")} {
		out := new(buffer)
		cfg.Programs[0].Path, cfg.Stdout, cfg.Stderr = "/usr/bin/env", out, out
		cfg.Env = append(os.Environ(), "COHORT_JOINED=1 rank 0 of j", "COHORT_RUN_DIR=/outer", "AGAIN=old", "AGAIN_TOO=a=b", "AGAIN=", "AGAIN=new")
		if r := wait(t, start(t, cfg)); r.Status != 0 || strings.Count(out.String(), "] AGAIN") != 4 {
			t.Errorf("%s: %+v, want two variables on both ranks\n%s", how, r, out)
		}
		for _, line := range []string{"AGAIN_TOO=a=b\n", "AGAIN=new\n"} {
			if strings.Count(out.String(), line) != 2 {
				t.Errorf("%s: want %son both ranks, got\n%s", how, line, out)
			}
		}
		if s := out.String(); strings.Contains(s, "COHORT_JOINED") || cfg.Launch != nil && strings.Contains(s, "COHORT_RUN_DIR") {
			t.Errorf("%s: ranks have variables of a rank of another job:\n%s", how, s)
		}
	}
}

func init() { programs["place"] = placeProgram }

// placeProgram prints where it may run, and the number of processors that the Go runtime uses.
func placeProgram([]string) {
	fmt.Printf("on %v with %d\n", allowed(), runtime.GOMAXPROCS(0))
}

// allowed returns the affinity mask of this thread.
func allowed() topo.CPUSet {
	var mask unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mask); err != nil {
		panic(err)
	}
	var set topo.CPUSet
	for c := range len(mask) * 64 {
		if mask.IsSet(c) {
			set = append(set, c)
		}
	}
	return set
}

func TestRanksAreBoundToTheirPlaces(t *testing.T) {
	mask := allowed()
	first, last := mask[:1], mask[len(mask)-1:]
	cfg := program(t, 3, "place")
	cfg.Places = []topo.CPUSet{first, last, mask}
	wait(t, start(t, cfg))
	for rank, want := range cfg.Places {
		line := fmt.Sprintf("[%d] on %v with ", rank, want)
		text := cfg.Stdout.(*buffer).String()
		if !strings.Contains(text, line) {
			t.Errorf("rank %d: want %q in\n%s", rank, line, text)
		}
		if len(want) == 1 && !strings.Contains(text, line+"1\n") {
			t.Errorf("rank %d: GOMAXPROCS is not 1:\n%s", rank, text)
		}
	}
	if now := allowed(); now.String() != mask.String() {
		t.Errorf("the launcher's own mask changed from %v to %v", mask, now)
	}
}
