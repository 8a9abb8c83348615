package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// statsProgram makes a copy of the test binary be a rank whose operations are known.
const statsProgram = "stats-rank"

// awaitFile is a variable with the file that rank 1 of statsProgram waits for before it closes the world.
const awaitFile = "TEST_AWAIT_FILE"

func init() {
	rankPrograms[statsProgram] = func(how string) int {
		var err error
		if how == "parallel" {
			var all sync.WaitGroup
			errs := make([]error, 6)
			for i := range errs {
				all.Go(func() {
					errs[i] = cohort.Run(context.Background(), 2, func(c *cohort.Comm) error { return knownOperations(c, how) })
				})
			}
			all.Wait()
			err = errors.Join(errs...)
		} else if how == "local" {
			err = cohort.Run(context.Background(), 2, func(c *cohort.Comm) error { return knownOperations(c, how) })
		} else {
			var world *cohort.Comm
			if world, err = cohort.Init(context.Background(), nil); err == nil {
				if how == "nested" && world.Rank() == 1 {
					err = cohort.Run(context.Background(), 2, func(c *cohort.Comm) error { return c.Barrier() })
				}
				err = errors.Join(err, knownOperations(world, how))
				if file := os.Getenv(awaitFile); file != "" && world.Rank() == 1 {
					for _, e := os.Stat(file); e != nil; _, e = os.Stat(file) {
						time.Sleep(10 * time.Millisecond) // poll
					}
				}
				err = errors.Join(err, world.Close())
			}
		}
		if err != nil {
			fmt.Println(err)
			return 3
		}
		return 0
	}
}

// known are the operations of knownOperations: how many calls both ranks make, and how many bytes they move.
var known = map[string][2]uint64{
	"Allreduce world": {20, 640}, "Send world": {6, 160}, "Recv world": {6, 124}, "Ssend world": {1, 4}, "Isend world": {3, 48},
	"Irecv world": {3, 48}, "Sendrecv world": {4, 64}, "Isendrecv world": {2, 32}, "Iallreduce world": {4, 64},
	"AllreduceInit world": {2, 0}, "persistent Allreduce world": {8, 64}, "persistent Send world": {3, 24}, "persistent Recv world": {3, 24},
	"Alltoallv world": {2, 2 * 3 * 8}, "AlltoallView world": {2, 2 * 4 * 8}, "Gatherv world": {2, 3*8 + 1*8}, "ReduceScatter world": {2, 2 * 5 * 8},
	"RecvAppend world": {1, 40}, "Barrier world.dup1": {2, 0}, "Fence world": {4, 0}, "Put world": {2, 16},
}

// knownOperations is one of two ranks.
func knownOperations(c *cohort.Comm, how string) error {
	var errs []error
	ok := func(err error) { errs = append(errs, err) }
	wait := func(q *cohort.Request, err error) { ok(err); _, err = q.Wait(); ok(err) }
	x, y, me, other := make([]float64, 4), make([]float64, 4), c.Rank(), 1-c.Rank()
	short, long := make([]int64, 3), make([]int64, 100)
	for range 10 {
		part := c.Region("part")
		ok(cohort.Allreduce(c, x, y, cohort.Sum))
		part.End()
	}
	if me == 0 {
		for range 5 {
			ok(cohort.Send(c, short, 1, 0))
		}
		ok(cohort.Ssend(c, []int32{7}, 1, 1))
		for range 3 {
			wait(cohort.Isend(c, short[:2], 1, 2))
		}
		p, err := cohort.SendInit(c, short[:1], 1, 3)
		ok(err)
		for range 3 {
			ok(p.Start())
			_, err = p.Wait()
			ok(err)
		}
		ok(errors.Join(p.Close(), cohort.Send(c, long[:5], 1, 4)))
	} else {
		for range 5 {
			_, err := cohort.Recv(c, long, 0, 0)
			ok(err)
		}
		_, err := cohort.Recv(c, make([]int32, 1), 0, 1)
		ok(err)
		for range 3 {
			wait(cohort.Irecv(c, long, 0, 2))
		}
		p, err := cohort.RecvInit(c, long, 0, 3)
		ok(err)
		for range 3 {
			ok(p.Start())
			_, err = p.Wait()
			ok(err)
		}
		_, _, err = cohort.RecvAppend(c, []int64(nil), 0, 4)
		ok(errors.Join(p.Close(), err))
	}
	if how == "killed" && me == 1 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for range 2 {
		_, err := cohort.Sendrecv(c, short[:1], other, 5, long[:1], other, 5)
		ok(err)
		wait(cohort.Iallreduce(c, x[:2], y[:2], cohort.Sum))
	}
	wait(cohort.Isendrecv(c, short[:1], other, 6, long, other, 6))
	p, err := cohort.AllreduceInit(c, x[:1], y[:1], cohort.Sum)
	ok(err)
	for range 4 {
		ok(p.Start())
		_, err = p.Wait()
		ok(err)
	}
	ok(p.Close())
	ok(cohort.Alltoallv(c, short, []int{1 + me, 2 - me}, nil, long[:3], []int{1 + me, 2 - me}, nil))
	every := func(s []int64) []cohort.View[int64] {
		v := cohort.ViewOf(s, cohort.Vector(2, 1, 3))
		return []cohort.View[int64]{v, cohort.ViewOf(s[10:], cohort.Vector(2, 1, 3))}
	}
	ok(cohort.AlltoallView(c, every(long), every(make([]int64, 100))))
	ok(cohort.Gatherv(c, short[:1+me], long[:3], []int{1, 2}, nil, 1))
	ok(cohort.ReduceScatter(c, long[:5], make([]int64, 2+me), []int{2, 3}, cohort.Sum))
	d, err := c.Dup()
	ok(err)
	ok(errors.Join(d.Barrier(), d.Close()))
	w, err := cohort.NewWindow[int64](c, 1)
	ok(err)
	ok(errors.Join(w.Fence(), w.Put(short[:1], other, 0), w.Fence(), w.Close()))
	return errors.Join(errs...)
}

