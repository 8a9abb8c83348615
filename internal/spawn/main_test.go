//go:build unix

package spawn

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
)

// envProgram names what a copy of the test binary is: one of programs.
const envProgram = "SPAWN_TEST_PROGRAM"

// patience is the watchdog of every wait: no claim on how fast anything is.
const patience = 5 * time.Minute

// programs are what the test binary can be instead of the tests.
var programs = map[string]func(args []string){
	"launch":   launchProgram,
	"lines":    linesProgram,
	"endless":  endlessProgram,
	"exit":     exitProgram,
	"ordered":  orderProgram,
	"wait":     waitProgram,
	"stubborn": stubbornProgram,
	"parent":   parentProgram,
	"cat":      catProgram,
	"deserted": desertedProgram,
	"deserter": deserterProgram,
}

func TestMain(m *testing.M) {
	Init()
	if name := os.Getenv(envProgram); name != "" {
		programs[name](os.Args[1:])
		os.Exit(0)
	}
	// Programs built with -race would wait a second before they end.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	before := descriptors()
	status := m.Run()
	// A goroutine that copies the output of a process may be about to close its end.
	after := descriptors()
	for end := time.Now().Add(patience); status == 0 && len(after) > len(before) && time.Now().Before(end); after = descriptors() {
		time.Sleep(10 * time.Millisecond) // poll
	}
	if status == 0 && len(after) > len(before) {
		fmt.Printf("descriptors left open: %v, before the tests %v\n", after, before)
		status = 1
	}
	if left := children(); status == 0 && left != "" {
		fmt.Printf("processes left behind: %s\n", left)
		status = 1
	}
	os.Exit(status)
}

// descriptors returns what the open descriptors of this process are, those of the runtime's poller aside;
// nothing where there is no /proc.
func descriptors() (open []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:[event") {
			open = append(open, e.Name()+" "+to)
		}
	}
	return open
}

// children lists the processes this one has started and not waited for.
func children() string {
	var all []byte
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		b, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		all = append(all, b...)
	}
	return strings.TrimSpace(string(all))
}

// program returns a Config that starts one of programs.
func program(t *testing.T, ranks int, name string, args ...string) Config {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Programs: Programs{{exe, args, ranks}}, Tag: true, Env: append(os.Environ(), envProgram+"="+name),
		Stdout: new(buffer), Stderr: new(buffer),
	}
}

// replaceable returns a Config of a job with generations.
func replaceable(t *testing.T, ranks, restarts int, name string, args ...string) Config {
	t.Helper()
	cfg := program(t, ranks, name, args...)
	var err error
	if cfg.Folder, err = os.MkdirTemp("", "spawn-*"); err != nil { // t.TempDir may be too long for a socket
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(cfg.Folder) })
	cfg.Generations = &generation.Config{Min: ranks, Max: ranks, Restarts: restarts}
	return cfg
}

// buffer is a bytes.Buffer for several writers and a reader who waits.
type buffer struct {
	mu  sync.Mutex
	b   bytes.Buffer
	saw chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.saw != nil {
		close(b.saw)
		b.saw = nil
	}
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// await returns the text once it has n lines with part in them.
func (b *buffer) await(t *testing.T, part string, n int) string {
	t.Helper()
	late := time.After(patience)
	for {
		b.mu.Lock()
		text := b.b.String()
		if b.saw == nil {
			b.saw = make(chan struct{})
		}
		saw := b.saw
		b.mu.Unlock()
		if strings.Count(text, part) >= n {
			return text
		}
		select {
		case <-saw:
		case <-late:
			t.Fatalf("waiting for %d times %q, got:\n%s", n, part, text)
		}
	}
}

func start(t *testing.T, cfg Config) *Job {
	t.Helper()
	j, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-j.done:
		default:
			j.Stop()
			<-j.done
		}
	})
	return j
}

// wait is Wait under a watchdog.
func wait(t *testing.T, j *Job) job.Result {
	t.Helper()
	select {
	case <-j.done:
		return j.Wait()
	case <-time.After(patience):
		t.Fatalf("the job does not end; stderr:\n%s", j.cfg.Stderr)
		return job.Result{}
	}
}

// launcher starts a copy of the test binary as a launcher of ranks of a program.
func launcher(t *testing.T, ranks int, name string, args ...string) (*exec.Cmd, *buffer, *buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := new(buffer), new(buffer)
	cmd := exec.Command(exe, append([]string{strconv.Itoa(ranks), name}, args...)...)
	cmd.Env = append(os.Environ(), envProgram+"=launch")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// begin starts a command and ends it with the test.
func begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
}

