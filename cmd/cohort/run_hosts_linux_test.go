package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestRunOnHostsReturnsStatusAndOutput(t *testing.T) {
	n := newNetwork(t)
	t.Setenv("COHORT_CHECK", "1")
	t.Setenv("HERE_ONLY", "x")
	t.Setenv("TAKEN", "from here")
	ready := filepath.Join(t.TempDir(), "ready")
	type job struct {
		name    string
		line    []string
		input   string
		status  int
		stdout  string // in any order of lines
		message string
	}
	for _, c := range sample([]job{
		{"blocks", []string{"-n", "5", "--hosts", "127.0.0.1,127.0.0.2", "sh", "-c", "echo $COHORT_RANK/$COHORT_SIZE $COHORT_BACKEND ${SSH_CONNECTION#* * } $(pwd)"}, "", 0,
			"", ""},
		{"slots are ranks", []string{"--hosts", "127.0.0.1:1,localhost:2", "sh", "-c", "echo $COHORT_RANK/$COHORT_SIZE"}, "", 0, "[0] 0/3\n[1] 1/3\n[2] 2/3\n", ""},
		{"input", []string{"-n", "2", "--hosts", "127.0.0.1,127.0.0.2", "cat"}, "a\nb", 0, "[0] a\n[0] b\n", ""},
		{"environment and input", []string{"-n", "1", "--hosts", "127.0.0.1", "--env", "TAKEN", "--env", "GIVEN=a b", "sh", "-c", "echo $COHORT_CHECK-$HERE_ONLY-$TAKEN-$GIVEN; cat"}, "c\nd", 0,
			"[0] 1--from here-a b\n[0] c\n[0] d\n", ""},
		{"secret", []string{"-n", "1", "--hosts", "127.0.0.2", "sh", "-c", "stat -c '%a %s' $COHORT_SECRET_FILE; stat -c %a $COHORT_RUN_DIR"}, "", 0, "[0] 600 65\n[0] 700\n", ""},
		{"untagged", []string{"-n", "1", "--tag=false", "--hosts", "127.0.0.2", "printf", "%s", "--hosts"}, "", 0, "--hosts", ""},
		{"standard error", []string{"-n", "2", "--hosts", "127.0.0.2", "sh", "-c", "echo $COHORT_RANK >&2"}, "", 0, "", "[1] 1\n"},
		{"status", []string{"-n", "3", "--hosts", "127.0.0.1,127.0.0.2,localhost", "sh", "-c", "test $COHORT_RANK != 1 || exit 9; exec sleep 1000"}, "", 9, "",
			"cohort: rank 1 on 127.0.0.2 exited with status 9 after "},
		{"signal", []string{"-n", "2", "--grace", "0", "--hosts", "127.0.0.1,127.0.0.2", "sh", "-c", "test $COHORT_RANK = 0 || kill -9 $$; exec sleep 1000"}, "", 137, "",
			"cohort: rank 1 on 127.0.0.2 was killed by signal 9 (killed) after "},
		{"last words", []string{"-n", "2", "--grace", "0", "--hosts", "127.0.0.1,127.0.0.2", "sh", "-c", "test $COHORT_RANK != 1 || { echo last words >&2; exit 3; }; exec sleep 1000"}, "", 3, "",
			"[1] last words\ncohort: rank 1 on"},
		{"stubborn", []string{"-n", "2", "--grace", "0", "--hosts", "127.0.0.1,127.0.0.2", "--env", "READY=" + ready, "sh", "-c",
			"trap '' TERM; if test $COHORT_RANK = 1; then until test -e $READY; do sleep 0.01; done; exit 3; fi; : >$READY; while :; do sleep 1000; done"}, "", 3, "",
			"cohort: 127.0.0.1: rank 0 did not end within 1s of SIGTERM: killed\n"},
		{"timeout", []string{"-n", "2", "--timeout", "1s", "--hosts", "127.0.0.1,127.0.0.2", "sleep", "1000"}, "", 124, "", "did not end within 1s (--timeout)"},
	}, 0, 3, 7, 10) {
		t.Run(c.name, func(t *testing.T) {
			cmd := cohortCommand(t, n.line(c.line...)...)
			cmd.Stdin = strings.NewReader(c.input)
			status, stdout, stderr := finish(t, cmd)
			if c.name == "blocks" {
				here, err := os.Getwd()
				if err != nil {
					t.Fatal(err)
				}
				for rank, host := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"} {
					port, _, _ := strings.Cut(after(stdout, fmt.Sprintf("[%d] %[1]d/5 tcp %s ", rank, host)), " ")
					c.stdout += fmt.Sprintf("[%d] %[1]d/5 tcp %s %s %s\n", rank, host, port, here)
				}
			}
			if status != c.status || !strings.Contains(stderr, c.message) || c.message == "" && stderr != "" || !sameLines(stdout, c.stdout) {
				t.Errorf("status %d, want %d with %q\nstdout:\n%s\nwant:\n%s\nstderr:\n%s", status, c.status, c.message, stdout, c.stdout, stderr)
			}
			n.nothingLeft(t)
		})
	}
}

