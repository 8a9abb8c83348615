package cohort

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestOnlyLaunchedRankWritesIntoItsJob has a world of one rank in the environment of a rank. The folders and files that the
// environment names are for that rank alone.
func TestOnlyLaunchedRankWritesIntoItsJob(t *testing.T) {
	if lookup("shm").missing != "" {
		t.Skip("the shm backend is not in this build, or not on this system")
	}
	t.Setenv(envJoined, "") // Init sets it
	own := fmt.Sprint("own ", os.Getpid())
	single := []string{"COHORT_BACKEND=shm", "COHORT_RANK=0", "COHORT_SIZE=1", "COHORT_JOB=" + own + "j"}
	for _, c := range []struct {
		what         string
		cfg          *Config
		env          []string
		notes, files bool // what is written
	}{
		{"the rank", nil, single, true, true},
		{"the rank, which reads its place itself", &Config{Rank: 0, Size: 1, Job: own + "j"}, single, true, true},
		{"another job", &Config{Rank: 0, Size: 1, Job: own}, single, false, false},
		{"another size", &Config{Backend: "shm", Rank: 0, Size: 1}, []string{"COHORT_RANK=0", "COHORT_SIZE=2", "COHORT_JOB=" + own}, false, false},
		{"a program of the rank", nil, append(single, "COHORT_JOINED=1 rank 0 of "+own+"j"), false, false},
		{"a program of a rank, without its variables", &Config{Backend: "shm", Size: 1, Job: own}, []string{"COHORT_JOINED=1 rank 0 of j"}, false, false},
		{"a program of cohort run's rank, without its variables", &Config{Backend: "shm", Size: 1, Job: own}, []string{"COHORT_FLIGHT_KEPT="}, false, false},
		{"a program of mpiexec's rank", &Config{Backend: "shm", Size: 1, Job: own}, []string{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"}, false, false},
		{"no launcher", &Config{Backend: "shm", Size: 1, Job: own}, nil, false, true},
	} {
		notes, files := t.TempDir(), t.TempDir()
		stats := filepath.Join(t.TempDir(), "stats")
		withEnv(t, append(c.env, "COHORT_RUN_DIR="+notes, "COHORT_FLIGHT_DIR="+files, "COHORT_STATS="+stats)...)
		w, err := Init(context.Background(), c.cfg)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		noted := entries(t, notes)
		if err := w.Close(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		_, err = os.Stat(stats)
		if kept := entries(t, files); (noted > 0) != c.notes || (kept > 0) != c.files || (err == nil) != c.files {
			t.Errorf("%s: %d notes, %d files, statistics: %v; want notes: %v, files and statistics: %v", c.what, noted, kept, err, c.notes, c.files)
		}
	}
}

func entries(t *testing.T, dir string) int {
	t.Helper()
	e, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

// TestConfigWinsOverLauncherThatKeepsGenerations has a world of one rank where the environment names a launcher to ask.
func TestConfigWinsOverLauncherThatKeepsGenerations(t *testing.T) {
	if lookup("shm").missing != "" {
		t.Skip("the shm backend is not in this build, or not on this system")
	}
	withEnv(t, "COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=j", "COHORT_GENERATIONS=1 "+filepath.Join(t.TempDir(), "none"))
	w, err := Init(context.Background(), &Config{Backend: "shm", Rank: 0, Size: 1, Job: fmt.Sprint("own ", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	if w.Rank() != 0 || w.Size() != 1 {
		t.Errorf("rank %d of %d, want 0 of 1", w.Rank(), w.Size())
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
