package main

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// checkpointArgs is a training to interrupt.
var checkpointArgs = append([]string{"train", caseDir("brazil4"), "--json"},
	strings.Fields("--iterations 12 --passes 4 --openings 3 --scenarios 20 --threads 1 --pin none")...)

// with returns arguments and more of them.
func with(args []string, more ...string) []string {
	return append(args[:len(args):len(args)], more...)
}

// uninterrupted holds the results of trainings by their arguments: tests share them.
var uninterrupted = map[string]result{}

// checkpointResult returns the result of a training that nothing interrupts.
func checkpointResult(t *testing.T, args []string) result {
	t.Helper()
	key := strings.Join(args, " ")
	if r, ok := uninterrupted[key]; ok {
		return r
	}
	status, out, errs := sddpRun(t, args...)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	uninterrupted[key] = lastLine(t, out)
	return uninterrupted[key]
}

// goesOn resumes from a folder and compares the result.
func goesOn(t *testing.T, want result, args ...string) (errs string) {
	t.Helper()
	status, out, errs := sddpRun(t, args...)
	if status != 0 {
		t.Fatalf("sddp %v: status %d: %s", args, status, errs)
	}
	got := lastLine(t, out)
	got.Seconds, got.Ranks = want.Seconds, want.Ranks
	if got != want {
		t.Errorf("sddp %v: got %+v, want %+v", args, got, want)
	}
	return errs
}

// iterationLine matches a line of progress.
var iterationLine = regexp.MustCompile(`^ *[0-9]+/[0-9]+ `)

// afterIteration starts a run and waits until it has printed n iterations. It returns the lines to come.
func afterIteration(t *testing.T, cmd *exec.Cmd, n int) *bufio.Scanner {
	t.Helper()
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for n > 0 && lines.Scan() {
		if iterationLine.MatchString(lines.Text()) {
			n--
		}
	}
	if n > 0 {
		t.Fatalf("%v: the command exited: %v", cmd, cmd.Wait())
	}
	return lines
}

// A training that receives a signal saves a checkpoint, prints how to continue, and ends with the status of
// the signal. The resumed training gives the same bits.
func TestSignalSavesCheckpoint(t *testing.T) {
	want := checkpointResult(t, checkpointArgs)
	for _, k := range []struct {
		signal  syscall.Signal
		status  int
		said    string
		goingOn []string
	}{
		{syscall.SIGTERM, 143, "sddp: stopped by SIGTERM; continue with --resume ", []string{"--resume"}},
		{syscall.SIGINT, 130, "sddp: interrupted; continue with --resume ", []string{"--resume", "--checkpoint"}},
	} {
		dir := t.TempDir()
		cmd := commandOf(t, with(checkpointArgs, "--checkpoint", dir, "--checkpoint-every", "100")...)
		lines := afterIteration(t, cmd, 3)
		if err := cmd.Process.Signal(k.signal); err != nil {
			t.Fatal(err)
		}
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != k.status || !strings.HasPrefix(last, k.said+dir+" (") {
			t.Fatalf("%v: ended with %v and %q", k.signal, err, last)
		}
		if found, err := filepath.Glob(filepath.Join(dir, "checkpoint-*.bin")); err != nil || len(found) != 1 {
			t.Errorf("the folder holds %v (%v), want one checkpoint", found, err)
		}
		args := checkpointArgs
		for _, flag := range k.goingOn {
			args = with(args, flag, dir)
		}
		if errs := goesOn(t, want, args...); !strings.Contains(errs, "sddp: resuming after iteration ") {
			t.Errorf("the checkpoint is not mentioned: %s", errs)
		}
	}
}

// A training that is killed repeatedly resumes from the last checkpoint with the same command, as in a job
// script, and gives the same bits.
func TestTrainingSurvivesRepeatedKills(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: a training is killed repeatedly, and not only once as in TestKilledJobResumes; make test-all runs it")
	}
	train, kills := with(checkpointArgs, "--iterations", "30"), 5
	want, dir := checkpointResult(t, train), filepath.Join(t.TempDir(), "checkpoints")
	args := with(train, "--resume", "--checkpoint", dir, "--checkpoint-every", "1")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range kills {
		cmd := commandOf(t, args...)
		afterIteration(t, cmd, 2)
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // poll: it is written in the background
			if found, _ := filepath.Glob(filepath.Join(dir, "checkpoint-*.bin")); len(found) > 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("no checkpoint after a minute")
			}
		}
		for range rng.IntN(4000) { // a moment later
			runtime.Gosched()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the training finished")
		}
		found, err := filepath.Glob(filepath.Join(dir, "checkpoint-*.bin"))
		if err != nil || len(found) < 1 || len(found) > 3 {
			t.Fatalf("the folder holds %v (%v), want 1 to 3 checkpoints", found, err)
		}
	}
	if errs := goesOn(t, want, args...); !strings.Contains(errs, "sddp: resuming after iteration ") || strings.Contains(errs, "damaged") {
		t.Errorf("the last run said %s", errs)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*.tmp")); err != nil || len(left) != 0 {
		t.Errorf("%v are left (%v)", left, err)
	}
	// The folder also serves a longer training.
	goesOn(t, want, with(train, "--resume", dir)...)
	longer := with(train, "--iterations", "32")
	goesOn(t, checkpointResult(t, longer), with(longer, "--resume="+dir)...)
}

