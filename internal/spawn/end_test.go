//go:build unix

package spawn

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/topo"
)

func TestFirstFailureGivesJobItsStatus(t *testing.T) {
	for _, c := range []struct {
		name          string
		args          []string
		first, status int
		message       string
	}{
		{"status", []string{"2=7"}, 2, 7, "cohort: rank 2 exited with status 7 after "},
		{"signal", []string{"1=signal9"}, 1, 137, "cohort: rank 1 was killed by signal 9 (killed) after "},
		{"own SIGTERM", []string{"3=signal15"}, 3, 143, "cohort: rank 3 was killed by signal 15 (terminated) after "},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := program(t, 4, "exit", c.args...)
			r := wait(t, start(t, cfg))
			if r.Status != c.status || r.First != c.first || r.Err != nil {
				t.Errorf("got %+v, want status %d of rank %d", r, c.status, c.first)
			}
			text := cfg.Stderr.(*buffer).String()
			if !strings.Contains(text, c.message) || !strings.Contains(text, "; ending the others\n") || strings.Count(text, "cohort:") != 1 {
				t.Errorf("stderr:\n%s", text)
			}
			words := strings.Index(text, "] my last words")
			if c.name == "status" && (words < 0 || words > strings.Index(text, "cohort:")) {
				t.Errorf("the rank's last words do not come before the report:\n%s", text)
			}
		})
	}
}

// TestAbortGivesJobItsStatus checks that an Abort gives the job its status, though another rank ends first.
func TestAbortGivesJobItsStatus(t *testing.T) {
	cfg, folder := program(t, 4, "exit", "2=1"), t.TempDir()
	cfg.Folder = folder
	cfg.Resilient = true
	if err := os.WriteFile(filepath.Join(folder, "aborted-3"), []byte("7 false\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, start(t, cfg)); r.Status != 7 || r.First != 3 || r.Err != nil || !r.Aborted {
		t.Errorf("got %+v, want status 7 of rank 3, which aborted the job", r)
	}
	if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "cohort: rank 3 aborted the job with code 7 after ") {
		t.Errorf("stderr:\n%s", text)
	}
}

