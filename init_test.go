package cohort

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The variables are those the launchers were seen to set.
func TestAutoChoosesTheDetectedBackend(t *testing.T) {
	for _, c := range []struct {
		what string
		env  []string
		want string
	}{
		{"nothing", nil, "local"},
		{"cohort run", []string{"COHORT_BACKEND=shm", "COHORT_RANK=0", "COHORT_SIZE=2", "COHORT_JOB=x"}, "shm"},
		{"another scheduler", []string{"COHORT_RANK=0", "COHORT_SIZE=2", "COHORT_JOB=x"}, "shm"},
		{"another scheduler, tcp", []string{"COHORT_RANK=0", "COHORT_SIZE=2", "COHORT_TCP_COORDINATOR=a:1"}, "tcp"},
		{"one rank", []string{"COHORT_RANK=0", "COHORT_SIZE=1"}, "local"},
		{"Open MPI", []string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=1"}, "mpi"},
		{"Open MPI, one process", []string{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"}, "local"},
		{"MPICH", []string{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=7"}, "mpi"},
		{"MVAPICH2", []string{"MV2_COMM_WORLD_SIZE=2", "MV2_COMM_WORLD_RANK=0"}, "mpi"},
		{"Flux", []string{"FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=2"}, "mpi"},
		{"srun", []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=4"}, "mpi"},
		{"srun of one task in a larger job", []string{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_NUM_TASKS=1"}, "local"},
		{"salloc's shell", []string{"SLURM_JOB_ID=1", "SLURM_NTASKS=4"}, "local"},
		{"sbatch's script", []string{"SLURM_JOB_ID=1", "SLURM_NTASKS=4", "SLURM_PROCID=0"}, "local"},
		{"explicit", []string{"COHORT_BACKEND=local", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1"}, "local"},
		{"nonsense", []string{"PMI_SIZE=many", "PMI_RANK=0"}, "local"},
	} {
		env := envOf(c.env...)
		s, err := resolve(nil, env)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if c.what == "MPICH" && s.available("mpi", env) != nil && lookup("tcp").missing == "" {
			c.want = "tcp" // through PMI
		}
		if got, _ := s.choose(env); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}

func withEnv(t *testing.T, pairs ...string) {
	old := osEnv
	osEnv = envOf(pairs...)
	t.Cleanup(func() { osEnv = old })
}

func TestInitWithoutLauncherIsOneLocalRank(t *testing.T) {
	withEnv(t)
	w, err := Init(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Rank() != 0 || w.Size() != 1 || w.Backend() != "local" || w.Name() != "world" {
		t.Errorf("rank %d of %d on %s, called %s", w.Rank(), w.Size(), w.Backend(), w.Name())
	}
	x := []int{3}
	if err := Allreduce(w, x, x, Sum); err != nil || x[0] != 3 {
		t.Errorf("allreduce of one rank: %v, %v", x, err)
	}
	if again, err := Init(context.Background(), nil); again != nil || !errors.Is(err, ErrInit) || !strings.Contains(err.Error(), "rank 0 of 1 on local") {
		t.Errorf("Init while the world is open: %v, %v, want ErrInit", again, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if w, err = Init(context.Background(), nil); err != nil {
		t.Errorf("Init after Close: %v", err)
	}
	w.Close()
}

func TestInitErrorsNameTheCause(t *testing.T) {
	for _, c := range []struct {
		what     string
		cfg      *Config
		env      []string
		sentinel error
		text     []string
	}{
		{"no such backend", &Config{Backend: "udp"}, nil, ErrInit, []string{`"udp"`, "shm"}},
		{"tcp without a place", &Config{Backend: "tcp"}, nil, nil, []string{"tcp"}},
		{"tcp without a coordinator", &Config{Backend: "tcp", Size: 2, Job: "j"}, nil, nil, []string{"tcp"}},
		{"mpi", &Config{Backend: "mpi"}, nil, ErrNotSupported, []string{"mpi", "available: local"}},
		{"mpiexec", nil, []string{"OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1"}, ErrNotSupported, []string{"OMPI_COMM_WORLD_SIZE=4", "cohort run -n 4"}},
		{"PMI", nil, []string{"PMI_SIZE=3", "PMI_RANK=1"}, ErrNotSupported, []string{"PMI_SIZE=3"}},
		{"local in a job", nil, []string{"COHORT_BACKEND=local", "COHORT_RANK=1", "COHORT_SIZE=2"}, ErrInit, []string{"rank 1 of 2", "cohort.Run"}},
		{"local under mpiexec", nil, []string{"COHORT_BACKEND=local", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1"}, ErrInit, []string{"OMPI_COMM_WORLD_SIZE=4"}},
		{"shm without a place", &Config{Backend: "shm"}, nil, nil, []string{"shm"}},
		{"bad timeout", nil, []string{"COHORT_TIMEOUT=soon"}, ErrInit, []string{"COHORT_TIMEOUT", "soon"}},
		{"program of a rank", nil, []string{"COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=j", "COHORT_JOINED=1 rank 1 of j"}, ErrInit,
			[]string{"that of process 1", "unset COHORT_RANK and COHORT_SIZE"}},
		{"the size is none", nil, []string{"COHORT_RANK=3", "COHORT_SIZE=x"}, ErrInit, []string{"init: rank 3: ", `COHORT_SIZE is "x"`}},
		{"no size", nil, []string{"COHORT_RANK=3"}, ErrInit, []string{"init: rank 3: "}},
		{"a pod without the size", nil, []string{"JOB_COMPLETION_INDEX=3"}, ErrInit, []string{"init: rank 3: ", "this is pod 3"}},
		{"a pod beyond the size", nil, []string{"JOB_COMPLETION_INDEX=4", "COHORT_SIZE=4"}, ErrInit, []string{"init: rank 4: ", "rank 4 of a job of 4"}},
		{"the rank is known", nil, []string{"COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_HEARTBEAT=0"}, ErrInit, []string{"init: rank 1: ", `COHORT_HEARTBEAT is "0"`}},
	} {
		if lookup("mpi").missing == "" && slices.Contains([]string{"mpi", "mpiexec", "PMI"}, c.what) {
			continue // of builds without the backend, whose own tests have the others
		}
		withEnv(t, c.env...)
		w, err := Init(context.Background(), c.cfg)
		if w != nil || err == nil || c.sentinel != nil && !errors.Is(err, c.sentinel) {
			t.Errorf("%s: got %v, %v, want %v", c.what, w, err, c.sentinel)
			continue
		}
		if e := isOp(err, "init"); e != nil {
			t.Errorf("%s: %v", c.what, e)
		}
		for _, text := range c.text {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", c.what, err, text)
			}
		}
	}
}

func TestResilientIsReportedToLauncher(t *testing.T) {
	for _, c := range []struct {
		backend   string
		resilient string
		want      bool
	}{{"shm", "1", true}, {"tcp", "1", true}, {"shm", "0", false}, {"shm", "", false}, {"mpi", "1", false}, {"local", "1", false}} {
		dir := t.TempDir()
		s, err := resolve(nil, envOf("COHORT_RANK=0", "COHORT_SIZE=2", "COHORT_RUN_DIR="+dir, "COHORT_RESILIENT="+c.resilient))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.announce(c.backend); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "resilient")); (err == nil) != c.want {
			t.Errorf("%s with %q: %v, want a file: %v", c.backend, c.resilient, err, c.want)
		}
		s.runDir = ""
		if err := s.announce(c.backend); err != nil {
			t.Errorf("without a launcher: %v", err)
		}
	}
	s := settings{Config: Config{Resilient: true}, runDir: filepath.Join(t.TempDir(), "none")}
	if err := s.announce("shm"); !errors.Is(err, ErrInit) {
		t.Errorf("a folder that does not exist: %v", err)
	}
	if _, err := resolve(nil, envOf("COHORT_RESILIENT=yes")); !errors.Is(err, ErrInit) {
		t.Errorf("COHORT_RESILIENT=yes: %v", err)
	}
}
