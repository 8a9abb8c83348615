package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/flight"
)

func init() {
	rankPrograms["elastic-rank"] = elasticRank
	rankPrograms["elastic-main"] = elasticMain
}

const chunks = 12 // of the work of a step, which the ranks share

var errResize = errors.New("the job is to have another size")

// elasticRank is a rank that goes on after losses until a file exists.
func elasticRank(stop string) int {
	ctx := context.Background()
	world, err := cohort.Init(ctx, nil)
	if err == nil {
		err = elasticWorlds(ctx, world, stop)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// elasticMain is the same under Main, which handles signals.
func elasticMain(stop string) int {
	cohort.Main(func(ctx context.Context, world *cohort.Comm) error { return elasticWorlds(ctx, world, stop) })
	return 0
}

func elasticWorlds(ctx context.Context, world *cohort.Comm, stop string) error {
	progress := []int64{-1, 0} // steps, and a sum over them
	for {
		err := elasticSteps(world, stop, progress)
		if err == nil {
			if err = world.Close(); err == nil {
				return nil
			}
		}
		if !errors.Is(err, cohort.ErrPeerLost) && err != errResize {
			return err
		}
		next, err := cohort.Rejoin(ctx, world)
		if errors.Is(err, cohort.ErrClosed) {
			fmt.Println("leaves")
			_ = world.Close() // others may have left it before
			return nil
		}
		if err != nil {
			return err
		}
		world = next
	}
}

// elasticSteps makes steps until the file exists, from those of the rank that has made the most.
func elasticSteps(world *cohort.Comm, stop string, progress []int64) error {
	n, rank := world.Size(), world.Rank()
	all := make([]int64, 2*n)
	if err := cohort.Allgather(world, progress, all); err != nil {
		return err
	}
	for i := range n {
		if all[2*i] > progress[0] {
			copy(progress, all[2*i:])
		}
	}
	progress[0] = max(progress[0], 0)
	fmt.Printf("generation %d of %d process %d at %d\n", world.Generation(), n, os.Getpid(), time.Now().UnixNano())
	out, in := make([]int64, 200), make([]int64, 200)
	for {
		step := progress[0]
		for i := range out {
			out[i] = int64(rank) + step*int64(i)
		}
		from := (rank + n - 1) % n
		if _, err := cohort.Sendrecv(world, out, (rank+1)%n, 3, in, from, 3); err != nil {
			return err
		}
		for i := range in {
			if want := int64(from) + step*int64(i); in[i] != want {
				return fmt.Errorf("step %d: got %d from rank %d at %d, want %d", step, in[i], from, i, want)
			}
		}
		mine, sum := make([]int64, 3), make([]int64, 3) // of the work; that the job is to end, or to have another size
		for c := rank; c < chunks; c += n {
			mine[0] += int64(c+1) * (step + 1)
		}
		if _, err := os.Stat(stop); rank == 0 && err == nil {
			mine[1] = 1
		}
		select {
		case <-world.Resized():
			mine[2] = 1
		default:
		}
		if err := cohort.Allreduce(world, mine, sum, cohort.Sum); err != nil {
			return err
		}
		progress[0], progress[1] = step+1, elasticSum(progress[1], step)
		switch {
		case sum[0] != chunks*(chunks+1)/2*(step+1):
			return fmt.Errorf("step %d: the sum is %d", step, sum[0])
		case sum[1] > 0:
			fmt.Printf("end %d %d\n", progress[0], progress[1])
			return nil
		case sum[2] > 0:
			return errResize
		}
		time.Sleep(200 * time.Microsecond) // on purpose: a step takes a while
	}
}

func elasticSum(before, step int64) int64 {
	return (31*before + chunks*(chunks+1)/2*(step+1)) % 1000003
}

// elasticJob is a job of elasticRanks.
type elasticJob struct {
	t    *testing.T
	cmd  *exec.Cmd
	stop string
	tmp  string

	mu      sync.Mutex
	changed *sync.Cond
	text    strings.Builder // standard output and error
	pids    map[int]int     // of the ranks of the latest generation
	latest  int             // the generation
	size    int
	first   map[int]time.Time // when each generation's first operation ended on the last rank
	arrived int               // ranks of the latest generation
	over    bool
}

var (
	elasticLine = regexp.MustCompile(`^\[(\d+)\] generation (\d+) of (\d+) process (\d+) at (\d+)$`)
	elasticEnd  = regexp.MustCompile(`(?m)^\[\d+\] end (\d+) (\d+)$`)
)

func startElastic(t *testing.T, args ...string) *elasticJob {
	t.Helper()
	return startElasticBy(t, (*exec.Cmd).Start, args...)
}

// startElasticBy is startElastic with a function that starts the command.
func startElasticBy(t *testing.T, start func(*exec.Cmd) error, args ...string) *elasticJob {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &elasticJob{t: t, stop: filepath.Join(t.TempDir(), "stop"), tmp: t.TempDir(), pids: map[int]int{}, latest: -1, first: map[int]time.Time{}}
	j.changed = sync.NewCond(&j.mu)
	j.cmd = cohortCommand(t, append(append([]string{"run"}, args...), exe, "elastic-rank", j.stop)...)
	j.cmd.Env = append(j.cmd.Env, "TMPDIR="+j.tmp)
	j.cmd.Stdout, j.cmd.Stderr = &lineWriter{f: j.line}, &lineWriter{f: j.line}
	if err := start(j.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.cmd.Process.Kill() }) // each wait has its own watchdog
	return j
}

// lineWriter calls f for each line.
type lineWriter struct {
	f    func(string)
	rest string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest += string(p)
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return len(p), nil
		}
		w.rest = rest
		w.f(line)
	}
}

