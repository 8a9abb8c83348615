package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written returns the page about some lines of testdata/results.jsonl, and its folder: two rounds on
// processors that share a cache, a time during which the machine moves, and one round on others. MPICH
// is not installed.
func written(t *testing.T, change func(lines []string) []string) (page, folder string) {
	t.Helper()
	recorded, err := os.ReadFile("testdata/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, results := filepath.Join(dir, "performance.md"), filepath.Join(dir, "results.jsonl")
	lines := change(strings.Split(strings.TrimSpace(string(recorded)), "\n"))
	if err := os.WriteFile(results, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := writePage(file, results); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), filepath.Join(dir, "performance")
}

func charts(t *testing.T, folder string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

func TestPageKeepsSituationsApart(t *testing.T) {
	text, folder := written(t, func(lines []string) []string { return lines })
	before, far, ok := strings.Cut(text, "## Processors that share no cache\n")
	if !ok {
		t.Fatalf("there is no second situation:\n%s", text)
	}
	summary, near, _ := strings.Cut(before, "## Processors that share a cache\n")
	for _, c := range []struct{ in, want string }{
		{near, "| | C: Open MPI | shm |\n|---|---:|---:|\n| allreduce 8 B | 0.400 | 0.200 (0.50) |\n| allreduce 64 KiB | 10.0 | 20.0 (2.00) |\n"},
		{near, "| | C: Open MPI over TCP | tcp, sockets only |\n|---|---:|---:|\n| allreduce 8 B | 10.0 | 8.000 (0.80) |\n| allreduce 64 KiB | 50.0 | 60.0 (1.20) |\n"},
		{near, "### More ranks than cores"},
		{near, "| barrier on 4 ranks | 4.000 | 3.000 (0.75) |"},
		{near, "(performance/allreduce-near.svg)"},
		{far, "| allreduce 8 B | 0.250 | 0.500 (2.00) |\n| allreduce 64 KiB | 60.0 | 30.0 (0.50) |\n"},
		{far, "| barrier on 4 ranks | 3.500 | 7.000 (2.00) |"},
		{far, "(performance/allreduce-far.svg)"},
		{summary, "| shm | the faster library | 2 of 3 | allreduce 8 B (0.50) | allreduce 64 KiB (2.00) |"},
		{summary, "| shm | the faster library | 1 of 3 | allreduce 64 KiB (0.50) | allreduce 8 B (2.00), barrier on 4 ranks (2.00) |"},
		{summary, "Processors that share a cache: 20 times were measured while a cache line took 40 to 45 ns"},
		{summary, "Times left out: 1."},
		{summary, "MPICH is not installed"},
		{summary, "There are no figures of C: Open MPI for pallreduce on 2 ranks: `openmpi pallreduce: exit status 3: it has none`."},
		{summary, "| MPI libraries | Open MPI v4.1.4 |"},
		{summary, "| processor | Test: cores: 2 |"},
		{summary, "| rounds | 3 |"},
	} {
		if !strings.Contains(c.in, c.want) {
			t.Errorf("%q is not in its part of the page", c.want)
		}
	}
	for _, not := range []string{"C: MPICH", "over MPICH", "0.001", "not idle", "cohort over Open MPI"} {
		if strings.Contains(near+far, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if got := charts(t, folder); !slices.Equal(got, []string{"allreduce-far.svg", "allreduce-near.svg"}) {
		t.Errorf("the charts are %q", got)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestPageNamesOneSlowCaseOfAnOperation has barriers stand for an allreduce that is as slow as another one.
func TestPageNamesOneSlowCaseOfAnOperation(t *testing.T) {
	text, _ := written(t, func(lines []string) []string {
		for i, l := range lines {
			lines[i] = strings.ReplaceAll(l, `"barrier"`, `"allreduce"`)
		}
		return lines
	})
	if want := "| 1 of 3 | allreduce 64 KiB (0.50) | allreduce 8 B (2.00) |\n"; !strings.Contains(text, want) {
		t.Errorf("%q is not in the page:\n%s", want, text)
	}
}

// TestPageLeavesOutARareSituation has too few times of the second situation for a table.
func TestPageLeavesOutARareSituation(t *testing.T) {
	text, folder := written(t, func(lines []string) []string { return lines[:len(lines)-3] })
	if strings.Contains(text, "share no cache") || !strings.Contains(text, "Times left out: 8.") || !strings.Contains(text, "| 0.200 (0.50) |") {
		t.Errorf("the page is\n%s", text)
	}
	if got := charts(t, folder); !slices.Equal(got, []string{"allreduce-near.svg"}) {
		t.Errorf("the charts are %q", got)
	}
}

// TestPageSetsPayloadsApart has times of payloads in every situation.
func TestPageSetsPayloadsApart(t *testing.T) {
	text, _ := written(t, func(lines []string) []string {
		var payloads []string
		for _, l := range lines {
			if strings.Contains(l, `"barrier"`) {
				payloads = append(payloads, l, strings.NewReplacer(`"barrier"`, `"allgatherv"`, `"bytes": 0`, `"bytes": 51500000`).Replace(l))
			} else {
				payloads = append(payloads, l)
			}
		}
		return payloads
	})
	_, part, _ := strings.Cut(text, "### Payloads of the dispatch program\n")
	if want := "| | C: Open MPI | shm |\n|---|---:|---:|\n| allgatherv 51.5 MB on 4 ranks | 4.000 | 3.000 (0.75) |\n"; !strings.Contains(part, want) {
		t.Errorf("%q is not in the page:\n%s", want, text)
	}
}

// TestPageHasNoRatioWithoutAllLibraries leaves out the ratio where, in one situation, only one of two
// libraries was measured: it may be the slower one.
func TestPageHasNoRatioWithoutAllLibraries(t *testing.T) {
	text, _ := written(t, func(lines []string) []string {
		last := lines[len(lines)-1] // far, while most times are near
		return append(lines, strings.NewReplacer(`"openmpi"`, `"mpich"`, `"barrier"`, `"allreduce"`, `"ranks": 4`, `"ranks": 2`, `"bytes": 0`, `"bytes": 8`).Replace(last))
	})
	if !strings.Contains(text, "| allreduce 8 B | 0.400 | 0.200 |\n") {
		t.Errorf("the page is\n%s", text)
	}
}

func TestPageWithoutLibraries(t *testing.T) {
	text, _ := written(t, func(lines []string) []string {
		lines[0] = `{"load":3,"missing":["mpich","openmpi"]}`
		return slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, `"openmpi`) && strings.Contains(l, "program") })
	})
	for _, want := range []string{
		"There was no C library to compare with.", "\nMPICH is not installed", "\nOpen MPI is not installed", "| MPI libraries | none |",
		"its load was 3.0 before the run", "| | shm |\n|---|---:|\n| allreduce 8 B | 0.200 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page:\n%s", want, text)
		}
	}
}

func TestPageRefusesBrokenResults(t *testing.T) {
	for content, want := range map[string]string{"": "EOF", "{}": "has no results", "{}\n{": "unexpected EOF"} {
		results := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(results, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := writePage(filepath.Join(t.TempDir(), "p.md"), results); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}
