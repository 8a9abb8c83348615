package tensor

import (
	"context"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func TestSelect(t *testing.T) {
	for _, v := range []string{"COHORT_BACKEND", "COHORT_RANK", "COHORT_SIZE", "COHORT_JOB", "COHORT_TCP_COORDINATOR"} {
		t.Setenv(v, "")
	}
	// A process alone: local is there, and is the best; shm and tcp want a launcher.
	f, err := Select("", nil)
	if err != nil || f.Name != "local" {
		t.Fatalf("Select: %v, %v", f, err)
	}
	for _, name := range []string{"shm", "tcp"} {
		if f, err := Select(name, nil); !errors.Is(err, cohort.ErrInit) {
			t.Errorf("Select(%s): %v, %v; want ErrInit", name, f, err)
		}
	}
	if f, err := Select("carrier pigeons", nil); !errors.Is(err, cohort.ErrInit) {
		t.Errorf("Select of a backend that is not there: %v, %v", f, err)
	}
	if f, err := Select("mpi", &cohort.Config{MPI: cohort.MPIConfig{Lib: "/nowhere/libmpi.so"}}); !errors.Is(err, cohort.ErrNotSupported) {
		t.Errorf("Select(mpi) without a library: %v, %v", f, err)
	}
	four := &cohort.Config{Rank: 1, Size: 4, Job: "x"}
	if f, err = Select("auto", four); err != nil || f.Name != "shm" {
		t.Errorf("Select for one of four ranks: %v, %v", f, err)
	}

	if f, err = Select("local", nil); err != nil {
		t.Fatal(err)
	}
	world, c, err := f.New(context.Background(), nil, &Config{Chunk: 1024})
	if err != nil {
		t.Fatal(err)
	}
	if world.Backend() != "local" || c.Size() != 1 || c.cfg.Chunk != 1024 {
		t.Errorf("made a communicator of %d ranks on %s with pieces of %d bytes", c.Size(), world.Backend(), c.cfg.Chunk)
	}
	if err := errors.Join(c.Close(), world.Close()); err != nil {
		t.Error(err)
	}
	if _, _, err := f.New(context.Background(), nil, &Config{Chunk: 3}); !errors.Is(err, cohort.ErrInit) {
		t.Errorf("New with pieces of 3 bytes: %v", err)
	}
}
