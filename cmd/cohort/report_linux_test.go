package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// flightProgram makes a copy of the test binary be a rank that fails in some way.
const flightProgram = "flight-rank"

func init() { rankPrograms[flightProgram] = flightRank }

// flightRank is one of four ranks, of which rank 2 behaves differently.
func flightRank(how string) int {
	signal.Ignore(syscall.SIGTERM) // the others' records are of interest too
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return 3
	}
	start := world.Region("start")
	for range 3 {
		if err := world.Barrier(); err != nil {
			fmt.Println(err)
			return 3
		}
	}
	start.End()
	if how != "waiting" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		world = world.WithContext(ctx)
	}
	x := make([]float64, 4)
	odd := world.Rank() == 2
	switch {
	case odd && how == "mismatch":
		err = cohort.Bcast(world, x, 0)
	case odd && how == "aborted":
		world.Abort(7)
	case odd && how == "stopped":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for { // until it arrives, and after the launcher's SIGCONT
			runtime.Gosched()
		}
	case odd && how == "waiting":
		awaitRanks(but2, in("Allreduce"))
		fmt.Println(os.Getenv(flight.EnvDir))
		_, err = cohort.Recv(world, x, 0, 5)
	case odd && how == "killed":
		awaitRanks(but2, in("Allreduce"))
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	default:
		err = cohort.Allreduce(world, x, x, cohort.Sum)
	}
	if err == nil {
		return 4
	}
	fmt.Println(err)
	switch how {
	case "waiting":
		select {} // the signal ends the rank
	case "aborted":
		return 0
	}
	if world.Rank() == 0 {
		awaitRanks(but2, func(d *flight.Dump) bool { return !d.Dumped.IsZero() })
		return 1
	}
	if how == "mismatch" {
		awaitRanks(but2, func(d *flight.Dump) bool { return !d.Dumped.IsZero() })
	}
	return 0
}

// in reports whether a rank is in an operation.
func in(op string) func(*flight.Dump) bool {
	return func(d *flight.Dump) bool { return d.Ops[len(d.Ops)-1].Kind.String() == op }
}

var but2 = []int{0, 1, 3}

// awaitRanks waits until the files of some ranks are as said.
func awaitRanks(ranks []int, ready func(*flight.Dump) bool) {
	for n := 0; n < len(ranks); runtime.Gosched() {
		n = 0
		dumps, _, err := flight.Read(os.Getenv(flight.EnvDir))
		for _, d := range dumps {
			if err == nil && slices.Contains(ranks, d.Rank) && len(d.Ops) > 0 && ready(d) {
				n++
			}
		}
	}
}