func (j *elasticJob) line(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.WriteString(text + "\n")
	if m := elasticLine.FindStringSubmatch(text); m != nil {
		var v [5]int
		for i := range v {
			v[i], _ = strconv.Atoi(m[i+1])
		}
		if v[1] > j.latest {
			j.latest, j.size, j.pids, j.arrived = v[1], v[2], map[int]int{}, 0
		}
		if v[1] == j.latest {
			j.pids[j.arrived] = v[3]
			j.arrived++
			if at := time.Unix(0, int64(v[4])); at.After(j.first[j.latest]) {
				j.first[j.latest] = at
			}
		}
	}
	j.changed.Broadcast()
}

// await waits until a generation of n ranks after the given one has made its first operation, and returns its number and processes.
func (j *elasticJob) await(after, n int) (generation int, pids []int) {
	j.t.Helper()
	j.until(fmt.Sprintf("a generation of %d ranks after %d", n, after), func() bool { return j.latest > after && j.size == n && j.arrived == n })
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range n {
		pids = append(pids, j.pids[i])
	}
	return j.latest, pids
}

// until waits for a state that ready, called with the mutex held, reports.
func (j *elasticJob) until(what string, ready func() bool) {
	j.t.Helper()
	dog := time.AfterFunc(patience, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.over = true
		j.changed.Broadcast()
	})
	defer dog.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for !ready() {
		if j.over {
			j.cmd.Process.Kill()
			j.t.Fatalf("waiting for %s:\n%s", what, j.text.String())
		}
		j.changed.Wait()
	}
}

// rank returns the process that was started as a rank, of those.
func (j *elasticJob) processOf(rank int) int {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	all := regexp.MustCompile(fmt.Sprintf(`(?m)^\[%d\] generation %d of \d+ process (\d+) `, rank, j.latest)).FindStringSubmatch(j.text.String())
	if all == nil {
		j.t.Fatalf("no process of rank %d in generation %d:\n%s", rank, j.latest, j.text.String())
	}
	pid, _ := strconv.Atoi(all[1])
	return pid
}

