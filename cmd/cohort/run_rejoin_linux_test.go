package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// Without restarts, the survivors of a loss go on in a world of their own, and come to the same result.
func TestSurvivorsRejoin(t *testing.T) {
	elastic := filepath.Join(programs.Build(t, "./examples/elastic"), "elastic")
	for _, backend := range []string{"shm", "tcp"} {
		for _, lost := range []int{0, 2} {
			status, out, errs := run(t, "run", "-n", "4", "--backend", backend, "--resilient", "--tag=false", elastic, "-kill", strconv.Itoa(lost))
			// 0² + 1² + … + 999² = 999·1000·1999/6
			if want := "the sum is 332833500, in generation 1\n"; status != 0 || out != want {
				t.Errorf("%s, rank %d lost: status %d, %q, want %q\n%s", backend, lost, status, out, want, errs)
			}
		}
	}
}

// On tcp, ranks that are not more than half of the world, nor half of it with rank 0, do not go on: the others may.
func TestMinorityDoesNotRejoin(t *testing.T) {
	elastic := filepath.Join(programs.Build(t, "./examples/elastic"), "elastic")
	status, out, errs := run(t, "run", "-n", "2", "--backend", "tcp", "--resilient", elastic, "-kill", "0")
	if status == 0 || out != "" || !strings.Contains(errs, "rank 1: rejoin: rank 1: peer lost: 1 of 2 ranks are left") {
		t.Errorf("rank 0 of 2 lost: status %d, %q\n%s", status, out, errs)
	}
	if status, out, errs = run(t, "run", "-n", "2", "--backend", "tcp", "--resilient", elastic, "-kill", "1"); status != 0 || !strings.Contains(out, "332833500") {
		t.Errorf("rank 1 of 2 lost: status %d, %q\n%s", status, out, errs)
	}
}