// TestAbortAfterFailureLeavesTheBlame has rank 3 call Abort because it was told of the failure of rank 1, in both orders in which
// the launcher may learn of the two ends, and without that failure.
func TestAbortAfterFailureLeavesTheBlame(t *testing.T) {
	for _, c := range []struct {
		order         []string
		first, status int
	}{
		{[]string{"1=signal9", "3=7"}, 1, 137},
		{[]string{"3=7", "1=signal9"}, 1, 137},
		{[]string{"3=7"}, 3, 7},
	} {
		cfg := program(t, 4, "ordered", append([]string{t.TempDir()}, c.order...)...)
		cfg.Folder = t.TempDir()
		for name, text := range map[string]string{"aborted-3": "7 true\n", "follows-3": ""} {
			if err := os.WriteFile(filepath.Join(cfg.Folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r := wait(t, start(t, cfg)); r.Status != c.status || r.First != c.first || r.Err != nil {
			t.Errorf("%v: got %+v, want status %d of rank %d", c.order, r, c.status, c.first)
		}
		if text := cfg.Stderr.(*buffer).String(); c.first == 3 && !strings.Contains(text, "rank 3 aborted the job with code 7 after ") {
			t.Errorf("%v: stderr:\n%s", c.order, text)
		}
	}
}

// TestAbortInReactionToAbort has rank 1 call Abort because rank 3 has. The first one counts, whichever rank ends first, also in a
// job that goes on after losses.
func TestAbortInReactionToAbort(t *testing.T) {
	for _, order := range [][]string{{"3=7", "1=9"}, {"1=9", "3=7"}} {
		for _, resilient := range []bool{false, true} {
			cfg := program(t, 4, "ordered", append([]string{t.TempDir()}, order...)...)
			cfg.Folder, cfg.Resilient = t.TempDir(), resilient
			for name, text := range map[string]string{"aborted-3": "7 false\n", "aborted-1": "9 true\n", "follows-1": ""} {
				if err := os.WriteFile(filepath.Join(cfg.Folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if r := wait(t, start(t, cfg)); r.Status != 7 || r.First != 3 || !r.Aborted {
				t.Errorf("%v, resilient %v: got %+v, want status 7 of rank 3", order, resilient, r)
			}
		}
	}
}

func TestRanksThatIgnoreSIGTERMAreKilled(t *testing.T) {
	cfg := program(t, 3, "stubborn")
	j := start(t, cfg)
	cfg.Stdout.(*buffer).await(t, "ready", 3)
	began := time.Now()
	j.Stop()
	r := wait(t, j)
	t.Logf("ended after %v", time.Since(began))
	if r.Status != 0 || r.Err != nil || r.First != -1 {
		t.Errorf("got %+v", r)
	}
	if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "ranks 0, 1, 2 did not end within 1s of SIGTERM: killed") {
		t.Errorf("stderr:\n%s", text)
	}
	for _, r := range j.ranks {
		if groupAlive(r.pgid) {
			t.Errorf("process group %d is left", r.pgid)
		}
	}
}

func TestStoppedRanksAreEnded(t *testing.T) {
	cfg := program(t, 2, "wait")
	j := start(t, cfg)
	cfg.Stdout.(*buffer).await(t, "ready", 2)
	syscall.Kill(j.ranks[1].pgid, syscall.SIGSTOP)
	j.Stop()
	wait(t, j)
	// Had SIGCONT not come with it, SIGTERM would have been seen by rank 0 only.
	cfg.Stdout.(*buffer).await(t, "got terminated", 2)
}

func TestTimeoutEndsJob(t *testing.T) {
	cfg := program(t, 2, "wait")
	cfg.Timeout = 300 * time.Millisecond
	if r := wait(t, start(t, cfg)); r.Status != job.StatusTimeout || r.Err == nil {
		t.Errorf("got %+v", r)
	}
	if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "cohort: the job did not end within 300ms (--timeout); ending its 2 ranks\n") {
		t.Errorf("stderr:\n%s", text)
	}
}

func TestStartRejectsBadConfigs(t *testing.T) {
	cfg := program(t, 2, "wait")
	for _, n := range []int{-1, 0, MaxRanks + 1} {
		bad := cfg
		bad.Programs = Programs{{bad.Programs[0].Path, nil, n}}
		if _, err := Start(bad); err == nil || !strings.Contains(err.Error(), "ranks") {
			t.Errorf("%d ranks: got %v", n, err)
		}
	}
	bad := cfg
	bad.Places = []topo.CPUSet{{0}}
	if _, err := Start(bad); err == nil {
		t.Error("a place too few is no error")
	}
	bad = cfg
	bad.Programs = Programs{{filepath.Join(t.TempDir(), "none"), nil, 1}}
	if _, err := Start(bad); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: got %v", err)
	}
}

// TestStartEndsRanksIfOneCannotStart takes the program away while ranks are started,
// by a limit on descriptors that only the first ones fit in.
func TestStartEndsRanksIfOneCannotStart(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	cfg := program(t, 60, "stubborn")
	limit := old
	limit.Cur = 100 // a rank takes three; some are open already
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	j, err := Start(cfg)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		j.Stop()
		wait(t, j)
		t.Fatal("60 ranks with 100 descriptors are no error")
	}
	if !strings.Contains(err.Error(), "ulimit -n") {
		t.Errorf("got %v", err)
	}
	if left := children(); left != "" {
		t.Errorf("processes left: %s", left)
	}
}

func TestRankGetsEnvironmentAndInput(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	write.WriteString("from the input\n")
	write.Close()
	out := new(buffer)
	cfg := Config{
		Programs: Programs{{sh, []string{"-c", `echo "$COHORT_BACKEND $COHORT_RANK/$COHORT_SIZE $COHORT_JOB $OTHER"; cat`}, 3}},
		Tag:      true, Stdin: read, Stdout: out, Stderr: out,
		Env: []string{"OTHER=kept", "COHORT_RANK=77", "COHORT_JOB=old", "PATH=" + os.Getenv("PATH")},
	}
	if r := wait(t, start(t, cfg)); r.Status != 0 {
		t.Fatalf("%+v\n%s", r, out)
	}
	job := ""
	for rank := range 3 {
		var id string
		for line := range strings.Lines(out.String()) {
			if rest, ok := strings.CutPrefix(line, fmt.Sprintf("[%d] shm %d/3 ", rank, rank)); ok {
				id, ok = strings.CutSuffix(rest, " kept\n")
				if !ok || len(id) < 16 {
					t.Errorf("rank %d: %q", rank, line)
				}
			}
		}
		if rank == 0 {
			job = id
		}
		if id == "" || id != job {
			t.Errorf("rank %d has job %q, rank 0 %q:\n%s", rank, id, job, out)
		}
	}
	if text := out.String(); !strings.Contains(text, "[0] from the input\n") || strings.Count(text, "from the input") != 1 {
		t.Errorf("the input did not go to rank 0 alone:\n%s", text)
	}
}

// A rank that is stopped, and that the others have finished without, does not keep the job.
func TestStoppedRankDoesNotKeepResilientJob(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("whether a process is stopped is known on Linux only")
	}
	for _, c := range []struct {
		name          string
		args          []string // how the ranks that are not stopped end
		first, status int
		replaces      bool // the job could start others
	}{
		{"others succeed", []string{"1=0", "2=0"}, -1, 0, false},
		{"another is lost", []string{"1=3", "2=0"}, -1, 0, false},
		{"another fails", []string{"1=0", "2=5"}, 2, 5, false},
		{"others succeed, with restarts", []string{"1=0", "2=0"}, -1, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			stop := fmt.Sprint("0=signal", int(syscall.SIGSTOP))
			cfg := replaceable(t, 3, 1, "ordered", append([]string{t.TempDir(), stop}, c.args...)...)
			if !c.replaces {
				cfg.Generations, cfg.Resilient = nil, true
			}
			r := wait(t, start(t, cfg))
			if r.Status != c.status || r.First != c.first || r.Err != nil {
				t.Errorf("got %+v, want status %d of rank %d", r, c.status, c.first)
			}
			if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "cohort: rank 0 is stopped, and all others have ended; ending it\n") {
				t.Errorf("stderr:\n%s", text)
			}
		})
	}
}