// On a signal the ranks of a job stop together, after rank 0 has saved. The job resumes with other ranks.
func TestSignalStopsJobTogether(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the backend shm is for Linux")
	}
	want, tool := checkpointResult(t, checkpointArgs), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	backends := []string{"shm", "tcp"}
	if testing.Short() {
		backends = backends[:1]
	}
	for _, backend := range backends {
		dir := t.TempDir()
		cmd := exec.Command(tool, with([]string{"run", "--backend", backend, "--tag=false", "-n", "3", exe}, with(checkpointArgs, "--checkpoint", dir)...)...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		lines := afterIteration(t, cmd, 2)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		said := 0
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "sddp: stopped by SIGTERM; continue with --resume "+dir+" (") {
				said++
			} else if strings.HasPrefix(lines.Text(), "sddp: ") {
				t.Errorf("%s: said %q", backend, lines.Text())
			}
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 || said != 1 {
			t.Errorf("%s: ended with %v, and said %d times how to go on", backend, err, said)
		}
		goesOn(t, want, with(checkpointArgs, "--resume", dir)...)
	}
}

// The checkpoints of another training are rejected before the work begins and not overwritten.
func TestWrongCheckpointFolderFailsBeforeWork(t *testing.T) {
	dir := t.TempDir()
	args := []string{"train", caseDir("toy"), "--iterations", "2", "--checkpoint", dir}
	if status, _, errs := sddpRun(t, args...); status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	file := filepath.Join(dir, "checkpoint-000002.bin")
	for _, k := range []struct {
		args []string
		err  string
	}{
		{args, dir + ": it has a training of 2 iterations"},
		{[]string{"train", caseDir("brazil4"), "--resume", dir}, file + ": case_sha256: got"},
		{[]string{"train", caseDir("toy"), "--resume", dir, "--seed", "2"}, file + ": seed: got 1, want 2"},
		{[]string{"train", caseDir("toy"), "--resume", filepath.Join(dir, "none")}, "it has no checkpoint to resume from"},
		{[]string{"train", caseDir("toy"), "--checkpoint", file}, "checkpoint folder " + file},
	} {
		status, out, errs := sddpRun(t, k.args...)
		if status != 1 || out != "" || !strings.Contains(errs, k.err) || strings.Contains(errs, "lower bound") {
			t.Errorf("sddp %v: status %d, output %q, errors %q; want 1, nothing, %q", k.args, status, out, errs, k.err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("the folder to resume from was created")
	}
}

// Without the folder of the checkpoints the training finishes with its results, and with status 1.
func TestLostCheckpointFolderFailsAtEnd(t *testing.T) {
	want, dir := checkpointResult(t, checkpointArgs), filepath.Join(t.TempDir(), "checkpoints")
	cmd := commandOf(t, with(checkpointArgs, "--checkpoint", dir, "--checkpoint-every", "4")...)
	var out bytes.Buffer
	cmd.Stdout = &out
	lines := afterIteration(t, cmd, 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "sddp: ") {
			said = append(said, lines.Text())
		}
	}
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("ended with %v", err)
	}
	if got := lastLine(t, out.String()); got.CutsSHA256 != want.CutsSHA256 || got.UpperMean != want.UpperMean {
		t.Errorf("got %+v, want %+v", got, want)
	}
	last := "sddp: checkpoint " + filepath.Join(dir, "checkpoint-000012.bin") + ": "
	if len(said) == 0 || !strings.HasPrefix(said[len(said)-1], last) {
		t.Errorf("said %q, want last %q", said, last)
	}
	for _, warning := range said[:max(len(said)-1, 0)] { // fewer if the training was ahead of this test
		if want := "sddp: warning: checkpoint " + filepath.Join(dir, "checkpoint-0000"); !strings.HasPrefix(warning, want) {
			t.Errorf("said %q, want %q first", said, want)
		}
	}
}

func TestResumeFlagForms(t *testing.T) {
	for _, k := range []struct {
		args, dir, resume, checkpoint string
		set                           bool
	}{
		{"case --resume d", "case", "d", "d", true},
		{"--resume d case", "case", "d", "d", true},
		{"--resume d -- case", "case", "d", "d", true},
		{"--resume=d case", "case", "d", "d", true},
		{"case --resume d --checkpoint e", "case", "d", "e", true},
		{"--resume case --checkpoint e", "case", "", "e", true},
		{"case --checkpoint e --resume", "case", "", "e", true},
		{"case --checkpoint e", "case", "", "e", false},
	} {
		o := &options{}
		cmd := trainCommand(o, nil, nil)
		cmd.SetArgs(strings.Fields(k.args))
		cmd.RunE = func(*cobra.Command, []string) error { return nil }
		if err := cmd.Execute(); err != nil {
			t.Errorf("%s: %v", k.args, err)
		} else if o.dir != k.dir || o.resumeDir != k.resume || o.resume != k.set || o.checkpointDir() != k.checkpoint {
			t.Errorf("%s: case %q, resume %v %q, checkpoints %q", k.args, o.dir, o.resume, o.resumeDir, o.checkpointDir())
		}
	}
}
