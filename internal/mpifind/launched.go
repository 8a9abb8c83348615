package mpifind

import (
	"fmt"
	"strconv"
)

// Launcher is the launcher that started this process as a rank of a job.
type Launcher struct {
	Name string // "Open MPI's mpirun"
	// Family is the family of the libraries that it starts, Unknown if it starts any.
	Family Family
	// Prefer is the more likely family if it starts any.
	Prefer Family
	// Rank, Size and Local are this process's rank, the number of ranks, and the rank on this node;
	// -1 if the launcher does not report it.
	Rank, Size, Local int
	Evidence          string // "OMPI_COMM_WORLD_SIZE=4"
}

// String returns the launcher's name and the variable that shows it.
func (l *Launcher) String() string { return l.Name + " (" + l.Evidence + ")" }

// mark is how a launcher is recognized.
type mark struct {
	name              string
	family, prefer    Family
	size, rank, local string   // variables; size and rank must hold numbers
	also              []string // if not empty, one of these must be set too
}

// marks are checked in this order. A launcher inside a batch system comes before the batch system,
// whose variables are set too. Batch systems set their counts also in shells, where no rank runs:
// only with a rank and a step are they a launch.
var marks = []mark{
	{"Open MPI's mpirun", OpenMPI, OpenMPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", nil},
	{"MVAPICH2's mpiexec", MPICH, MPICH, "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", nil},
	{"Intel MPI's mpiexec", MPICH, MPICH, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", []string{"I_MPI_HYDRA_TOPOLIB"}},
	{"MPICH's mpiexec", MPICH, MPICH, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", []string{"HYDI_CONTROL_FD", "MPI_LOCALNRANKS"}},
	{"Flux", Unknown, Unknown, "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", nil},
	{"Cray PALS", Unknown, MPICH, "PALS_NRANKS", "PALS_RANKID", "PALS_LOCAL_RANKID", nil},
	{"srun", Unknown, Unknown, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", nil},
	{"srun", Unknown, Unknown, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", []string{"SLURM_STEP_ID"}},
	{"a PMI launcher (MPICH, Intel MPI or Cray)", MPICH, MPICH, "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", nil},
}

// Launched returns the launcher that started this process, nil if none did. A job of one process is
// a launch too. Invalid values count as no launch.
func Launched(env func(string) (string, bool)) *Launcher {
	for _, m := range marks {
		size, text := value(env, m.size)
		rank, _ := value(env, m.rank)
		if size < 1 || rank < 0 && m.needsRank() || rank >= size || !anySet(env, m.also) {
			continue
		}
		l := &Launcher{Name: m.name, Family: m.family, Prefer: m.prefer, Rank: rank, Size: size, Evidence: m.size + "=" + text}
		l.Local, _ = value(env, m.local)
		if m.name == "srun" {
			id, _ := env("SLURM_STEP_ID")
			if step, err := strconv.ParseUint(id, 10, 32); err == nil && step >= firstPseudoStep {
				continue
			}
			l.byProtocol(env)
		}
		return l
	}
	return nil
}

// firstPseudoStep is the lowest step number of the shells and scripts of Slurm's jobs themselves
// (SLURM_INTERACTIVE_STEP and above in slurm.h).
const firstPseudoStep = 0xfffffff0

// needsRank reports whether the size alone does not distinguish a rank from a shell.
func (m mark) needsRank() bool { return m.family == Unknown || m.size == "PMI_SIZE" }

// byProtocol finds which libraries srun can start: MPICH through PMI-2, Open MPI through PMIx.
// Neither can use the other.
func (l *Launcher) byProtocol(env func(string) (string, bool)) {
	pmi, pmix := anySet(env, []string{"PMI_FD", "PMI_RANK"}), anySet(env, []string{"PMIX_RANK"})
	switch {
	case pmix && !pmi:
		l.Name, l.Prefer = "srun --mpi=pmix", OpenMPI
	case pmi && !pmix:
		l.Name, l.Prefer = "srun --mpi=pmi2", MPICH
	}
}

// value returns a variable's number, -1 if it holds no number of processes.
func value(env func(string) (string, bool), name string) (int, string) {
	text, _ := env(name)
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1, text
	}
	return int(n), text
}

func anySet(env func(string) (string, bool), names []string) bool {
	for _, n := range names {
		if v, _ := env(n); v != "" {
			return true
		}
	}
	return len(names) == 0
}

// count returns how many processes a launcher started, for an error.
func (l *Launcher) count() string {
	if l.Size == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", l.Size)
}