// A job that only might go on ends as others do; one that is asked to end does too.
func TestResilientJobEndsOnRequest(t *testing.T) {
	cfg := program(t, 3, "exit", "1=6")
	cfg.Folder = t.TempDir() // no rank asks in it for the job to go on
	if r := wait(t, start(t, cfg)); r.Status != 6 || r.First != 1 {
		t.Errorf("a job that does not go on: %+v", r)
	}
	cfg = program(t, 3, "exit", "9=0") // all wait for a signal
	cfg.Resilient = true
	cfg.Signals = make(chan os.Signal, 1)
	j := start(t, cfg)
	cfg.Stdout.(*buffer).await(t, "ready", 3)
	cfg.Signals <- syscall.SIGTERM
	if r := wait(t, j); r.Status != 128+int(syscall.SIGTERM) {
		t.Errorf("a job that was asked to end: %+v", r)
	}
}

func init() { programs["look"] = lookProgram }

// lookProgram prints, when it gets a signal, whether the launcher has noted in a folder that it asks the ranks to end.
func lookProgram(args []string) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1)
	fmt.Println("ready")
	s := <-c
	fmt.Println(s, noted(args[0], "ending"))
}

// A rank that is asked to end finds a note that says so, whether a signal asks it, or the launcher of a larger job.
func TestRequestToEndIsNotedBeforeRanksGetIt(t *testing.T) {
	part := &Part{Size: 2, Ended: func(job.Exit) {}, Drains: func() {}, Log: func(string) {}}
	for _, c := range []struct {
		name string
		part *Part
		ask  func(*Job)
		want string
	}{
		{"signal", nil, func(j *Job) { j.cfg.Signals <- syscall.SIGINT }, "interrupt true"},
		{"other signal", nil, func(j *Job) { j.cfg.Signals <- syscall.SIGUSR1 }, "user defined signal 1 false"},
		{"signal of the larger job", part, func(j *Job) { j.Signal(syscall.SIGINT) }, "interrupt true"},
		{"end of the larger job", part, (*Job).Stop, "terminated true"},
	} {
		folder := t.TempDir()
		cfg := program(t, 2, "look", folder)
		cfg.Folder, cfg.Part, cfg.Signals = folder, c.part, make(chan os.Signal, 1)
		j := start(t, cfg)
		cfg.Stdout.(*buffer).await(t, "ready", 2)
		c.ask(j)
		wait(t, j)
		if out := cfg.Stdout.(*buffer).String(); strings.Count(out, c.want+"\n") != 2 {
			t.Errorf("%s: want %q of both ranks:\n%s", c.name, c.want, out)
		}
	}
}

