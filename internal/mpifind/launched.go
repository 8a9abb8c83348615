package mpifind

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/topo"
)

// Launcher is the launcher that started this process as a rank of a job.
type Launcher struct {
	Name string // "Open MPI's mpirun"
	// Family is the family of the libraries that it starts, Unknown if it starts any.
	Family Family
	// Prefer is the more likely family if it starts any.
	Prefer     Family
	Rank, Size int    // of this process, and of the job
	Evidence   string // "OMPI_COMM_WORLD_SIZE=4"
}

// String returns the launcher's name and the variable that shows it.
func (l *Launcher) String() string { return l.Name + " (" + l.Evidence + ")" }

// starts says which libraries a launcher starts, and in which variables it counts the processes.
type starts struct {
	family, prefer Family
	sizes          []string
}

// launchers are those that package topo recognizes, by its names for them.
var launchers = map[string]starts{
	"jsrun":               {OpenMPI, OpenMPI, []string{"JSM_NAMESPACE_SIZE"}}, // Spectrum MPI is an Open MPI
	"Open MPI's mpirun":   {OpenMPI, OpenMPI, []string{"OMPI_COMM_WORLD_SIZE"}},
	"MVAPICH2's mpiexec":  {MPICH, MPICH, []string{"MV2_COMM_WORLD_SIZE"}},
	"Intel MPI's mpiexec": {MPICH, MPICH, []string{"PMI_SIZE"}},
	"MPICH's mpiexec":     {MPICH, MPICH, []string{"PMI_SIZE"}},
	"Flux":                {Unknown, Unknown, []string{"FLUX_JOB_SIZE"}},
	"Cray PALS":           {Unknown, MPICH, []string{"PALS_NRANKS", "PMI_SIZE"}},
	"srun":                {Unknown, Unknown, []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}},
	"a PMI launcher":      {MPICH, MPICH, []string{"PMI_SIZE"}},
}

// Job returns the job of this process by variables other than cohort's.
func Job(env func(string) (string, bool)) *topo.Job {
	return topo.ReadJob(func(name string) (string, bool) {
		if strings.HasPrefix(name, "COHORT_") {
			return "", false
		}
		return env(name)
	}, nil)
}

// Launched returns the launcher that started this process, nil if none did, or cohort run, whose ranks need no MPI
// library. A job of one process is a launch too. Invalid values count as no launch.
func Launched(env func(string) (string, bool)) *Launcher {
	job := Job(env)
	if job.Rank < 0 {
		return nil
	}
	s := launchers[job.Launcher]
	l := &Launcher{Name: job.Launcher, Family: s.family, Prefer: s.prefer, Rank: job.Rank, Size: job.Size}
	for _, name := range s.sizes {
		if text, _ := env(name); text != "" {
			l.Evidence = name + "=" + text
			break
		}
	}
	if l.Name == "srun" {
		l.byProtocol(env)
	}
	return l
}

// Unplaced returns an error if a launcher has started this process, and its variables do not say as which rank.
func Unplaced(env func(string) (string, bool)) error {
	job := Job(env)
	if job.Launcher == "" || job.Rank >= 0 {
		return nil
	}
	return fmt.Errorf("this process was started by %s, but %w", job.Launcher, job.Problems[len(job.Problems)-1])
}

// byProtocol finds which libraries srun can start: MPICH through PMI-2, Open MPI through PMIx.
// Neither can use the other.
func (l *Launcher) byProtocol(env func(string) (string, bool)) {
	pmi, pmix := anySet(env, "PMI_FD", "PMI_RANK"), anySet(env, "PMIX_RANK")
	switch {
	case pmix && !pmi:
		l.Name, l.Prefer = "srun --mpi=pmix", OpenMPI
	case pmi && !pmix:
		l.Name, l.Prefer = "srun --mpi=pmi2", MPICH
	}
}

func anySet(env func(string) (string, bool), names ...string) bool {
	for _, n := range names {
		if v, _ := env(n); v != "" {
			return true
		}
	}
	return false
}

// count returns how many processes a launcher started, for an error.
func (l *Launcher) count() string {
	if l.Size == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", l.Size)
}