// TestStatsCountKnownOperations runs a program on every backend: the counts are right, and the times add up.
func TestStatsCountKnownOperations(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"shm", "tcp", "local"} {
		t.Run(backend, func(t *testing.T) {
			line := []string{"-n", "2", "--backend", backend, exe, statsProgram, ""}
			if backend == "local" {
				line = []string{"-n", "1", "env", "COHORT_BACKEND=local", exe, statsProgram, "local"}
			}
			dir := t.TempDir()
			status, stdout, stderr := run(t, append([]string{"run", "--stats", "--flight", dir}, line...)...)
			if status != 0 || !strings.Contains(stderr, "cohort: 2 ranks on "+backend) || !strings.Contains(stderr, "region") {
				t.Fatalf("status %d:\n%s%s", status, stdout, stderr)
			}
			checkStats(t, dir)
		})
	}
}

// The summary is written to a file without the launcher's help, and by cohort run.
func TestStatsAreWrittenToFile(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stats.json")
	t.Setenv(flight.EnvStats, file)
	cmd := exec.Command(exe, statsProgram, "local")
	cmd.Env = append(os.Environ(), "COHORT_BACKEND=local")
	checkStatsFile(t, cmd, file)
	if status, stdout, stderr := run(t, "run", "-n", "2", exe, statsProgram, ""); status != 0 || strings.Contains(stderr, "region") {
		t.Fatalf("status %d:\n%s%s", status, stdout, stderr)
	}
	checkSummary(t, file)
	for bad, says := range map[string]string{t.TempDir(): "is a folder", exe + "/stats": "not a directory"} {
		cmd := exec.Command(exe, statsProgram, "local")
		cmd.Env = append(os.Environ(), flight.EnvStats+"="+bad)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), flight.EnvStats+": ") || !strings.Contains(string(out), says) {
			t.Errorf("%s=%s: %v\n%s", flight.EnvStats, bad, err, out)
		}
	}
}

// TestStatsOfRanksOnHosts has ranks on two hosts count. They do not get the name of the file: this command writes it.
func TestStatsOfRanksOnHosts(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n, kept, file := newNetwork(t), t.TempDir(), filepath.Join(t.TempDir(), "stats.json")
	for _, name := range []string{"", file} {
		t.Setenv(flight.EnvStats, name)
		line := n.line("-n", "2", "--stats", "--flight", kept, "--hosts", "127.0.0.1,127.0.0.2", "sh", "-c", `echo $COHORT_STATS; exec "$@"`, "sh", exe, statsProgram, "")
		if status, stdout, stderr := run(t, line...); status != 0 || !sameLines(stdout, "[0] 1\n[1] 1\n") {
			t.Fatalf("%s=%s: status %d, want 0, and that each rank has 1:\n%s%s", flight.EnvStats, name, status, stdout, stderr)
		}
		checkStats(t, kept)
	}
	checkSummary(t, file)
	if status, stdout, stderr := run(t, n.line("-n", "2", "--stats=false", "--hosts", "127.0.0.1,127.0.0.2", "sh", "-c", "echo -$COHORT_STATS-")...); status != 0 || !sameLines(stdout, "[0] --\n[1] --\n") {
		t.Errorf("--stats=false: status %d, want 0, and that no rank has %s:\n%s%s", status, flight.EnvStats, stdout, stderr)
	}
	n.nothingLeft(t)
}

// Jobs of one process with one file do not disturb each other. The file is that of the last.
func TestStatsOfJobsSideBySide(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stats.json")
	cmd := exec.Command(exe, statsProgram, "parallel")
	cmd.Env = append(os.Environ(), flight.EnvStats+"="+file)
	checkStatsFile(t, cmd, file)
}

