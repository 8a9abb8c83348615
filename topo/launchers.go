package topo

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// mark says how a launcher is recognized, and which variables it sets.
type mark struct {
	name                             string
	size, rank, localRank, localSize string
	also                             []string // one of these must be set, too, unless the list is empty
	launch                           []string // together they name the launch; only the first must be set
}

// marks are tried in this order. A launcher that runs inside a batch system or inside another
// launcher's step comes before it, because the variables of both are set.
var marks = []mark{
	{"cohort run", "COHORT_SIZE", "COHORT_RANK", "", "", nil, nil},
	{"a Kubernetes Job", "COHORT_SIZE", "JOB_COMPLETION_INDEX", "", "", nil, nil},
	{"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE", nil, []string{"PMIX_NAMESPACE", "LSB_JOBID"}},
	{"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nil,
		[]string{"PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"}}, // before Open MPI 5, PMIX_NAMESPACE is a hash of 16 bits
	{"MVAPICH2's mpiexec", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", nil, nil},
	{"Intel MPI's mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", []string{"I_MPI_HYDRA_TOPOLIB"}, nil},
	{"MPICH's mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", []string{"HYDI_CONTROL_FD", "MPI_LOCALNRANKS"}, nil},
	{"Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "", nil, []string{"FLUX_JOB_ID", "FLUX_JOB_ID_PATH"}},
	{"Cray PALS", "PALS_NRANKS", "PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", nil, []string{"PALS_APID"}},
	{"Cray PALS", "PMI_SIZE", "PALS_RANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE", nil, []string{"PALS_APID"}},
	{srun, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "", nil, slurmStep},
	{srun, "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "", []string{"SLURM_STEP_ID", "SLURM_STEPID"}, slurmStep},
	{"a PMI launcher", "PMI_SIZE", "PMI_RANK", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", nil, nil},
}

const srun = "srun"

var slurmStep = []string{"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME"}

// firstPseudoStep is the lowest number of steps that are shells and scripts of Slurm jobs
// (SLURM_INTERACTIVE_STEP and above in slurm.h).
const firstPseudoStep = 0xfffffff0

// launcher finds out which launcher started this process. A variable without the others of its
// launcher is ignored, because schedulers set some of them in shells, too.
func (r *jobReader) launcher() {
	j := r.job
	for _, m := range marks {
		sizeText, _ := r.env(m.size)
		rankText, _ := r.env(m.rank)
		if sizeText == "" || rankText == "" || !r.any(m.also) {
			continue
		}
		if m.name == srun && pseudoStep(r.text("SLURM_STEP_ID", "SLURM_STEPID")) {
			continue
		}
		size, rank := r.number(m.size), r.number(m.rank)
		if size == 0 || rank >= size && size > 0 {
			r.problem(m.rank, rankText, fmt.Errorf("not below %s=%s", m.size, quote(sizeText)))
			size, rank = -1, -1
		}
		if size < 0 || rank < 0 { // set but invalid; do not look for other launchers
			j.Launcher = m.name
			return
		}
		j.Launcher, j.Size, j.Rank, j.Launch = m.name, size, rank, r.launch(m.launch)
		if m.localRank != "" {
			j.LocalRank = r.number(m.localRank)
		}
		if m.localSize != "" {
			j.LocalSize = r.count(m.localSize)
		}
		switch m.name {
		case srun:
			r.localSizeBySlurm()
		case "Cray PALS":
			if n := r.number("PALS_NODEID"); n >= 0 {
				j.Node = n
			}
		}
		return
	}
}

// launch joins the values that name a launch. A long one is replaced by a hash.
func (r *jobReader) launch(variables []string) string {
	var parts []string
	for i, v := range variables {
		switch text := r.text(v); {
		case text == "" && i == 0:
			return ""
		case len(text) > 64:
			parts = append(parts, fmt.Sprintf("%.8x", sha256.Sum256([]byte(text))))
		case text != "":
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ".")
}

// localSizeBySlurm takes the number of tasks on this node from the list of all nodes, because Slurm
// has no variable for it.
func (r *jobReader) localSizeBySlurm() {
	j := r.job
	switch all := j.TasksPerNode; {
	case j.Node >= 0 && j.Node < len(all):
		j.LocalSize = all[j.Node]
	case len(all) == 1:
		j.LocalSize = all[0]
	}
}

// pseudoStep reports whether a step is the script or shell of a job.
func pseudoStep(step string) bool {
	switch step {
	case "batch", "extern", "interactive":
		return true
	}
	n, err := strconv.ParseUint(step, 10, 32)
	return err == nil && n >= firstPseudoStep
}

func (r *jobReader) any(names []string) bool {
	if len(names) == 0 {
		return true
	}
	name, _ := r.first(names...)
	return name != ""
}
