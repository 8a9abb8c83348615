//go:build unix

package spawn

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort/internal/job"
)

// TestRanksOfPartReportTheirEnds checks that ranks of a larger job have its numbers, that nothing follows from how they end,
// and that signals and Stop reach them.
func TestRanksOfPartReportTheirEnds(t *testing.T) {
	var (
		mu   sync.Mutex
		ends []job.Exit
		logs []string
		seen = make(chan struct{}, 8)
	)
	cfg := program(t, 3, "ordered")
	cfg.Programs[0].Args = []string{t.TempDir(), "4=7", "5=signal9"}
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte("for rank 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	cfg.Stdin = stdin
	cfg.Part = &Part{First: 4, Size: 9, Ended: func(e job.Exit) {
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, e)
		seen <- struct{}{}
	}, Drains: func() {}, Log: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		logs = append(logs, text)
	}}
	j := start(t, cfg)
	<-seen
	<-seen
	cfg.Stdout.(*buffer).await(t, "[6] ready\n", 1)
	j.Signal(syscall.SIGTSTP) // stops the ranks, and not this process
	j.Signal(syscall.SIGCONT)
	j.Stop()
	if r := wait(t, j); r.Status != 0 || r.First != -1 {
		t.Errorf("the part itself has failed: %+v", r)
	}
	want := []job.Exit{{Rank: 4, ID: 4, Status: 7, How: "exited with status 7"}, {Rank: 5, ID: 5, Status: 137, How: "was killed by signal 9 (killed)"},
		{Rank: 6, ID: 6, Status: 143, How: "was killed by signal 15 (terminated)"}}
	for i := range ends {
		<-ends[i].Drained
		if ends[i].After == "" {
			t.Errorf("%+v", ends[i])
		}
		ends[i].Name, ends[i].After, ends[i].Drained = "", "", nil // the larger job's launcher names it
	}
	if !slices.Equal(ends, want) {
		t.Errorf("ends:\n%+v, want\n%+v", ends, want)
	}
	if errs := cfg.Stderr.(*buffer).String(); strings.Contains(errs, "cohort:") || len(logs) > 0 {
		t.Errorf("said:\n%s%q", errs, logs)
	}
}

// A rank that exits with status 0 without Close has not failed if the larger job has been asked to end, which its launcher knows.
func TestRankOfPartReportsThatItHasNotClosed(t *testing.T) {
	cfg := program(t, 1, "exit", "0=0")
	cfg.Folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(cfg.Folder, "open-0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var end job.Exit
	cfg.Part = &Part{Size: 1, Ended: func(e job.Exit) { end = e }, Drains: func() {}}
	if wait(t, start(t, cfg)); end.Status != 0 || !end.Open {
		t.Errorf("got %+v, want status 0 of a rank whose world is open", end)
	}
}