// A rank that calls Run does not replace the counts of its own job.
func TestStatsOfJobWithInnerJob(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if status, stdout, stderr := run(t, "run", "--stats", "--flight", dir, "-n", "2", exe, statsProgram, "nested"); status != 0 {
		t.Fatalf("status %d:\n%s%s", status, stdout, stderr)
	}
	checkStats(t, dir)
}

// Two jobs of one name leave their files in one folder. The summary of the second has no counts of the first.
func TestStatsLeaveOutEarlierJob(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "stats.json")
	job := func(await string) {
		ranks := make([]*exec.Cmd, 2)
		out := make([]bytes.Buffer, len(ranks))
		for r := range ranks {
			ranks[r] = exec.Command(exe, statsProgram, "")
			ranks[r].Env = append(os.Environ(), "COHORT_BACKEND=shm", "COHORT_SIZE=2", fmt.Sprint("COHORT_RANK=", r), "COHORT_JOB="+filepath.Base(dir)+fmt.Sprint(os.Getpid()),
				flight.EnvStats+"="+file, flight.EnvDir+"="+filepath.Join(dir, "ranks"), awaitFile+"="+await)
			ranks[r].Stdout, ranks[r].Stderr = &out[r], &out[r]
			if err := ranks[r].Start(); err != nil {
				t.Fatal(err)
			}
		}
		for r := range ranks {
			if err := ranks[r].Wait(); err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, &out[r])
			}
		}
	}
	job("")
	checkSummary(t, file)
	job(file) // rank 1 leaves when the summary has been written
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var s flight.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if without := append(s.Missing, s.Killed...); len(without) != 1 || without[0] != 1 { // Killed if the folder is in memory
		t.Errorf("the summary is without ranks %v, want 1:\n%s", without, text)
	}
}

func TestStatsAreWrittenToFileOverMPI(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		file := filepath.Join(t.TempDir(), "stats.json")
		cmd := l.Command(2, exe, statsProgram, "")
		cmd.Env = append(cmd.Env, flight.EnvStats+"="+file)
		checkStatsFile(t, cmd, file)
	})
}

// checkStatsFile runs a job that writes a summary, and leaves nothing beside it.
func checkStatsFile(t *testing.T, cmd *exec.Cmd, file string) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	checkSummary(t, file)
	if names, err := os.ReadDir(filepath.Dir(file)); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func checkStats(t *testing.T, dir string) {
	status, stdout, stderr := run(t, "report", "--stats", "--json", dir)
	if status != 0 {
		t.Fatalf("status %d:\n%s%s", status, stdout, stderr)
	}
	file := filepath.Join(t.TempDir(), "stats.json")
	if err := os.WriteFile(file, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	checkSummary(t, file)
}

// checkSummary looks at the summary of knownOperations in a file, and removes it.
func checkSummary(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(file)
	var s flight.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	got := make(map[string][2]uint64)
	share := 0.
	for _, o := range s.Operations {
		got[o.Operation+" "+o.Comm] = [2]uint64{o.Calls, o.Bytes}
		share += o.Share
		if !(o.Min >= 0 && o.Min <= o.Mean && o.Mean <= o.Max && o.Waiting >= 0 && o.Waiting <= o.Mean*1.0001) {
			t.Errorf("%+v: want min <= mean <= max, and no more waiting", o)
		}
	}
	for name, want := range known {
		if got[name] != want {
			t.Errorf("%s: %v calls and bytes, want %v", name, got[name], want)
		}
	}
	if share <= 0 || share > 1 || s.Ranks != 2 || s.Missing != nil || s.Killed != nil {
		t.Errorf("%d ranks, a share of %v, without %v and %v; want 2, up to 1, none", s.Ranks, share, s.Missing, s.Killed)
	}
	if len(s.Regions) != 1 || s.Regions[0].Operation != "part" || s.Regions[0].Calls != 20 || !(s.Regions[0].Inside > 0 && s.Regions[0].Inside <= s.Regions[0].Mean) {
		t.Errorf("regions %+v, want 20 of part, with some time in operations", s.Regions)
	}
}

// TestStatsOfKilledRank kills a rank: the table has what it has done until then, and says that there is no more.
func TestStatsOfKilledRank(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(memoryFolder); err != nil {
		t.Skipf("a file system in memory is needed: %v", err)
	}
	status, _, stderr := run(t, "run", "--stats", "-n", "2", exe, statsProgram, "killed")
	if status != 137 || !strings.Contains(stderr, "rank 1 did not close the world") || !strings.Contains(stderr, "\n  Allreduce ") {
		t.Errorf("status %d, want 137 and a table that names rank 1:\n%s", status, stderr)
	}
}