// TestRelayPassesOnWhatRanksHaveNotGot has signals be held, while the keeper gets some of them or others.
func TestRelayPassesOnWhatRanksHaveNotGot(t *testing.T) {
	const term, stop, cont = syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGCONT
	for _, c := range []struct {
		name         string
		held, keeper []syscall.Signal
		want         string // "+" for a signal that is passed on, "=" for one that the ranks have
	}{
		{"not answered", []syscall.Signal{term, stop}, nil, "+terminated +stopped"},
		{"got by all", []syscall.Signal{term}, []syscall.Signal{term}, "=terminated"},
		{"one of two got by all", []syscall.Signal{stop, term}, []syscall.Signal{term}, "+stopped =terminated"},
		{"got by all once", []syscall.Signal{term, term}, []syscall.Signal{term}, "=terminated +terminated"},
		{"another got by all", []syscall.Signal{term}, []syscall.Signal{cont}, "+terminated"},
		{"continued before it is stopped", []syscall.Signal{stop, cont}, nil, "+continued"},
		{"stopped again", []syscall.Signal{cont, stop}, nil, "+stopped"},
	} {
		var passed []string
		var r relay
		for _, n := range c.held {
			r.hold(n)
		}
		r.release(c.keeper, func(n syscall.Signal, direct bool) {
			passed = append(passed, map[bool]string{true: "=", false: "+"}[direct]+n.String())
		})
		if got := strings.Join(passed, " "); got != c.want || len(r.held) > 0 || r.due != nil {
			t.Errorf("%s: %q, %d held; want %q, none", c.name, got, len(r.held), c.want)
		}
	}
}

// TestLateAnswerOfKeeperIsToEarlierQuestion has a keeper answer two questions when the second one has come. A signal that it got
// before the first answer is none of those held since then.
func TestLateAnswerOfKeeperIsToEarlierQuestion(t *testing.T) {
	asked, notes := io.Pipe()
	reports, answers := io.Pipe()
	k := &Keeper{pipe: notes, notes: gob.NewEncoder(notes), answers: make(chan answer, 1)}
	go k.read(reports)
	defer answers.Close()
	go func() {
		var n note
		questions := gob.NewDecoder(asked)
		for range 2 {
			if questions.Decode(&n) != nil {
				return
			}
		}
		answers.Write([]byte{byte(syscall.SIGTERM), 0})
		answers.Write([]byte{byte(syscall.SIGHUP)}) // it is read once the first answer is ready
		for len(k.answers) > 0 {
			runtime.Gosched()
		}
		answers.Write([]byte{0})
	}()
	if got := k.received(time.Millisecond); got != nil {
		t.Fatalf("%v without an answer", got)
	}
	if got := k.received(patience); !slices.Equal(got, []syscall.Signal{syscall.SIGHUP}) {
		t.Errorf("the second answer has %v, want SIGHUP", got)
	}
}
