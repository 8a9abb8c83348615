//go:build unix

package remote

import (
	"bytes"
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/topo"
)

// configured returns how an agent starts its ranks on this node.
func configured(t *testing.T, a *agent) spawn.Config {
	t.Helper()
	node, err := topo.Here()
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.config(node)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// envAgent has the test binary be an agent that came with its executable.
const envAgent = "COHORT_TEST_AGENT"

func TestMain(m *testing.M) {
	spawn.Init()
	if boot := os.Getenv(envAgent); boot != "" {
		// Nothing can be opened any more, so that the keeper cannot be started.
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: 3})
		os.Exit(Agent(os.Stdin, os.Stdout, boot, "of the test"))
	}
	os.Exit(m.Run())
}

// TestAgentWithoutKeeperRemovesItsFolder checks that the folder in which an executable came is removed even if its agent cannot begin.
func TestAgentWithoutKeeperRemovesItsFolder(t *testing.T) {
	boot := filepath.Join(t.TempDir(), "boot")
	if err := os.Mkdir(boot, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(boot, "cohort"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envAgent+"="+boot)
	cmd.Stdin = strings.NewReader("")
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%v, want status 1", err)
	}
	var m message
	line, rest, _ := bytes.Cut(out, []byte("\n"))
	if err := gob.NewDecoder(bytes.NewReader(rest)).Decode(&m); string(line) != agentLine || m.Kind != kindFault || !strings.Contains(string(m.Data), "keeper") {
		t.Errorf("said %q and %+v, %v; want why there is no keeper", line, m, err)
	}
	if _, err := os.Stat(boot); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", boot, err)
	}
}

// TestAgentStaysPausedUntilNextSignal has words come that were on their way when the launcher was stopped: it is stopped nonetheless.
func TestAgentStaysPausedUntilNextSignal(t *testing.T) {
	a := &agent{link: newLink(closer{io.Discard}), window: newCredit(outputWindow), job: new(spawn.Job)}
	defer a.link.close()
	feeding := make(chan []byte, 1)
	a.handle(message{Kind: kindSignal, N: int(syscall.SIGTSTP)}, feeding)
	a.handle(message{Kind: kindAck, N: 7}, feeding)
	a.handle(message{Kind: kindInput, Data: []byte("text")}, feeding)
	a.handle(message{Kind: kindPing}, feeding)
	if !a.paused.Load() {
		t.Error("the launcher is taken not to be stopped any more")
	}
	a.handle(message{Kind: kindSignal, N: int(syscall.SIGCONT)}, feeding)
	if a.paused.Load() {
		t.Error("the launcher is still taken to be stopped")
	}
}