// launchProgram is a launcher: RANKS PROGRAM [ARGS].
func launchProgram(args []string) {
	keeper, err := StartKeeper()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if dir := os.Getenv("SPAWN_TEST_FOLDER"); dir != "" {
		keeper.Folder(dir)
	}
	n, _ := strconv.Atoi(args[0])
	os.Setenv(envProgram, args[1])
	exe, _ := os.Executable()
	j, err := Start(Config{
		Programs: Programs{{exe, args[2:], n}}, Tag: os.Getenv("SPAWN_TEST_RAW") == "", Stdin: os.Stdin, Signals: Notify(), Keeper: keeper,
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	r := j.Wait()
	keeper.Close()
	os.Exit(r.Status)
}

func me() string { return os.Getenv(EnvRank) }

// exitProgram exits with the status, or kills itself with the signal, given for
// its rank as RANK=WHAT. Others say ready and wait for a signal's default.
func exitProgram(args []string) {
	for _, a := range args {
		rank, what, _ := strings.Cut(a, "=")
		if rank != me() {
			continue
		}
		if n, ok := strings.CutPrefix(what, "signal"); ok {
			sig, _ := strconv.Atoi(n)
			syscall.Kill(os.Getpid(), syscall.Signal(sig))
			select {}
		}
		status, _ := strconv.Atoi(what)
		fmt.Fprintln(os.Stderr, "my last words")
		os.Exit(status)
	}
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour) // on purpose: it runs until it is killed
	}
}

// orderProgram is exitProgram whose ranks end in the order of the arguments after the first, a folder:
// each when the launcher has seen the end of the one before, or that one is stopped.
func orderProgram(args []string) {
	dir, turns := args[0], args[1:]
	own := filepath.Join(dir, me())
	if os.WriteFile(own+"~", []byte(strconv.Itoa(os.Getpid())), 0o600) != nil || os.Rename(own+"~", own) != nil {
		os.Exit(99)
	}
	for i, a := range turns {
		if i == 0 || !strings.HasPrefix(a, me()+"=") {
			continue
		}
		before, _, _ := strings.Cut(turns[i-1], "=")
		for pid := 0; pid == 0 || syscall.Kill(pid, 0) == nil && !isStopped(pid); runtime.Gosched() {
			text, _ := os.ReadFile(filepath.Join(dir, before))
			pid, _ = strconv.Atoi(string(text))
		}
	}
	exitProgram(turns)
}

// waitProgram prints ready, and then which signal came first; SIGCONT is printed and
// waited beyond.
func waitProgram([]string) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT)
	fmt.Println("ready")
	for s := range c {
		fmt.Println("got", s)
		if s != syscall.SIGCONT {
			return
		}
	}
}

// stubbornProgram prints ready and ignores every signal that can be ignored.
func stubbornProgram([]string) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	fmt.Println("ready")
	for {
		time.Sleep(time.Hour) // on purpose: it runs until it is killed
	}
}

// parentProgram starts a child, a stubborn process, and prints both process IDs.
// With the argument leave it then ends.
func parentProgram(args []string) {
	exe, _ := os.Executable()
	child := exec.Command(exe)
	child.Env = append(os.Environ(), envProgram+"=stubborn")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	bufio.NewReader(out).ReadString('\n') // it ignores signals from here on
	fmt.Println("pids", os.Getpid(), child.Process.Pid)
	if slices.Contains(args, "leave") {
		return
	}
	for {
		time.Sleep(time.Hour) // on purpose: it runs until it is killed
	}
}

// desertedProgram starts a process that leaves its group, and ends.
func desertedProgram(args []string) {
	exe, _ := os.Executable()
	child := exec.Command(exe, args...)
	child.Env = append(os.Environ(), envProgram+"=deserter")
	child.Stdout, child.Stderr, child.SysProcAttr = os.Stdout, os.Stderr, &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// deserterProgram writes lines until nobody reads them.
func deserterProgram(args []string) {
	pause, err := time.ParseDuration(args[0])
	for err == nil {
		time.Sleep(pause) // on purpose: it writes at this pace
		_, err = fmt.Println("a line")
	}
}

// catProgram copies its input to its output.
func catProgram([]string) {
	fmt.Println("ready")
	n, err := io.Copy(os.Stdout, os.Stdin)
	fmt.Println("\nbytes:", n, "error:", err)
}