func after(text, part string) string {
	_, rest, _ := strings.Cut(text, part)
	return rest
}

// TestRunOnHostsBuildsProgramAndKeepsFlightFiles runs ranks on two hosts, with a program that is built on this machine,
// and keeps the files of the flight recorder.
func TestRunOnHostsBuildsProgramAndKeepsFlightFiles(t *testing.T) {
	n := newNetwork(t)
	kept := t.TempDir()
	status, stdout, stderr := run(t, n.line("-n", "3", "--flight", kept, "--hosts", "127.0.0.1,127.0.0.2", "../../examples/hello", ":", "-n", "1", "../../examples/hello")...)
	if status != 0 || strings.Count(stdout, " of 4 (backend tcp)\n") != 4 {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	if files, err := os.ReadDir(kept); err != nil || len(files) != 4 {
		t.Errorf("%d files of the flight recorder, want 4: %v", len(files), err)
	}
	n.nothingLeft(t)
}

// TestRunOnHostsCopiesExecutables removes this program's and the ranks' executables before ssh starts: hosts get copies.
func TestRunOnHostsCopiesExecutables(t *testing.T) {
	n := newNetwork(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	own, program := filepath.Join(here, "cohort"), filepath.Join(here, "a program")
	copyFile(t, exe, own)
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $(basename \"$0\") in $(dirname \"$(dirname \"$(dirname \"$0\")\")\"): $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(here, "wrapper")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nrm -f '"+own+"' '"+program+"'\nexec ssh -F "+n.folder+"/ssh_config \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := cohortCommand(t, "run", "-n", "2", "--ssh", wrapper, "--hosts", "127.0.0.1,127.0.0.2", program, "an argument")
	cmd.Path = own
	status, stdout, stderr := finish(t, cmd)
	if want := "a program in " + n.tmp + ": an argument\n"; status != 0 || !sameLines(stdout, "[0] "+want+"[1] "+want) {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	n.nothingLeft(t)
	// The same without anything that could be sent.
	copyFile(t, exe, own)
	cmd = cohortCommand(t, "run", "-n", "1", "--no-copy", "--ssh", wrapper, "--hosts", "127.0.0.1", "true")
	cmd.Path = own
	if status, _, stderr := finish(t, cmd); status != 2 || !strings.Contains(stderr, "cohort is not installed there") {
		t.Errorf("--no-copy, and no cohort there: status %d\n%s", status, stderr)
	}
	n.nothingLeft(t)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunOnHostsReportsErrors(t *testing.T) {
	n := newNetwork(t)
	type job struct {
		name    string
		line    []string
		message []string
	}
	for _, c := range sample([]job{
		{"slots", n.line("-n", "4", "--hosts", "127.0.0.1:1,127.0.0.2:2", "true"), []string{"4 ranks, but the hosts have only 3 slots"}},
		{"no ssh", []string{"run", "--ssh", "no-such-ssh", "--hosts", "127.0.0.1", "true"}, []string{"host 127.0.0.1:", "no-such-ssh: not found in PATH"}},
		{"unknown hosts", n.line("--hosts", "one.invalid,127.0.0.1,two.invalid", "true"),
			[]string{"host one.invalid: ssh: Could not resolve hostname one.invalid", "host two.invalid: ssh: Could not resolve"}},
		{"no sshd", []string{"run", n.ssh + " -p 1", "--hosts", "127.0.0.1", "true"}, []string{"Connection refused"}},
		{"no such command", n.line("-n", "2", "--hosts", "127.0.0.1,127.0.0.2", "no-such-command"), []string{"host 127.0.0.1: no-such-command: not found in the host's PATH", "host 127.0.0.2:"}},
		{"no such program", n.line("--hosts", "127.0.0.1", "./no/such"), []string{"./no/such: no such file or directory"}},
		{"nor there", n.line("--no-copy", "--hosts", "127.0.0.1", "/no/such"), []string{"host 127.0.0.1: /no/such: no such file or directory"}},
		{"interface", n.line("-n", "1", "--interface", "no-such-net0", "--hosts", "127.0.0.1", "true"), []string{"no-such-net0"}},
	}, 0, 1, 2, 4) {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := run(t, c.line...)
			if status != 2 || stdout != "" {
				t.Errorf("status %d, want 2\n%s%s", status, stdout, stderr)
			}
			for _, part := range c.message {
				if !strings.Contains(stderr, part) {
					t.Errorf("does not say %q:\n%s", part, stderr)
				}
			}
			n.nothingLeft(t)
		})
	}
	t.Run("key refused", func(t *testing.T) {
		n.write(t, "authorized", "")
		status, _, stderr := run(t, n.line("--hosts", "127.0.0.1", "true")...)
		if status != 2 || !strings.Contains(stderr, "Permission denied (publickey)") || !strings.Contains(stderr, "ssh-copy-id") {
			t.Errorf("status %d\n%s", status, stderr)
		}
	})
	t.Run("host key unknown", func(t *testing.T) {
		n.write(t, "known", "")
		status, _, stderr := run(t, n.line("--hosts", "127.0.0.1", "true")...)
		if status != 2 || !strings.Contains(stderr, "Host key verification failed.") || !strings.Contains(stderr, "once by hand") {
			t.Errorf("status %d\n%s", status, stderr)
		}
	})
}

func TestRunOnHostsLeavesNothingWhenKilled(t *testing.T) {
	n := newNetwork(t)
	type kill struct {
		name    string
		who     func(*testing.T, *hostsJob) int
		status  int
		message []string
	}
	for _, c := range sample([]kill{
		{"rank", func(_ *testing.T, j *hostsJob) int { return j.ranks[3] }, 137,
			[]string{"cohort: rank 3 on 127.0.0.2 was killed by signal 9 (killed) after ", "; ending the others\n"}},
		{"agent", func(_ *testing.T, j *hostsJob) int { return j.agents[1] }, 255,
			[]string{"cohort: host 127.0.0.2 was lost after ", ", and ranks 2, 3 with it; ending the others\n"}},
		{"ssh", func(t *testing.T, j *hostsJob) int { return shell(t, j.cmd, "127.0.0.2") }, 255,
			[]string{"cohort: host 127.0.0.2 was lost after ", "ssh was killed by signal: killed)", ", and ranks 2, 3 with it; ending the others\n"}},
		{"sshd", func(t *testing.T, j *hostsJob) int { return parent(t, j.agents[0]) }, 255,
			[]string{"cohort: host 127.0.0.1 was lost after ", ", and ranks 0, 1 with it; ending the others\n"}},
		{"launcher", func(_ *testing.T, j *hostsJob) int { return j.cmd.Process.Pid }, -1, nil},
	}, 1, 4) { // without its sshd a host is lost as without the launcher's ssh
		t.Run(c.name, func(t *testing.T) {
			j := n.start(t, "", "wait")
			if err := syscall.Kill(c.who(t, j), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			status, _ := j.end(t, n)
			if status != c.status {
				t.Errorf("status %d, want %d; stderr:\n%s", status, c.status, j.stderr)
			}
			for _, part := range c.message {
				if !strings.Contains(j.stderr.String(), part) {
					t.Errorf("does not say %q:\n%s", part, j.stderr)
				}
			}
		})
	}
}

// TestHostThatGivesUpIsLost has ranks that end with status 0 when they are asked to: if their host is lost, they count as failed
// nevertheless.
func TestHostThatGivesUpIsLost(t *testing.T) {
	n := newNetwork(t)
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nssh -F "+n.folder+"/ssh_config \"$@\"\nexit\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	type loss struct {
		name    string
		options []string
		do      func(*hostsJob)
		message string // after what the host's shell may have printed
	}
	for _, c := range sample([]loss{
		{"agent asked to end", nil, func(j *hostsJob) { syscall.Kill(j.agents[1], syscall.SIGTERM) },
			"the agent was asked to end (terminated)), and ranks 2, 3 with it; ending the others\n"},
		{"wrapper of ssh killed", []string{"--ssh", wrapper}, func(j *hostsJob) { syscall.Kill(shell(t, j.cmd, "127.0.0.2"), syscall.SIGKILL) },
			"wrapper was killed by signal: killed), and ranks 2, 3 with it; ending the others\n"},
		{"launcher stood", nil, func(j *hostsJob) {
			j.cmd.Process.Signal(syscall.SIGSTOP)
			for _, fd := range j.lives {
				awaitEnd(t, "a process on a host", fd)
			}
			j.cmd.Process.Signal(syscall.SIGCONT)
		}, "no message from the launcher for 30s), and ranks "},
	}, 0, 1) {
		t.Run(c.name, func(t *testing.T) {
			j := n.start(t, "trap 'kill $!; exit 0' TERM;", "wait", c.options...)
			c.do(j)
			status, _ := j.end(t, n)
			if said := j.stderr.String(); status != 255 || !strings.Contains(said, "cohort: host 127.0.0.") || !strings.Contains(said, c.message) {
				t.Errorf("status %d, want 255 with %q; stderr:\n%s", status, c.message, said)
			}
		})
	}
}

// TestResilientJobContinuesAfterLossOfHost loses a host of a resilient job: by option, or because the program on the other
// host requested it.
func TestResilientJobContinuesAfterLossOfHost(t *testing.T) {
	n := newNetwork(t)
	// The ranks that are left end when those of the other host have.
	const note = "echo $$ >>$DIR/$((COHORT_RANK / 2));"
	const script = `if test $COHORT_RANK -ge 2; then wait; fi
		until test "$(wc -l <$DIR/1)" = 2; do sleep 0.01; done 2>/dev/null
		for pid in $(cat $DIR/1); do while kill -0 $pid 2>/dev/null; do sleep 0.01; done; done
		kill $!; echo done`
	for _, c := range []struct {
		name, first string
		options     []string
	}{
		{"option", note, []string{"--resilient"}},
		{"program", note + ": >$COHORT_RUN_DIR/resilient;", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := n.start(t, c.first, script, append(c.options, "--env", "DIR="+t.TempDir())...)
			if err := syscall.Kill(shell(t, j.cmd, "127.0.0.2"), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			status, stdout := j.end(t, n)
			message := ", and ranks 2, 3 with it" // and with how many the job goes on, if they have not ended before that is noticed
			if status != 0 || strings.Count(stdout, "done") != 2 || !strings.Contains(j.stderr.String(), message) {
				t.Errorf("status %d\n%s%s", status, stdout, j.stderr)
			}
		})
	}
}

// TestStoppedRankOnHostDoesNotKeepResilientJob has ranks end that see another one stopped, on another host.
func TestStoppedRankOnHostDoesNotKeepResilientJob(t *testing.T) {
	n := newNetwork(t)
	const script = `if test $COHORT_RANK = 1; then echo $$ >$DIR/new; mv $DIR/new $DIR/pid; kill -STOP $$; fi
		until grep -q '^State:.T' /proc/$(cat $DIR/pid)/status; do sleep 0.01; done 2>/dev/null`
	status, _, stderr := run(t, n.line("--resilient", "--hosts", "127.0.0.1:1,127.0.0.2:1,localhost:1", "--env", "DIR="+t.TempDir(), "sh", "-c", script)...)
	if want := "cohort: 127.0.0.2: rank 1 is stopped, and all others have ended; ending it\n"; status != 0 || stderr != want {
		t.Errorf("status %d, stderr:\n%swant 0 and\n%s", status, stderr, want)
	}
	n.nothingLeft(t)
}

func TestRunOnHostsForwardsSignals(t *testing.T) {
	n := newNetwork(t)
	type signal struct {
		number syscall.Signal
		name   string
	}
	for _, c := range sample([]signal{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGUSR1, "USR1"}}, 0, 2) {
		t.Run(c.name, func(t *testing.T) {
			j := n.start(t, "trap 'kill $!; echo got; exit 0' "+c.name+";", "wait")
			j.cmd.Process.Signal(c.number)
			status, stdout := j.end(t, n)
			if status != 0 || strings.Count(stdout, "] got\n") != 4 {
				t.Errorf("status %d, want 0, and all ranks the signal:\n%s%s", status, stdout, j.stderr)
			}
		})
	}
	// With a signal that comes while nothing has answered yet, nothing is started.
	t.Run("before", func(t *testing.T) {
		dir := t.TempDir()
		fifo, wrapper := filepath.Join(dir, "fifo"), filepath.Join(dir, "wrapper")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(wrapper, []byte("#!/bin/sh\necho $$ >"+fifo+"\nexec sleep 1000\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := cohortCommand(t, "run", "--ssh", wrapper, "--hosts", "a", "true")
		errs := new(bytes.Buffer)
		cmd.Stderr = errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		pid, _ := strconv.Atoi(strings.TrimSpace(string(said)))
		life := hold(t, pid)
		cmd.Process.Signal(syscall.SIGINT)
		cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != 130 || !strings.Contains(errs.String(), "stopped while starting the ranks: interrupt") {
			t.Errorf("status %d, want 130\n%s", got, errs)
		}
		awaitEnd(t, "ssh", life)
	})
}