// end lets the job end, and checks its result, and that nothing is left.
func (j *elasticJob) end(ranks int) string {
	j.t.Helper()
	if err := os.WriteFile(j.stop, nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
	text := j.wait(0)
	ends := elasticEnd.FindAllStringSubmatch(text, -1)
	if len(ends) != ranks {
		j.t.Errorf("%d ranks have ended, want %d:\n%s", len(ends), ranks, text)
	}
	for _, e := range ends {
		steps, _ := strconv.ParseInt(e[1], 10, 64)
		var sum int64
		for step := range steps {
			sum = elasticSum(sum, step)
		}
		if e[2] != fmt.Sprint(sum) {
			j.t.Errorf("after %d steps the sum is %s, want %d:\n%s", steps, e[2], sum, text)
		}
	}
	return text
}

// name returns the job's name, by which it can be given another size.
func (j *elasticJob) name(least, most int) (name string) {
	j.t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^cohort: 'cohort scale (\S+) N' gives this job another number of ranks, from %d to %d$`, least, most))
	j.until("the job's name", func() bool {
		m := line.FindStringSubmatch(j.text.String())
		if m != nil {
			name = m[1]
		}
		return m != nil
	})
	return name
}

// scale has cohort scale ask a job to have another size.
func (j *elasticJob) scale(name, ranks string) (status int, text string) {
	j.t.Helper()
	cmd := cohortCommand(j.t, "scale", name, ranks)
	cmd.Env = append(cmd.Env, "TMPDIR="+j.tmp)
	status, out, errs := finish(j.t, cmd)
	return status, out + errs
}

// wait waits for the job's end and checks its status, and that nothing is left.
func (j *elasticJob) wait(status int) string {
	j.t.Helper()
	watch(j.t, j.cmd)
	_ = j.cmd.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	text := j.text.String()
	if got := j.cmd.ProcessState.ExitCode(); got != status {
		j.t.Errorf("status %d, want %d:\n%s", got, status, text)
	}
	for _, m := range regexp.MustCompile(`process (\d+) at`).FindAllStringSubmatch(text, -1) {
		pid, _ := strconv.Atoi(m[1])
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			j.t.Errorf("process %d is left:\n%s", pid, text)
		}
	}
	if left, _ := os.ReadDir(j.tmp); len(left) > 0 {
		j.t.Errorf("%v are left below TMPDIR", left)
	}
	return text
}

// A killed rank is replaced, rank 0 as well as any other, also while the others rejoin. The state of the survivors is kept.
func TestRunReplacesKilledRanks(t *testing.T) {
	for _, backend := range []string{"shm", "tcp"} {
		t.Run(backend, func(t *testing.T) {
			j := startElastic(t, "-n", "4", "--restarts", "10", "--backend", backend)
			g, _ := j.await(-1, 4)
			for _, rank := range []int{2, 0} {
				syscall.Kill(j.processOf(rank), syscall.SIGKILL)
				g, _ = j.await(g, 4)
			}
			text := j.end(4)
			for i, rank := range []int{2, 0} {
				want := fmt.Sprintf(`cohort: rank %d was killed by signal 9 \(killed\) after [0-9.]+ s; starting it again \(restart %d of 10\)\n`, rank, i+1)
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("no line %q in:\n%s", want, text)
				}
			}
		})
	}
}

// All ranks are killed at once: nothing of the state is left.
func TestRunReplacesAllRanks(t *testing.T) {
	j := startElastic(t, "-n", "3", "--restarts", "3", "--backend", "tcp")
	g, pids := j.await(-1, 3)
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	j.await(g, 3)
	j.end(3)
}

// A rank that is stopped is killed once the others have asked for the next world without it. It is not heard of again.
func TestRunReplacesStoppedRank(t *testing.T) {
	t.Setenv("COHORT_HEARTBEAT", "2s")
	j := startElastic(t, "-n", "3", "--restarts", "100") // on a slow machine, others may be silent as long
	g, _ := j.await(-1, 3)
	stopped, killed := j.processOf(1), j.processOf(2)
	syscall.Kill(stopped, syscall.SIGSTOP)
	syscall.Kill(killed, syscall.SIGKILL)
	_, pids := j.await(g, 3)
	if slices.Contains(pids, stopped) {
		t.Error("the stopped process is a rank of the next world")
	}
	if text := j.end(3); !strings.Contains(text, "cohort: rank 1 has not asked for a place in the next world in time: killed\n") {
		t.Errorf("got:\n%s", text)
	}
}

// A rank under Main that gets SIGTERM is replaced as one that dies, also if that ends a collective on it.
func TestRunReplacesRankAfterSIGTERM(t *testing.T) {
	for _, backend := range []string{"shm", "tcp"} {
		t.Run(backend, func(t *testing.T) {
			main := func(c *exec.Cmd) error {
				c.Args[slices.Index(c.Args, "elastic-rank")] = "elastic-main"
				return c.Start()
			}
			j := startElasticBy(t, main, "-n", "3", "--restarts", "5", "--backend", backend)
			g, _ := j.await(-1, 3)
			for i := range 5 {
				syscall.Kill(j.processOf(i%3), syscall.SIGTERM)
				g, _ = j.await(g, 3)
			}
			j.end(3)
		})
	}
}

// When no restart is left, an elastic job goes on with fewer ranks, down to its least number, and another fails.
func TestRunGoesOnWithoutRestarts(t *testing.T) {
	kept := t.TempDir()
	j := startElastic(t, "-n", "4", "--elastic", "2:4", "--flight", kept)
	g, _ := j.await(-1, 4)
	for n := 3; n >= 2; n-- {
		syscall.Kill(j.processOf(n), syscall.SIGKILL)
		g, _ = j.await(g, n)
	}
	syscall.Kill(j.processOf(0), syscall.SIGKILL)
	text := j.wait(137)
	if dumps, _, err := flight.Read(kept); err != nil || len(dumps) != 2 || dumps[0].Size != 2 {
		t.Errorf("got files of %d ranks (%v), want those of the last world, of 2", len(dumps), err)
	}
	for _, want := range []string{"rank 3 was killed by signal 9 (killed) after ", "; the job goes on with 3 ranks\n", "; the job goes on with 2 ranks\n",
		"no restarts are left, and the job cannot go on with fewer ranks"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestRunFailsWithoutRestarts(t *testing.T) {
	j := startElastic(t, "-n", "2", "--restarts", "1", "--backend", "tcp")
	g, _ := j.await(-1, 2)
	syscall.Kill(j.processOf(1), syscall.SIGKILL)
	j.await(g, 2)
	syscall.Kill(j.processOf(0), syscall.SIGTERM)
	j.wait(143)
}

// A rank that fails whenever it is started is started again at growing intervals until no restart is left, and its status is the
// job's.
func TestRunEndsJobOfRankThatAlwaysFails(t *testing.T) {
	status, out, errs := run(t, "run", "-n", "2", "--restarts", "3", "sh", "-c", "test $COHORT_RANK != 1 || { echo again; exit 7; }; exec sleep 1000")
	if status != 7 || strings.Count(out, "[1] again\n") != 4 || strings.Count(errs, "; starting it again (restart ") != 3 || !strings.Contains(errs, "; ending the others\n") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
}

// While a rank waits to be started again, a request to end ends the job, with the status of that rank.
func TestSignalEndsJobThatRestarts(t *testing.T) {
	cmd := cohortCommand(t, "run", "-n", "1", "--restarts", "1000", "sh", "-c", "exit 7")
	var out lineWriter
	twice := make(chan bool, 1000)
	out.f = func(line string) {
		if strings.Contains(line, "(restart 5 of 1000)") {
			twice <- true
		}
	}
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watch(t, cmd)
	<-twice
	cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 7 && status != 143 { // 143: the signal has reached it
		t.Errorf("status %d", status)
	}
}
