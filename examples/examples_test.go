package examples

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The lines a job of n ranks must print, in any order. What they compute is checked in the folder
// of each example; here it is whether they run as processes, and print it once.
var examples = []struct {
	name  string
	lines func(n int) []string // regular expressions
}{
	{"hello", func(n int) (lines []string) {
		for rank := range n {
			lines = append(lines, fmt.Sprintf(`\[%d\] hello from rank %d of %d \(backend shm\)`, rank, rank, n))
		}
		return lines
	}},
	{"ring", func(n int) []string {
		path := ""
		for rank := range n {
			path += fmt.Sprintf("%d ", rank)
		}
		return []string{`\[0\] the token went ` + path + `and is back`}
	}},
	{"pi", func(int) []string { return []string{`\[0\] pi is about 3\.141592653589\d{4}, off by 2\.\de-14`} }},
	{"heat2d", func(int) []string {
		return []string{`\[0\] 120 x 120 cells, at rest after 2831 steps, residual 9\.99\d{4}e-05`}
	}},
}

// TestExamples runs every example with cohort run, and alone.
func TestExamples(t *testing.T) {
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "../cmd/cohort", "./...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			program := filepath.Join(bin, e.name)
			var alone []string
			for _, line := range e.lines(1) { // no launcher: no tag, and the one rank of the local backend
				alone = append(alone, strings.ReplaceAll(strings.TrimPrefix(line, `\[0\] `), "shm", "local"))
			}
			check(t, alone, program)
			if runtime.GOOS != "linux" {
				t.Log("alone only: the shm backend is there on Linux only")
				return
			}
			for _, n := range []int{1, 2, 5} {
				check(t, e.lines(n), filepath.Join(bin, "cohort"), "run", "-n", fmt.Sprint(n), program)
			}
		})
	}
}

// check runs a command and compares its lines, sorted, with want.
func check(t *testing.T, want []string, command ...string) {
	t.Helper()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	slices.Sort(lines)
	if len(lines) != len(want) {
		t.Fatalf("%v printed %d lines, want %d:\n%s", command, len(lines), len(want), out)
	}
	for i := range want {
		if !regexp.MustCompile("^" + want[i] + "$").MatchString(lines[i]) {
			t.Errorf("%v printed %q, want it to match %s", command, lines[i], want[i])
		}
	}
}
