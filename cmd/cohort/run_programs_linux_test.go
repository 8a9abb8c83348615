package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// script makes an executable shell script.
func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// programsAreOneWorld runs three programs as one job: the second is a script that prints its argument before it joins. Then one of
// two programs fails.
func programsAreOneWorld(t *testing.T, backend string, run func(line ...string) (status int, stdout, stderr string), line ...string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	worker := script(t, filepath.Join(t.TempDir(), "worker"), `echo worker "$1"; exec '`+exe+`' `+helloProgram+` ""`)
	line = append([]string{"run"}, append(line, "-n")...)
	line = line[:len(line):len(line)]
	status, stdout, stderr := run(append(line, "1", exe, helloProgram, "", ":", "-n2", worker, "a b", ":", "--ranks=1", exe, helloProgram, "")...)
	want := "[1] worker a b\n[2] worker a b\n"
	for rank := range 4 {
		want += fmt.Sprintf("[%d] rank %[1]d of 4 (backend %s): the sum is 10\n", rank, backend)
	}
	if status != 0 || !sameLines(stdout, want) {
		t.Errorf("%q: status %d\n%swant:\n%s%s", line, status, stdout, want, stderr)
	}
	status, _, stderr = run(append(line, "2", "sleep", "1000", ":", "-n", "1", "sh", "-c", "exit 7")...)
	if status != 7 || !strings.Contains(stderr, "cohort: rank 2 (sh) ") || !strings.Contains(stderr, " exited with status 7 after ") {
		t.Errorf("%q: status %d, want 7, and the name of the program\n%s", line, status, stderr)
	}
}

func TestProgramsAreOneWorld(t *testing.T) {
	here := func(line ...string) (int, string, string) { return run(t, line...) }
	programsAreOneWorld(t, "shm", here)
	programsAreOneWorld(t, "tcp", here, "--backend", "tcp")
	n := newNetwork(t)
	programsAreOneWorld(t, "tcp", here, n.ssh, "--hosts", "127.0.0.1,127.0.0.2")
	n.nothingLeft(t)
}

func TestProgramsAreOneWorldOfMPI(t *testing.T) {
	eachMPI(t, func(t *testing.T, lib mpifind.Library) {
		if !mpitest.Turn(0, lib.Vendor) {
			return
		}
		programsAreOneWorld(t, "mpi", func(line ...string) (int, string, string) { return runMPI(t, line...) }, "--backend", "mpi")
	})
}

// TestProgramsAreCopiedOnce runs two programs of the same name, the first of them twice, on a host that has neither.
func TestProgramsAreCopiedOnce(t *testing.T) {
	n := newNetwork(t)
	here := t.TempDir()
	a, b := script(t, filepath.Join(here, "a", "worker"), `echo "$0" a $1`), script(t, filepath.Join(here, "b", "worker"), `echo "$0" b $1`)
	ssh := script(t, filepath.Join(here, "ssh"), "rm -f '"+a+"' '"+b+"'; exec ssh -F "+n.folder+`/ssh_config "$@"`)
	status, stdout, stderr := run(t, "run", "--ssh", ssh, "--hosts", "127.0.0.1", "-n", "1", a, "1", ":", "-n", "1", b, "2", ":", "-n", "1", a, "3")
	at := func(rank int) string {
		path, _, _ := strings.Cut(after(stdout, fmt.Sprintf("[%d] ", rank)), " ")
		return path
	}
	want := fmt.Sprintf("[0] %s a 1\n[1] %s b 2\n[2] %s a 3\n", at(0), at(1), at(0))
	if status != 0 || !sameLines(stdout, want) || at(0) == at(1) || filepath.Base(at(1)) != "worker" || !strings.HasPrefix(at(0), n.tmp) {
		t.Errorf("status %d\n%swant:\n%s%s", status, stdout, want, stderr)
	}
	n.nothingLeft(t)
}

// TestUnknownProgramStartsNothing has a program after the first that does not exist, here or on a host.
func TestUnknownProgramStartsNothing(t *testing.T) {
	n := newNetwork(t)
	tmp, started := t.TempDir(), filepath.Join(t.TempDir(), "started")
	t.Setenv("TMPDIR", tmp)
	for _, line := range [][]string{{"run"}, {"run", "--backend", "tcp"}, n.line("--hosts", "127.0.0.1,127.0.0.2")} {
		status, stdout, stderr := run(t, append(line, "-n", "1", "touch", started, ":", "-n", "1", "no-such-program")...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, "no-such-program: not found in ") {
			t.Errorf("%q: status %d, want 2\n%s%s", line, status, stdout, stderr)
		}
		left, err := os.ReadDir(tmp)
		if _, e := os.Stat(started); e == nil || err != nil || len(left) > 0 {
			t.Errorf("%q: started: %t, left behind: %v, %v", line, e == nil, left, err)
		}
		n.nothingLeft(t)
	}
}

func TestColonAfterDashesIsAnArgument(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"-n 1 -- echo a : b", "[0] a : b\n"},
		{"-n 1 echo -- : -n 1 -- echo b : c", "[0] --\n[1] b : c\n"},
		{"-n 1 echo a:b :: -n", "[0] a:b :: -n\n"},
	} {
		status, stdout, stderr := run(t, append([]string{"run"}, strings.Fields(c.line)...)...)
		if status != 0 || !sameLines(stdout, c.want) {
			t.Errorf("%s: status %d, %q, want %q\n%s", c.line, status, stdout, c.want, stderr)
		}
	}
}