func TestReportNamesRankThatOthersWaitFor(t *testing.T) {
	const (
		mismatch = `^rank 2 was in Bcast #3 while 0, 1, 3 were in Allreduce #3(, waiting \d|\n?$)` // no time below 1 µs
		killed   = `^rank 2 has not reached Allreduce #3, where ranks 0, 1, 3 ha(ve|d) waited( \d.*)?: it .* after Barrier #2`
	)
	for _, c := range sample([]struct{ how, backend, line string }{
		{"mismatch", "shm", mismatch},
		{"mismatch", "tcp", mismatch},
		{"stopped", "shm", `^rank 2 has not reached Allreduce #3, where ranks 0, 1, 3 had waited \d+\.?\d* s: it .* after Barrier #2`},
		{"killed", "shm", killed},
		{"killed", "tcp", killed},
	}, 0, 2, 4) {
		if _, err := os.Stat(memoryFolder); err != nil {
			t.Skipf("a file system in memory is needed: %v", err)
		}
		dir := t.TempDir()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := run(t, "run", "-n", "4", "--backend", c.backend, "--flight", dir, exe, flightProgram, c.how)
		if status == 0 || status == cli.StatusUsage {
			t.Fatalf("%s: status %d\n%s%s", c.how, status, stdout, stderr)
		}
		if c.how != "killed" && !strings.Contains(stdout, "; flight recorder: "+dir) {
			t.Errorf("%s: the error does not say where the files are:\n%s", c.how, stdout)
		}
		said := false
		for line := range strings.Lines(stderr) {
			said = said || regexp.MustCompile(c.line).MatchString(strings.TrimPrefix(line, "cohort: "))
		}
		if !said {
			t.Errorf("%s: cohort run does not say what happened:\n%s", c.how, stderr)
		}
		status, report, stderr := run(t, "report", dir)
		if status != 0 || strings.Count(report, "\n") != 1 || !regexp.MustCompile(c.line).MatchString(report) {
			t.Errorf("%s: status %d, report %s%s, want %s", c.how, status, report, stderr, c.line)
		}
		status, table, stderr := run(t, "report", "--all", "--last", "2", dir)
		if status != 0 || strings.Count(table, "Barrier #2") < 4 || strings.Count(table, "\n") != 1+4+1+8 || strings.Count(table, ", "+c.backend+";") != 4 {
			t.Errorf("%s: status %d, table:\n%s%s", c.how, status, table, stderr)
		}
		timeline := filepath.Join(dir, "timeline.json")
		if status, _, stderr := run(t, "report", "--trace", timeline, dir); status != 0 {
			t.Errorf("%s: status %d with --trace: %s", c.how, status, stderr)
		}
		events, err := os.ReadFile(timeline)
		if n := strings.Count(string(events), `"name":"start","ph":"X"`); err != nil || n != 4 || !json.Valid(events) {
			t.Errorf("%s: the timeline has the region of %d ranks, want 4: %v\n%s", c.how, n, err, events)
		}
		_, text, _ := run(t, "report", "--json", dir)
		var out struct {
			Line  string
			Size  int
			Ranks []reportRank
			Ops   []flight.Line `json:"operations"`
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil || out.Line+"\n" != report && c.how != "killed" || out.Size != 4 || len(out.Ranks) != 4 || len(out.Ops) < 8 {
			t.Errorf("%s: %v\n%s", c.how, err, text)
		}
	}
}

// waitingJob starts a job of which rank 2 is in Recv, or about to be, and the others are in Allreduce. It
// returns the folder of the ranks' files.
func waitingJob(t *testing.T, backend, keep string) (cmd *exec.Cmd, stderr *strings.Builder, memory string) {
	t.Helper()
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skipf("a file system in memory is needed: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = cohortCommand(t, "run", "-n", "4", "--backend", backend, "--tag=false", "--flight", keep, exe, flightProgram, "waiting")
	stderr = new(strings.Builder)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watch(t, cmd)
	memory, err = bufio.NewReader(out).ReadString('\n')
	memory = strings.TrimSpace(memory)
	if err != nil || filepath.Dir(memory) != memoryFolder {
		t.Errorf("the ranks' folder is %q: %v", memory, err)
	}
	return cmd, stderr, memory
}

// TestAbortIsReportedOnce checks that the launcher and the flight recorder do not both report an Abort.
func TestAbortIsReportedOnce(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	status, _, stderr := run(t, "run", "-n", "4", exe, flightProgram, "aborted")
	if status != 7 || strings.Count(stderr, "rank 2 aborted the job with code 7") != 1 {
		t.Errorf("status %d, want 7, and one line about the Abort:\n%s", status, stderr)
	}
}

// TestSIGQUITMakesRanksWriteTheirFiles sends SIGQUIT to a job in which nobody gets on: the ranks write their files because of it,
// the runtime ends them, and the files say who waits for whom.
func TestSIGQUITMakesRanksWriteTheirFiles(t *testing.T) {
	for _, backend := range []string{"shm", "tcp"} {
		dir := t.TempDir()
		cmd, errs, memory := waitingJob(t, backend, dir)
		for begun := time.Now(); ; runtime.Gosched() {
			dumps, _, err := flight.Read(memory)
			if err == nil && len(dumps) == 4 && dumps[2].Ops[len(dumps[2].Ops)-1].Kind.String() == "Recv" {
				break
			}
			if time.Since(begun) > patience {
				t.Fatalf("%s: rank 2 does not come to Recv: %v", backend, err)
			}
		}
		cmd.Process.Signal(syscall.SIGQUIT)
		cmd.Wait()
		const want = `rank 2 has not reached Allreduce #3, where ranks 0, 1, 3 ha(ve|d) waited \d.*: it (is|was) in Recv from 0, tag 5`
		said, stderr := regexp.MustCompile(`(?m)^cohort: `+want), errs.String()
		if got := cmd.ProcessState.ExitCode(); got != 2 || !strings.Contains(stderr, "SIGQUIT: quit") || !said.MatchString(stderr) {
			t.Errorf("%s: status %d, want 2, the stacks and %s:\n%s", backend, got, want, stderr)
		}
		status, report, stderr := run(t, "report", "--all", dir)
		if status != 0 || !regexp.MustCompile("^"+want).MatchString(report) {
			t.Errorf("%s: status %d, report %s%s, want %s", backend, status, report, stderr, want)
		}
		// A rank that detects another's end before its signal has written because of that, and a killed rank, after
		// spawn.Grace, before it got to run has not said why.
		quit, ranks := strings.Count(report, "; written because of: "+flight.Quit.String()), strings.Count(report, ", "+backend+";")
		if quit == 0 || ranks != 4 {
			t.Errorf("%s: the files of %d ranks, %d of them written because of the signal, want 4 and some:\n%s", backend, ranks, quit, report)
		}
	}
}

// TestKilledLauncherKeepsFlightFiles kills the launcher: what its ranks did last is where it was to be kept, and
// nothing is left where it was before.
func TestKilledLauncherKeepsFlightFiles(t *testing.T) {
	dir := t.TempDir()
	cmd, _, memory := waitingJob(t, "shm", dir)
	cmd.Process.Kill()
	cmd.Wait()
	for begun := time.Now(); ; runtime.Gosched() {
		if _, err := os.Stat(memory); os.IsNotExist(err) {
			break
		}
		if time.Since(begun) > patience {
			t.Fatalf("%s is still there", memory)
		}
	}
	status, report, stderr := run(t, "report", dir)
	if want := `^rank 2 has not reached Allreduce #3, where ranks 0, 1, 3 ha(ve|d) waited`; status != 0 || !regexp.MustCompile(want).MatchString(report) {
		t.Errorf("status %d, report %s%s, want %s", status, report, stderr, want)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 4 {
		t.Errorf("%v in the folder, want the files of 4 ranks: %v", files, err)
	}
}

// TestKeeperLeavesKeptFlightFiles has a launcher be killed at three moments at which nothing is to be kept: before a rank has
// started, while hosts send their files, and while it removes its own folder after it has kept the files. Those that are
// there stay.
func TestKeeperLeavesKeptFlightFiles(t *testing.T) {
	const before, sending, ended = "before the start", "while hosts send", "after the end"
	for _, killed := range []string{before, sending, ended} {
		kept := t.TempDir()
		t.Setenv(flight.EnvKept, "")
		t.Setenv(flight.EnvDir, "") // both restored
		t.Setenv(flight.EnvStats, "")
		keeper, err := spawn.StartKeeper()
		if err != nil {
			t.Fatal(err)
		}
		end, err := recordFlight(kept, false, killed == sending, keeper)
		if err != nil {
			t.Fatal(err)
		}
		memory := os.Getenv(flight.EnvDir)
		write := func(dir string, rank int) {
			if err := os.WriteFile(filepath.Join(dir, flight.FileName(rank)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if killed == sending {
			write(memory, 1)
		}
		if killed == ended {
			write(memory, 0)
			write(memory, 1)
			end(true, 0, false)
			if err := os.Mkdir(memory, 0o700); err != nil { // as if not all had been removed
				t.Fatal(err)
			}
			write(memory, 1)
		} else {
			write(kept, 0)
			write(kept, 1)
		}
		keeper.Close() // as if this process had been killed
		if files, err := os.ReadDir(kept); err != nil || len(files) != 2 {
			t.Errorf("killed %s: %v in the folder, want the files of 2 ranks: %v", killed, files, err)
		}
		if _, err := os.Stat(memory); !os.IsNotExist(err) {
			t.Errorf("killed %s: %s is still there: %v", killed, memory, err)
		}
	}
}

// A file that the recorder did not write is an error at once, whatever its name is. The command does not wait for it.
func TestReportRejectsFilesThatAreNotRegular(t *testing.T) {
	make := func(f func(path string) error) (path string) {
		t.Helper()
		path = filepath.Join(t.TempDir(), "rank-0000.flight")
		if err := f(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := make(func(path string) error { return syscall.Mkfifo(path, 0o600) })
	for _, c := range []struct{ what, path, message string }{
		{"a pipe nobody writes to", pipe, "not a regular file"},
		{"a link to one", make(func(path string) error { return os.Symlink(pipe, path) }), "not a regular file"},
		{"a folder", make(func(path string) error { return os.Mkdir(path, 0o700) }), "not a regular file"},
		{"an endless device", make(func(path string) error { return os.Symlink("/dev/zero", path) }), "not a regular file"},
		{"a terminal", make(func(path string) error { return os.Symlink("/dev/ptmx", path) }), "not a regular file"},
		{"a socket", make(func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) }), "not a regular file"},
		{"a file that cannot be read", make(func(path string) error { return os.Symlink("/proc/self/mem", path) }), "input/output error"},
		{"a link to nothing", make(func(path string) error { return os.Symlink(path+"x", path) }), "no such file"},
		{"a link to itself", make(func(path string) error { return os.Symlink(path, path) }), "too many"},
	} {
		for _, arg := range []string{c.path, filepath.Dir(c.path)} {
			if st, err := os.Stat(arg); err == nil && st.IsDir() && arg == c.path {
				continue // a folder of files, of which there are none: TestReportNamesUnreadableFile
			}
			status, stdout, stderr := run(t, "report", arg)
			if status != 1 || stdout != "" || !strings.Contains(stderr, c.path+": ") || !strings.Contains(stderr, c.message) {
				t.Errorf("%s, %s: status %d, %s%s", c.what, arg, status, stdout, stderr)
			}
		}
	}
}

// A file that cannot be read is reported with its name.
func TestReportNamesUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	if status, _, stderr := run(t, "report", dir); status != 1 || !strings.Contains(stderr, "no files of the flight recorder") {
		t.Errorf("an empty folder: status %d, %s", status, stderr)
	}
	path := filepath.Join(dir, "rank-0001.flight")
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := run(t, "report", dir); status != 1 || !strings.Contains(stderr, path+": not a file of the flight recorder") {
		t.Errorf("a foreign file: status %d, %s", status, stderr)
	}
}