// TestAgentReportsOnceThatJobContinues has a rank request that the job continues after losses, as that of its host may be.
func TestAgentReportsOnceThatJobContinues(t *testing.T) {
	var sent bytes.Buffer
	a := &agent{link: newLink(closer{&sent}), folder: t.TempDir()}
	a.report()
	if err := os.WriteFile(filepath.Join(a.folder, "resilient"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.report()
	a.report()
	a.link.close()
	<-a.link.done
	var first, second message
	from := gob.NewDecoder(&sent)
	if err := from.Decode(&first); err != nil || first.Kind != kindGoesOn {
		t.Errorf("the first message is %q, %v", byte(first.Kind), err)
	}
	if err := from.Decode(&second); err != io.EOF {
		t.Errorf("the next message is %q, %v", byte(second.Kind), err)
	}
}

// TestLastValueOfVariableCounts checks which of several values a rank gets: the job's own, or else what was said last.
func TestLastValueOfVariableCounts(t *testing.T) {
	t.Setenv("COHORT_TIMEOUT", "1s")
	t.Setenv("HERE", "b")
	t.Setenv("COHORT_FLIGHT_KEPT", "/elsewhere")
	keeper, err := spawn.StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	a := &agent{link: newLink(closer{io.Discard}), folder: t.TempDir(), keeper: keeper}
	defer a.link.close()
	defer func() { os.RemoveAll(a.flight) }()
	a.ranks = spawn.Programs{{Path: "/usr/bin/env", Ranks: 1}}
	a.work = work{First: 1, Size: 2, Bind: spawn.BindNone, Secret: "s", Flight: true, Env: []string{
		"COHORT_TIMEOUT=2s", "COHORT_RUN_DIR=/elsewhere", "COHORT_SECRET_FILE=/elsewhere", "X=1", "COHORT_TIMEOUT=3s", "X=2", "NONE"}}
	c := configured(t, a)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	ranks, err := spawn.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	ranks.Wait()
	for _, want := range []string{"COHORT_TIMEOUT=3s", "HERE=b", "X=2", "COHORT_RUN_DIR=" + a.folder, "COHORT_SECRET_FILE=" + filepath.Join(a.folder, "secret"),
		"COHORT_FLIGHT_DIR=" + a.flight, "COHORT_FLIGHT_KEPT="} { // a job of a rank's own has neither folder for its own
		name, _, _ := strings.Cut(want, "=")
		var got []string
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, name+"=") {
				got = append(got, strings.TrimSuffix(line, "\n"))
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q alone", got, want)
		}
	}
}

// TestAgentKillsRanksOfLostHost has a rank that would end in good order if it were asked to.
func TestAgentKillsRanksOfLostHost(t *testing.T) {
	keeper, err := spawn.StartKeeper()
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	a := &agent{link: newLink(closer{io.Discard}), folder: t.TempDir(), keeper: keeper, window: newCredit(outputWindow), gone: make(chan struct{})}
	defer a.link.close()
	a.ranks = spawn.Programs{{Path: "/bin/sh", Args: []string{"-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"}, Ranks: 1}}
	a.work = work{First: 1, Size: 2, Bind: spawn.BindNone}
	c := configured(t, a)
	ends := make(chan job.Exit, 1)
	c.Part.Ended = func(e job.Exit) { ends <- e }
	ready, out := io.Pipe()
	c.Stdout = out
	if a.job, err = spawn.Start(c); err != nil {
		t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, ready)
	commands, launcher := io.Pipe()
	defer launcher.Close()
	a.once.Do(func() { close(a.gone) }) // as lost does, which ends this process some time later
	go a.listen(gob.NewDecoder(commands))
	if e := <-ends; e.Status != 128+int(syscall.SIGKILL) {
		t.Errorf("got %+v, want it killed", e)
	}
	a.job.Wait()
}

// TestAgentActsInOrder has a signal come right after the command to start a process in place of a lost one, and before the agent gets
// to either. The process gets it.
func TestAgentActsInOrder(t *testing.T) {
	for range 6 {
		keeper, err := spawn.StartKeeper()
		if err != nil {
			t.Fatal(err)
		}
		defer keeper.Close()
		a := &agent{link: newLink(closer{io.Discard}), folder: t.TempDir(), keeper: keeper, window: newCredit(outputWindow)}
		defer a.link.close()
		a.ranks = spawn.Programs{{Path: "/bin/sh", Args: []string{"-c", "test -e first || { >first; exit 7; }; exec sleep 1000"}, Ranks: 1}}
		a.work = work{First: 1, Size: 2, Most: 2, Bind: spawn.BindNone}
		t.Chdir(a.folder)
		c := configured(t, a)
		ends, busy := make(chan job.Exit, 2), make(chan bool)
		c.Part.Ended = func(e job.Exit) { // by the goroutine that handles commands
			ends <- e
			<-busy
		}
		if a.job, err = spawn.Start(c); err != nil {
			t.Fatal(err)
		}
		<-ends
		a.handle(message{Kind: kindStart, ID: 5, N: 1}, nil)
		a.handle(message{Kind: kindSignal, N: int(syscall.SIGTERM)}, nil)
		close(busy)
		select {
		case e := <-ends:
			if e.ID != 5 || e.Status != 128+int(syscall.SIGTERM) {
				t.Errorf("got %+v, want process 5 ended by the signal", e)
			}
		case <-time.After(30 * time.Second):
			t.Error("the process has not got the signal")
			a.handle(message{Kind: kindEnd}, nil)
		}
		a.handle(message{Kind: kindLast}, nil)
		a.job.Wait()
	}
}
