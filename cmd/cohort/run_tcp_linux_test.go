package main

import (
	"os"
	"strings"
	"testing"
)

// TestRunTCPLeavesNothing checks that ranks over sockets are a job, and that nothing of their meeting is left.
func TestRunTCPLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	for _, c := range []struct {
		line    []string
		status  int
		message string
		count   int
	}{
		{hello(t, "run", "-n", "3", "--backend", "tcp"), 0, " of 3 (backend tcp): the sum is 6\n", 3},
		{[]string{"run", "-n", "2", "--backend", "tcp", "sh", "-c", "stat -c %a $COHORT_SECRET_FILE"}, 0, "] 600\n", 2},
		{[]string{"run", "-n", "2", "--backend", "tcp", "sh", "-c", "exit 3"}, 3, "", 0},
	} {
		status, stdout, stderr := run(t, c.line...)
		if status != c.status || c.count > 0 && strings.Count(stdout, c.message) != c.count {
			t.Errorf("%q: status %d, want %d\nstdout:\n%s\nstderr:\n%s", c.line, status, c.status, stdout, stderr)
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRunTCPStartsManyRanks starts far more ranks than most machines have processors.
func TestRunTCPStartsManyRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: 400 ranks, which take a minute of processor time; make test-all runs it")
	}
	t.Setenv("COHORT_JOIN_TIMEOUT", patience.String())
	t.Setenv("COHORT_HEARTBEAT", "off") // a rank may get no processor for long
	status, stdout, stderr := run(t, hello(t, "run", "-n", "400", "--backend", "tcp")...)
	if n := strings.Count(stdout, " of 400 (backend tcp): the sum is 80200\n"); status != 0 || n != 400 {
		t.Errorf("status %d, %d ranks have the sum\nstdout:\n%s\nstderr:\n%s", status, n, stdout, stderr)
	}
}

func TestBenchMeasuresTCP(t *testing.T) {
	status, stdout, stderr := run(t, "bench", "--json", "--backend", "tcp", "-n", "2", "--sizes", "8,65536", "allreduce")
	if status != 0 {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	checkResults(t, measured(t, stdout), "allreduce", "tcp", 2, 8, 65536)
}
