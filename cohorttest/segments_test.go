package cohorttest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Of the files that appear in a folder during a job, those with one of its marks are
// the job's and are removed. All others stay.
func TestSegmentsOfTheJobAreRemoved(t *testing.T) {
	dir := t.TempDir()
	put := func(names ...string) {
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put("vader_segment.host.0.92f0001.0")
	s := segmentsIn(dir)
	others := []string{"cohort-run-1", "mpich_shar_tmpAAAAAA", "osc_sm.host.93f0001.0.7", "vader_segment.host.0.192f0001.1"}
	put(others...)
	inUse, err := os.Open(filepath.Join(dir, "osc_sm.host.93f0001.0.7")) // an unused one would be among the expected
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	put("vader_segment.host.0.92f0001.1", "osc_sm.host.92f0001.0.7", "window-JOB-3")
	t.Setenv("COHORT_JOB", "JOB")
	t.Setenv("PMIX_NAMESPACE", "154075137") // 0x92f0001
	left, expected := s.left(marks(), []string{"osc_sm.*"})
	if want := []string{"vader_segment.host.0.92f0001.1", "window-JOB-3"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
	if want := []string{"osc_sm.host.92f0001.0.7"}; !slices.Equal(expected, want) {
		t.Errorf("expected are %q, want %q", expected, want)
	}
	if got, want := fileNames(dir), append(others, "vader_segment.host.0.92f0001.0"); !slices.Equal(got, sorted(want)) {
		t.Errorf("now there are %q, want %q", got, want)
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }
