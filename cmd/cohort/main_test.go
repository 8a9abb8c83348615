package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/cohort-hpc/cohort/internal/cli"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// envCommand makes a copy of the test binary be the cohort command.
const envCommand = "TEST_AS_COHORT"

// sample returns all of a list of cases, with -short only those whose indices are given.
func sample[T any](all []T, indices ...int) (some []T) {
	if !testing.Short() {
		return all
	}
	for _, i := range indices {
		some = append(some, all[i])
	}
	return some
}

// rankPrograms are what a copy of the test binary can be besides, by its first argument.
var rankPrograms = map[string]func(how string) (status int){}

// patience is the watchdog of every wait: no claim on how fast anything is.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	spawn.Init()
	if len(os.Args) == 3 && rankPrograms[os.Args[1]] != nil {
		os.Exit(rankPrograms[os.Args[1]](os.Args[2]))
	}
	batchTime = time.Millisecond
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
	err := cmd.Start()
	if err == nil {
		dog := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		err = cmd.Wait()
		dog.Stop()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// execute runs a command line in this process.
func execute(line ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = cli.Execute(newCommand(), line, &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsageErrorsNameTheArgument(t *testing.T) {
	data := t.TempDir() + "/data"
	if err := os.WriteFile(data, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	hostfile := t.TempDir() + "/hosts"
	if err := os.WriteFile(hostfile, []byte("127.0.0.1 slots=1\n127.0.0.2 slot=2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{"", "Commands:"},
		{"rn", "did you mean run?"},
		{"run", "missing PROGRAM"},
		{"run -n 0 true", "-n 0: want a whole number from 1 to 4096"},
		{"run -n 1000000 true", "-n 1000000: want a whole number from 1 to 4096"},
		{"run -n", "flag needs an argument: 'n' in -n"},
		{"run --timeot 3s true", "unknown flag: --timeot; did you mean --timeout?"},
		{"run --timeout 0s true", "want a time above 0, such as 500ms"},
		{"run --timeout ten true", "want a time with a unit, such as 500ms"},
		{"run --grace -1s true", "--grace -1s: want a time that is not negative"},
		{"run --bind socket true", "--bind socket: got \"socket\", want core, numa or none"},
		{"run --tag=maybe true", "--tag maybe: want true or false"},
		{"run --backend local true", "cohort.Run"},
		{"run --backend udp true", "--backend udp: want shm, tcp or mpi, or run 'env COHORT_BACKEND=udp PROGRAM' if PROGRAM registers this backend; did you mean tcp?"},
		{"run --hosts a --hostfile b true", "exclude each other"},
		{"run --hosts a --backend shm true", "ranks on several hosts use tcp"},
		{"run --hosts a --backend mpi true", "start the program with mpiexec or srun"},
		{`run --hosts a --ssh my\\ssh true`, "want words without quotes"},
		{"run --no-copy true", "need --hosts or --hostfile"},
		{"run --starter rsh true", "--starter rsh: want ssh or srun"},
		{"run --starter srun true", "--starter srun works in a Slurm allocation (SLURM_JOB_ID is not set)"},
		{"run --hosts a,-oProxyCommand=true true", "cannot begin with -"},
		{"run --hostfile " + hostfile + " true", "line 2:"},
		{"run --hostfile " + hostfile + "x true", "no such file"},
		{"run --restarts -1 true", "--restarts -1: want a whole number from 0"},
		{"run --elastic 2 true", "--elastic 2: want two numbers of ranks, such as 2:8"},
		{"run --elastic 3:2 true", "--elastic 3:2: want two numbers of ranks, such as 2:8"},
		{"run -n 1 --elastic 2:8 true", "--elastic: -n 1 is not within 2:8"},
		{"run --restarts 1 --hosts a -n 1 true : -n 1 true", "--restarts: give one PROGRAM"},
		{"run --restarts 1 --backend mpi true", "--restarts: --backend mpi does not go on after a loss"},
		{"run --elastic 1:2 --resilient true", "--elastic: without --resilient"},
		{"run --restarts 1 --stats true", "--restarts: --stats and COHORT_STATS count the operations of one world"},
		{"run --restarts 1 -n 1 true : -n 1 true", "--restarts: give one PROGRAM"},
		{"scale 3141592653", "want JOB and N"},
		{"scale 3141592653 none", "N none: want a whole number from 1 to 4096"},
		{"run no-such-program", "no-such-program: not found in PATH"},
		{"run : -n 1 true", "missing PROGRAM before or after ':'"},
		{"run -n 1 true :", "missing PROGRAM before or after ':'"},
		{"run -n 1 true : -n 1 : -n 1 true", "missing PROGRAM before or after ':'"},
		{"run true : -n 1 true", "missing -n before true"},
		{"run -n 1 echo a : b", "missing -n before b: each of several programs needs it; if ':' is an argument of echo, write -- before echo"},
		{"run -n 1 true : -n 0 true", "-n 0: want a whole number from 1 to 4096"},
		{"run -n 1 true : -n 1 --bind core true", "--bind: only -n may follow ':'; other flags stand before the first PROGRAM"},
		{"run -n 1 true : -n 1 --bnd core true", "unknown flag: --bnd"},
		{"run -n 4096 true : -n 1 true", "4097 ranks in all, want at most 4096"},
		{"run -n 1 true : -n 1 no-such-program", "no-such-program: not found in PATH"},
		{"run ./no/such/program", "./no/such/program: no such file or directory"},
		{"run " + data, "not executable; if it is a program: chmod +x"},
		{"bench", "got 0 arguments, want one OP: p2p,"},
		{"bench p2p bw", "got 2 arguments, want one OP"},
		{"bench allreduec", "did you mean allreduce?"},
		{"bench -n 1 p2p", "want -n 2 or more"},
		{"bench --sizes 8,x p2p", "want whole numbers"},
		{"bench --sizes 99999999999 p2p", "want whole numbers"},
		{"bench --backend sockets p2p", "want shm, tcp, mpi or local"},
		{"bench p2p --jsn", "did you mean --json?"},
		{"report", "got 0 arguments, want one FOLDER"},
		{"report a b", "got 2 arguments, want one FOLDER"},
		{"report --last 0 a", "want a whole number from 1 to 1024"},
		{"doctor now", "unexpected argument \"now\""},
	} {
		status, stdout, stderr := execute(strings.Fields(c.line)...)
		if status != cli.StatusUsage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("cohort %s: status %d, want %d with %q; stderr:\n%s%s", c.line, status, cli.StatusUsage, c.want, stderr, stdout)
		}
	}
	if status, _, stderr := run(t, "run", "-n", "0", "true"); status != cli.StatusUsage || !strings.HasPrefix(stderr, "cohort run: -n 0: want") {
		t.Errorf("as a process: status %d, %s", status, stderr)
	}
}

func TestUsageErrorsOfStarterInAllocation(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "1")
	t.Setenv("SLURM_JOB_NODELIST", "")
	for line, want := range map[string]string{
		"--ssh x true":       "--starter srun does not use ssh; leave out --ssh",
		"--backend mpi true": "--backend mpi with --hosts is not supported",
		"true":               "give --hosts",
	} {
		status, _, stderr := execute(append([]string{"run", "--starter", "srun"}, strings.Fields(line)...)...)
		if status != cli.StatusUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, want %d with %q\n%s", line, status, cli.StatusUsage, want, stderr)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	docs := ""
	for _, page := range []string{"launcher.md", "hosts.md", "bench.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		docs += string(text)
	}
	status, all, _ := execute("help")
	if status != 0 {
		t.Errorf("help: status %d", status)
	}
	for _, c := range newCommand().Commands() {
		if !strings.Contains(all, "  "+c.Name()+" ") {
			t.Errorf("help does not mention %s", c.Name())
		}
		status, text, stderr := execute(c.Name(), "--help")
		if status != 0 || stderr != "" || !strings.HasPrefix(text, "Usage: cohort "+c.Name()) {
			t.Errorf("%s --help: status %d, %s%s", c.Name(), status, text, stderr)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s --help: a line of %d characters: %s", c.Name(), n, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s --help does not mention --%s", c.Name(), f.Name)
			}
			if !strings.Contains(docs, "`--"+f.Name) {
				t.Errorf("neither docs/launcher.md, hosts.md nor bench.md mentions --%s of %s", f.Name, c.Name())
			}
		})
	}
	_, text, _ := execute("bench", "--help")
	for _, op := range benchNames() {
		if !strings.Contains(text, "  "+op+" ") {
			t.Errorf("bench --help does not mention %s", op)
		}
	}
	if status, text, _ := execute("--version"); status != 0 || !strings.HasPrefix(text, "cohort ") {
		t.Errorf("--version: %d %s", status, text)
	}
}
