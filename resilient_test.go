package cohort

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestResilientIsReportedToLauncher(t *testing.T) {
	for _, c := range []struct {
		backend   string
		resilient string
		want      bool
	}{{"shm", "1", true}, {"tcp", "1", true}, {"shm", "0", false}, {"shm", "", false}, {"mpi", "1", false}, {"local", "1", false}} {
		dir := t.TempDir()
		env := envOf("COHORT_RUN_DIR="+dir, "COHORT_RESILIENT="+c.resilient)
		s, err := resolve(nil, env)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.announce(c.backend, env); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "resilient")); (err == nil) != c.want {
			t.Errorf("%s with %q: %v, want a file: %v", c.backend, c.resilient, err, c.want)
		}
		if err := s.announce(c.backend, envOf()); err != nil {
			t.Errorf("without a launcher: %v", err)
		}
	}
	s := settings{Config: Config{Resilient: true}}
	if err := s.announce("shm", envOf("COHORT_RUN_DIR="+filepath.Join(t.TempDir(), "none"))); !errors.Is(err, ErrInit) {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if _, err := resolve(nil, envOf("COHORT_RESILIENT=yes")); !errors.Is(err, ErrInit) {
		t.Errorf("COHORT_RESILIENT=yes: %v", err)
	}
}
