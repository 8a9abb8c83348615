//go:build cgo && linux

package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

// programVariable holds the name of the program that a process runs.
const programVariable = "COHORT_TEST_PROGRAM"

// program runs body and ends the process, if the process was started as this program.
func program(name string, body func() error) {
	if os.Getenv(programVariable) != name {
		return
	}
	endWithTest()
	if err := body(); err != nil {
		fmt.Fprintf(os.Stderr, "program %s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rank is program for a rank of a job, which joins it, runs body and leaves.
func rank(name string, body func(w *cohort.Comm) error) {
	program(name, func() error { return with(body) })
}

// joins is rank for a body that leaves the job itself.
func joins(name string, body func(w *cohort.Comm) error) {
	program(name, func() error {
		w, err := cohort.Init(background, nil)
		if err != nil {
			return err
		}
		return must.Return(body)(w)
	})
}

// jobVariable marks the processes of a job: its value is the test's process id and the job's number.
const jobVariable = "COHORT_TEST_JOB"

// endWithTest kills this process once the test that started its job has ended, in whatever way: a
// rank that hangs in the library may outlive its launcher.
func endWithTest() {
	job, _, _ := strings.Cut(os.Getenv(jobVariable), "-")
	pid, err := strconv.Atoi(job)
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	go func() {
		for n := 0; n == 0; {
			n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			n = max(n, 0) // interrupted
		}
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}()
}

// TestRankEndsWithTest checks that a rank that hangs is gone after its test was killed.
func TestRankEndsWithTest(t *testing.T) {
	program("hang", func() error {
		say("up")
		select {}
	})
	test := exec.Command("cat")
	in, err := test.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	rank := command(t, "", 1, "hang", fmt.Sprintf("%s=%d-1", jobVariable, test.Process.Pid))
	out, err := rank.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := rank.Start(); err != nil {
		t.Fatal(err)
	}
	dog := time.AfterFunc(patience, func() { rank.Process.Kill() })
	if n, err := out.Read(make([]byte, 3)); err != nil || n != 3 {
		t.Fatalf("the rank wrote %d bytes: %v", n, err)
	}
	test.Process.Kill()
	test.Wait()
	if rank.Wait(); !dog.Stop() {
		t.Errorf("the rank was still there %v after its test had ended", patience)
	}
}

// skipShort skips a long test with -short. The ranks that a test starts do not have -short.
func skipShort(t *testing.T, shows string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short: " + shows + "; make test-all runs it")
	}
}

// ended is the outcome of a job.
type ended struct {
	out      string // both outputs
	status   int    // 128 and more: the launcher was killed
	took     time.Duration
	launcher string
}

// patience is how long a job may print nothing before it counts as hung. It does not limit how slow
// a machine may be: a long job prints its progress.
const patience = 10 * time.Minute

// libraries are the MPI libraries that the tests run with.
var libraries = []string{"mpich", "openmpi"}

// matrix runs f, as a subtest, for each row with each library; with -short for each row with one of them, in turn.
func matrix(t *testing.T, rows []string, f func(t *testing.T, name, row string)) {
	for i, row := range rows {
		for j, name := range libraries {
			if !testing.Short() || (i+j)%2 == 0 {
				t.Run(name+"/"+row, func(t *testing.T) { f(t, name, row) })
			}
		}
	}
}

// inTurn returns the libraries that a test runs with: both, or with -short one of them. About half of the tests run with
// each then: the length of its name decides for a test.
func inTurn(t *testing.T) []string {
	if !testing.Short() {
		return libraries
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	at := len(test) % len(libraries)
	return libraries[at : at+1]
}

// inLibraries runs a test with each library, or with -short with the one whose turn it is.
func inLibraries(t *testing.T, test func(t *testing.T, library string)) {
	t.Helper()
	for _, name := range inTurn(t) {
		t.Run(name, func(t *testing.T) { test(t, name) })
	}
}

// start runs a test's program as n ranks under the launcher of a library, or as one process without
// a launcher if library is empty.
func start(t *testing.T, library string, n int, name string, env ...string) ended {
	t.Helper()
	return wait(t, command(t, library, n, name, env...))
}

// command returns the command of start.
func command(t *testing.T, library string, n int, name string, env ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	args := []string{exe, "-test.run=^" + test + "$"}
	all := append(polite[:len(polite):len(polite)], programVariable+"="+name, "GORACE=atexit_sleep_ms=0")
	if library != "" {
		l := launcher(t, library)
		args = append(append(l.Command[:len(l.Command):len(l.Command)], "-n", strconv.Itoa(n)), args...)
		all = append(all, l.Env...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), all...), env...)
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// life collects a job's output. Each write resets the watchdog.
type life struct {
	text bytes.Buffer // not embedded: io.Copy would call its ReadFrom, and not Write
	dog  *time.Timer
}

func (l *life) Write(b []byte) (int, error) {
	l.dog.Reset(patience)
	return l.text.Write(b)
}

// TestOutputResetsWatchdog checks that what a job writes lets it run on.
func TestOutputResetsWatchdog(t *testing.T) {
	cmd := exec.Command("echo")
	out := &life{dog: time.NewTimer(patience)}
	out.dog.Stop()
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if !out.dog.Stop() {
		t.Error("the watchdog was not reset")
	}
}

var jobs atomic.Int64

// processes returns the processes of a job that are left, its launcher included.
func processes(t *testing.T, job string) (pids []int) {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range environs {
		b, err := os.ReadFile(f) // the process may end meanwhile, or be another user's
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+job+"\x00")) && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// end kills what is left of a job: a rank that hangs in the library may outlive its launcher.
func end(t *testing.T, job string) {
	t.Helper()
	for _, pid := range processes(t, job) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ranksOf returns the ranks of a job that are left.
func ranksOf(t *testing.T, job string) []int {
	t.Helper()
	own, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(processes(t, job), func(pid int) bool {
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || exe != own
	})
}

func wait(t *testing.T, cmd *exec.Cmd) ended {
	t.Helper()
	job := fmt.Sprintf("%s=%d-%d", jobVariable, os.Getpid(), jobs.Add(1))
	cmd.Env = append(cmd.Env, job)
	t.Cleanup(func() { end(t, job) }) // once the test has looked for ranks that are left
	var hung atomic.Bool
	begun, started := time.Now(), make(chan struct{})
	out := &life{dog: time.AfterFunc(patience, func() {
		hung.Store(true)
		<-started
		for _, pid := range ranksOf(t, job) {
			syscall.Kill(pid, syscall.SIGQUIT) // it prints its goroutines and ends
		}
		for end := time.Now().Add(5 * time.Second); len(ranksOf(t, job)) > 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // poll
		}
		cmd.Process.Kill()
		end(t, job)
	})}
	defer out.dog.Stop()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	err := cmd.Wait()
	e := ended{took: time.Since(begun), status: cmd.ProcessState.ExitCode(), launcher: cmd.Args[0]}
	if hung.Load() {
		t.Fatalf("%v: still there after %v, and nothing written for %v\n%s", cmd.Args, e.took, patience, &out.text)
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &out.text)
	}
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
		e.status = 128 + int(s.Signal())
	}
	e.out = out.text.String()
	return e
}

// must fails the test unless the job ended well.
func (e ended) must(t *testing.T) ended {
	t.Helper()
	if e.status != 0 {
		t.Fatalf("status %d after %v\n%s", e.status, e.took, e.out)
	}
	return e
}

// losesStatus reports whether a launcher may end with status 0 after a rank has failed. The mpiexec of MPICH 4.2.1
// does so after 11 of 100 jobs of a C program of which one rank calls _exit(3).
func losesStatus(launcher string) bool {
	version, _ := exec.Command(launcher, "--version").Output()
	return bytes.Contains(version, []byte("HYDRA")) && bytes.Contains(version, []byte(" 4.2."))
}

// succeeded reports whether the launcher said that the job ended well, and means it.
func (e ended) succeeded() bool { return e.status == 0 && !losesStatus(e.launcher) }

// failed fails the test unless the job ended with an error that has these texts.
func (e ended) failed(t *testing.T, texts ...string) ended {
	t.Helper()
	if e.succeeded() {
		t.Fatalf("status 0, want an error\n%s", e.out)
	}
	e.has(t, texts...)
	return e
}

func (e ended) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(e.out, s) {
			t.Errorf("the output does not have %q:\n%s", s, e.out)
		}
	}
}

func (e ended) hasNot(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if strings.Contains(e.out, s) {
			t.Errorf("the output has %q:\n%s", s, e.out)
		}
	}
}

// lines returns the output's lines that begin with a word, without it.
func (e ended) lines(word string) (all []string) {
	for line := range strings.Lines(e.out) {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			all = append(all, strings.TrimSuffix(rest, "\n"))
		}
	}
	return all
}

// compiled makes a shared library, or a program, of a C text. The compiler is gcc
// or a library's.
func compiledC(t *testing.T, compiler, text, name string, flags ...string) string {
	t.Helper()
	path := need.Program(t, compiler)
	dir := t.TempDir()
	source, out := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-Wall", "-O1", "-o", out, source}, flags...)
	if b, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", compiler, args, err, b)
	}
	return out
}

// compiledTool makes a library of a C text that stands between a program and an MPI library.
func compiledTool(t *testing.T, library, text string) string {
	t.Helper()
	launcher(t, library)
	return compiledC(t, mpicc(t, library), text, "tool.so", "-shared", "-fPIC")
}

// with joins the job, runs body and leaves.
func with(body func(w *cohort.Comm) error) error {
	w, err := cohort.Init(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := must.Return(body)(w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		w.Abort(1) // the others cannot finish without this rank
		return err
	}
	return w.Close()
}

// forgetful returns the error of a Close, unless it says that the program has not waited for an operation.
func forgetful(err error) error {
	if errors.Is(err, cohort.ErrRequest) {
		return nil
	}
	return err
}

// say prints one line in one write, so that the lines of ranks do not mix.
func say(format string, args ...any) {
	os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// traffic is some of everything: each rank sends around the ring, and all reduce.
func traffic(w *cohort.Comm, rounds int) error {
	n, me := w.Size(), w.Rank()
	for i := range rounds {
		out, in := []int{me*1000 + i}, []int{-1}
		if _, err := cohort.Sendrecv(w, out, (me+1)%n, 5, in, (me+n-1)%n, 5); err != nil {
			return err
		}
		if want := (me+n-1)%n*1000 + i; in[0] != want {
			return fmt.Errorf("round %d: got %d, want %d", i, in[0], want)
		}
		sum, err := cohort.AllreduceOne(w, me+i, cohort.Sum)
		if err != nil {
			return err
		}
		if want := n*(n-1)/2 + n*i; sum != want {
			return fmt.Errorf("round %d: the sum is %d, want %d", i, sum, want)
		}
	}
	return nil
}

var background = context.Background()

// runTool returns what a program writes.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(need.Program(t, name), args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(b)
}

// second returns the error of a call that returns something else too.
func second[T any](_ T, err error) error { return err }
