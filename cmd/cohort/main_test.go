package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// envCommand makes a copy of the test binary be the cohort command.
const envCommand = "TEST_AS_COHORT"

// rankPrograms are what a copy of the test binary can be besides, by its first argument.
var rankPrograms = map[string]func(how string) (status int){}

// patience is the watchdog of every wait: no claim on how fast anything is.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	spawn.Init()
	if len(os.Args) == 3 && rankPrograms[os.Args[1]] != nil {
		os.Exit(rankPrograms[os.Args[1]](os.Args[2]))
	}
	if os.Getenv(envCommand) != "" {
		main()
	}
	// Programs built with -race would wait a second before they end.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// cohortCommand returns the command line of this program, not yet started.
func cohortCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	cmd.WaitDelay = patience
	return cmd
}

// watch kills a command that was started, if it still runs when the watchdog's time is over.
func watch(t *testing.T, cmd *exec.Cmd) {
	dog := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	t.Cleanup(func() { dog.Stop() })
}

// run runs a command line to its end.
func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return finish(t, cohortCommand(t, args...))
}

func finish(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestCommand_Errors(t *testing.T) {
	data := t.TempDir() + "/data"
	if err := os.WriteFile(data, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line string
		says string
	}{
		{"", "Commands:"},
		{"rn", "did you mean run?"},
		{"run", "no PROGRAM to run"},
		{"run -n 0 true", "-n 0: want a whole number from 1 to 4096"},
		{"run -n 1000000 true", "-n 1000000: want a whole number from 1 to 4096"},
		{"run -n four true", "-n four: want a whole number"},
		{"run -n", "-n needs a value: -n N"},
		{"run --timeot 3s true", "there is no option --timeot; did you mean --timeout?"},
		{"run -timeout 3s true", "there is no option -t; did you mean --timeout?"},
		{"run --timeout 0s true", "want a time above 0 such as 30s"},
		{"run --timeout ten true", "want a time above 0 such as 30s"},
		{"run --bind socket true", "--bind socket: \"socket\" is none of core, numa, none"},
		{"run --tag=maybe true", "--tag maybe: want true or false"},
		{"run --backend local true", "cohort.Run"},
		{"run --backend udp true", "--backend udp: there is no such backend; did you mean tcp?; there are shm, tcp and mpi"},
		{"run --backend shmm true", "did you mean shm?"},
		{"run no-such-program", "no-such-program: not found in PATH"},
		{"run ./no/such/program", "./no/such/program: no such file or directory"},
		{"run " + data, "not executable; if it is a program: chmod +x"},
		{"bench", "want one OP, one of p2p,"},
		{"bench p2p bw", "want one OP"},
		{"bench allreduec", "did you mean allreduce?"},
		{"bench -n 1 p2p", "want -n 2 or more"},
		{"bench --sizes 8,x p2p", "want whole numbers"},
		{"bench --sizes 99999999999 p2p", "want whole numbers"},
		{"bench --backend sockets p2p", "there is no such backend; there are shm, tcp, mpi and local"},
		{"bench p2p --jsn", "did you mean --json?"},
		{"report", "want one FOLDER"},
		{"report a b", "want one FOLDER"},
		{"report --last 0 a", "want a whole number from 1 to 1024"},
		{"doctor now", "unexpected argument \"now\""},
		{"version 2", "unexpected argument"},
	} {
		status, stdout, stderr := run(t, strings.Fields(c.line)...)
		if status != statusUsage || !strings.Contains(stderr, c.says) || stdout != "" {
			t.Errorf("cohort %s: status %d, want %d with %q; stderr:\n%s%s", c.line, status, statusUsage, c.says, stderr, stdout)
		}
	}
}

func TestCommand_Help(t *testing.T) {
	doc, err := os.ReadFile("../../docs/launcher.md")
	if err != nil {
		t.Fatal(err)
	}
	status, all, _ := run(t, "help")
	if status != 0 {
		t.Errorf("help: status %d", status)
	}
	for _, c := range commands() {
		if !strings.Contains(all, "  "+c.name+" ") {
			t.Errorf("help does not mention %s", c.name)
		}
		for _, line := range [][]string{{c.name, "--help"}, {c.name, "-h"}, {"help", c.name}} {
			status, text, stderr := run(t, line...)
			if status != 0 || stderr != "" || !strings.HasPrefix(text, "Usage: cohort "+c.name) {
				t.Errorf("%v: status %d, %s%s", line, status, text, stderr)
			}
			o := &options{}
			c.setup(o)
			for _, q := range o.list {
				if q.long != "" && !strings.Contains(text, "--"+q.long) || q.short != 0 && !strings.Contains(text, "-"+string(q.short)) {
					t.Errorf("%v does not mention %c %s", line, q.short, q.long)
				}
				if q.long != "" && !strings.Contains(string(doc), "`--"+q.long) {
					t.Errorf("docs/launcher.md does not mention --%s of %s", q.long, c.name)
				}
			}
		}
	}
	for _, op := range benchNames() {
		if _, text, _ := run(t, "bench", "--help"); !strings.Contains(text, "  "+op+" ") {
			t.Errorf("help does not mention %s", op)
		}
	}
	if status, text, _ := run(t, "--version"); status != 0 || !strings.HasPrefix(text, "cohort ") {
		t.Errorf("--version: %d %s", status, text)
	}
}
