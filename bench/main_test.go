package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestColumnsOfCohortStartRightPrograms looks at the columns of cohort, and at what their programs are told.
func TestColumnsOfCohortStartRightPrograms(t *testing.T) {
	t.Setenv("COHORT_TCP_SHM", "1")
	for _, c := range []struct{ backend, over, names, program, env string }{
		{"shm", "", "cohort", "tool bench --json --backend shm -n 2 --reps 15 --sizes 8 p2p", ""},
		{"tcp", "", "sockets tcp", "tool bench --json --backend tcp -n 2 --reps 15 --sizes 8 p2p", "COHORT_TCP_SHM=0 COHORT_TCP_SHM=1"},
		{"shm", "openmpi", "cohort", "tool bench --json --reps 15 --sizes 8 p2p", ""},
	} {
		var names, env []string
		for _, one := range cohorts("tool", c.backend, c.over) {
			cmd := one.command(workload{"p2p", "8", 2, 15})
			if line := strings.Join(cmd.Args, " "); !one.ours || !strings.HasSuffix(line, c.program) {
				t.Errorf("%+v: %s is started by %q", c, one.name, line)
			}
			names = append(names, one.name)
			env = append(env, cmd.Environ()[slices.IndexFunc(cmd.Environ(), func(s string) bool { return strings.HasPrefix(s, "COHORT_TCP_SHM=") })])
		}
		if got := strings.Join(names, " "); got != c.names {
			t.Errorf("%+v: the columns are %q", c, got)
		}
		if got := strings.Join(env, " "); c.env != "" && got != c.env {
			t.Errorf("%+v: their environments have %q", c, got)
		}
	}
}

// TestOpenMPIIsToldToUseTCP has Open MPI be told its transport, whatever the environment says.
func TestOpenMPIIsToldToUseTCP(t *testing.T) {
	t.Setenv("OMPI_MCA_btl", "self,vader")
	env := mpiexec("openmpi", 2, byTCP, "program").Environ()
	for _, want := range []string{"OMPI_MCA_btl=tcp,self", "OMPI_MCA_pml=ob1"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is not in the environment", want)
		}
	}
}

func TestContenders_Errors(t *testing.T) {
	for _, c := range []struct{ backend, over, says string }{
		{"udp", "", "-backend udp: want shm or tcp"},
		{"tcp", "openmpi", "-backend tcp with -over openmpi"},
		{"shm", "lam", "-over lam: want mpich or openmpi"},
	} {
		if _, err := contenders(c.backend, c.over); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestRowComparesWithFasterLibrary has a ratio for each column of cohort, to the faster library alone, and none without one.
func TestRowComparesWithFasterLibrary(t *testing.T) {
	all := []contender{{name: "sockets", ours: true}, {name: "tcp", ours: true}, {name: "one"}, {name: "other"}}
	time := func(usec float64) map[int]float64 { return map[int]float64{8: usec} }
	for _, c := range []struct {
		best  []map[int]float64
		text  string
		worst float64
	}{
		{[]map[int]float64{time(6), time(1), time(4), time(5)}, "p2p 8 6.000 1.000 4.000 5.000 1.50 0.25", 1.5},
		{[]map[int]float64{time(1), time(2), nil, time(8)}, "p2p 8 1.000 2.000 - 8.000 0.12 0.25", 0.25},
		{[]map[int]float64{time(1), time(2), nil, nil}, "p2p 8 1.000 2.000 - -", 0},
	} {
		text, worst := row(all, "p2p", 8, c.best)
		if got := strings.Join(strings.Fields(text), " "); got != c.text || math.Abs(worst-c.worst) > 1e-12 {
			t.Errorf("%q, worst %g; want %q, %g", got, worst, c.text, c.worst)
		}
	}
}

// TestPageOfProgramsHasNoEmptyCell has a line for each program, and a value in each of its cells.
func TestPageOfProgramsHasNoEmptyCell(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: all benchmark programs in all settings; make test-all runs it")
	}
	t.Chdir("..")
	page := filepath.Join(t.TempDir(), "programs.md")
	if err := writePrograms(page, "S", 1); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	columns := len(settings("tool")) + 1
	for _, name := range []string{"EP", "FT", "p2p", "stencil", "transpose -onesided", "random -size 16 -onesided", "reduce", "sparse"} {
		line := regexp.MustCompile(`(?m)^\| ` + name + ` \|.*$`).FindString(string(text))
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if len(cells) != columns || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("%s: the line is %q, want %d cells", name, line, columns)
		}
	}
}
