package topo_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

// environment parses variables, one per line.
func environment(text string) func(string) (string, bool) {
	vars := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimRight(line, "\n"), "=")
		if found {
			vars[strings.TrimSpace(name)] = value
		}
	}
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// jobFiles are the files that variables name.
var jobFiles = fstest.MapFS{
	"var/spool/pbs/aux/12.head": {Data: []byte("c1\nc1\nc2\n\nc2\nc1\n")},
	"var/spool/pbs/aux/empty":   {Data: []byte("\n \n")},
	"var/spool/pbs/aux/strange": {Data: []byte("c1\nthis is no name\n")},
}

// Variables of tasks that srun -N 2 -n 7 -c 4 --mem=2000 started, and of the script around them.
const slurmScript = `
SLURM_JOB_ID=4711
SLURM_JOBID=4711
SLURM_JOB_NAME=hydro
SLURM_JOB_PARTITION=debug
SLURM_CLUSTER_NAME=alps
SLURM_JOB_NODELIST=n[01-03]
SLURM_NODELIST=n[01-03]
SLURM_JOB_NUM_NODES=3
SLURM_NNODES=3
SLURM_NTASKS=9
SLURM_NPROCS=9
SLURM_TASKS_PER_NODE=3(x3)
SLURM_JOB_CPUS_PER_NODE=16(x3)
SLURM_CPUS_PER_TASK=4
SLURM_MEM_PER_NODE=2000
SLURM_PROCID=0
SLURM_LOCALID=0
SLURM_NODEID=0
`

const slurmTask = slurmScript + `
SLURM_STEP_ID=2
SLURM_STEPID=2
SLURM_STEP_NODELIST=n[02-03]
SLURM_STEP_NUM_NODES=2
SLURM_STEP_NUM_TASKS=7
SLURM_STEP_TASKS_PER_NODE=4,3
SLURM_TASKS_PER_NODE=4,3
SLURM_NTASKS=7
SLURM_CPUS_ON_NODE=12
SLURM_PROCID=5
SLURM_LOCALID=1
SLURM_NODEID=1
`

func TestReadJobKnowsSchedulers(t *testing.T) {
	none := topo.Job{Node: -1, Rank: -1, LocalRank: -1}
	step := topo.Job{
		Scheduler: "Slurm", ID: "4711", Step: "2", Name: "hydro", Queue: "debug", Cluster: "alps",
		Hosts: []string{"n02", "n03"}, Nodes: 2, Node: 1, TasksPerNode: []int{4, 3},
		CPUsPerTask: 4, CPUsOnNode: 12, MemoryPerNode: 2000 << 20,
		Launcher: "srun", Rank: 5, Size: 7, LocalRank: 1, LocalSize: 3, Launch: "4711.2.alps",
	}
	script := step
	script.Step, script.Hosts, script.Nodes, script.Node = "", []string{"n01", "n02", "n03"}, 3, 0
	script.TasksPerNode, script.CPUsOnNode = []int{3, 3, 3}, 16
	script.Launcher, script.Rank, script.Size, script.LocalRank, script.LocalSize, script.Launch = "", -1, 0, -1, 0, ""
	with := func(j topo.Job, change func(*topo.Job)) topo.Job {
		change(&j)
		return j
	}
	launch := func(j topo.Job, launcher string, rank, size, localRank, localSize int) topo.Job {
		j.Launcher, j.Rank, j.Size, j.LocalRank, j.LocalSize, j.Launch = launcher, rank, size, localRank, localSize, ""
		return j
	}
	named := func(j topo.Job, launch string) topo.Job {
		j.Launch = launch
		return j
	}
	for _, c := range []struct {
		name, env string
		want      topo.Job
	}{
		{"none", "NCPUS=4\nSLURM_NTASKS=2", none},
		{"a task of srun", slurmTask, step},
		{"a script of sbatch", slurmScript, script},
		{"a shell of srun --pty in newer versions", slurmScript + "SLURM_STEP_ID=4294967290\n", with(script, func(j *topo.Job) { j.Step = "4294967290" })},
		{"the script by its name", slurmScript + "SLURM_STEP_ID=batch\n", with(script, func(j *topo.Job) { j.Step = "batch" })},
		{
			// mpirun starts a process on each node with srun, and the ranks inherit srun's
			// variables.
			"Open MPI in a job of Slurm",
			slurmTask + "SLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_STEP_NUM_TASKS=2\nSLURM_PROCID=1\nSLURM_LOCALID=0\n" +
				"OMPI_COMM_WORLD_SIZE=8\nOMPI_COMM_WORLD_RANK=6\nOMPI_COMM_WORLD_LOCAL_RANK=2\nOMPI_COMM_WORLD_LOCAL_SIZE=4\n",
			launch(with(step, func(j *topo.Job) { j.TasksPerNode = []int{1, 1} }), "Open MPI's mpirun", 6, 8, 2, 4),
		},
		{"MPICH by srun --mpi=pmi2", slurmTask + "PMI_RANK=5\nPMI_SIZE=7\nPMI_FD=9\nPMI_JOBID=4711.2\n", step},
		{
			"one node: all ranks are local",
			"SLURM_JOB_ID=1\nSLURM_STEP_ID=0\nSLURM_JOB_NODELIST=n1\nSLURM_NTASKS=4\nSLURM_PROCID=2\nSLURM_TASKS_PER_NODE=nonsense",
			with(launch(none, "srun", 2, 4, 2, 4), func(j *topo.Job) {
				j.Scheduler, j.ID, j.Step, j.Hosts, j.Nodes, j.Node, j.Launch = "Slurm", "1", "0", []string{"n1"}, 1, 0, "1.0"
				j.Problems = problems("SLURM_TASKS_PER_NODE")
			}),
		},
		{
			"memory for each processor",
			"SLURM_JOB_ID=1\nSLURM_MEM_PER_CPU=4G\nSLURM_MEM_PER_NODE=much",
			with(none, func(j *topo.Job) {
				j.Scheduler, j.ID, j.MemoryPerCPU, j.Problems = "Slurm", "1", 4<<30, problems("SLURM_MEM_PER_NODE")
			}),
		},
		{
			"MPICH's mpiexec", "PMI_RANK=1\nPMI_SIZE=4\nPMI_FD=5\nMPI_LOCALNRANKS=2\nMPI_LOCALRANKID=1\nHYDI_CONTROL_FD=6",
			launch(none, "MPICH's mpiexec", 1, 4, 1, 2),
		},
		{
			"Intel MPI's mpiexec", "PMI_RANK=0\nPMI_SIZE=4\nI_MPI_HYDRA_TOPOLIB=hwloc\nMPI_LOCALNRANKS=4\nMPI_LOCALRANKID=0",
			launch(none, "Intel MPI's mpiexec", 0, 4, 0, 4),
		},
		{
			"MVAPICH2", "MV2_COMM_WORLD_SIZE=2\nMV2_COMM_WORLD_RANK=1\nMV2_COMM_WORLD_LOCAL_RANK=0\nMV2_COMM_WORLD_LOCAL_SIZE=1",
			launch(none, "MVAPICH2's mpiexec", 1, 2, 0, 1),
		},
		{
			"Cray PALS under PBS", "PBS_JOBID=12.head\nPBS_QUEUE=prod\nPBS_JOBNAME=run\nPBS_NODEFILE=/var/spool/pbs/aux/12.head\nNCPUS=64\n" +
				"PALS_NRANKS=5\nPALS_RANKID=4\nPALS_LOCAL_RANKID=1\nPALS_LOCAL_SIZE=2\nPALS_NODEID=1\nPALS_APID=9f-3\nPMI_SIZE=5\nPMI_RANK=4",
			with(launch(none, "Cray PALS", 4, 5, 1, 2), func(j *topo.Job) {
				j.Scheduler, j.ID, j.Queue, j.Name, j.CPUsOnNode, j.Launch = "PBS", "12.head", "prod", "run", 64, "9f-3"
				j.Hosts, j.TasksPerNode, j.Nodes, j.Node = []string{"c1", "c2"}, []int{3, 2}, 2, 1
			}),
		},
		{
			"Torque", "PBS_JOBID=7\nPBS_NUM_NODES=3\nPBS_NUM_PPN=8",
			with(none, func(j *topo.Job) { j.Scheduler, j.ID, j.Nodes, j.CPUsOnNode = "PBS", "7", 3, 8 }),
		},
		{
			"PBS without its file", "PBS_JOBID=7\nPBS_NODEFILE=/var/spool/pbs/aux/8",
			with(none, func(j *topo.Job) { j.Scheduler, j.ID, j.Problems = "PBS", "7", problems("PBS_NODEFILE") }),
		},
		{
			"PBS with an empty file", "PBS_JOBID=7\nPBS_NODEFILE=/var/spool/pbs/aux/empty",
			with(none, func(j *topo.Job) { j.Scheduler, j.ID, j.Problems = "PBS", "7", problems("PBS_NODEFILE") }),
		},
		{
			"PBS with a file of something else", "PBS_JOBID=7\nPBS_NODEFILE=/var/spool/pbs/aux/strange",
			with(none, func(j *topo.Job) { j.Scheduler, j.ID, j.Problems = "PBS", "7", problems("PBS_NODEFILE") }),
		},
		{
			"Flux", "FLUX_JOB_ID=f2vyXn7T\nFLUX_JOB_SIZE=6\nFLUX_JOB_NNODES=2\nFLUX_TASK_RANK=4\nFLUX_TASK_LOCAL_ID=1",
			with(launch(none, "Flux", 4, 6, 1, 0), func(j *topo.Job) {
				j.Scheduler, j.ID, j.Nodes, j.Launch = "Flux", "f2vyXn7T", 2, "f2vyXn7T"
			}),
		},
		{
			"Flux in a job of Flux", "FLUX_JOB_ID=f1\nFLUX_JOB_ID_PATH=/f9/f1\nFLUX_JOB_SIZE=2\nFLUX_JOB_NNODES=1\nFLUX_TASK_RANK=1\nFLUX_TASK_LOCAL_ID=1",
			with(launch(none, "Flux", 1, 2, 1, 2), func(j *topo.Job) {
				j.Scheduler, j.ID, j.Nodes, j.Node, j.Launch = "Flux", "f1", 1, 0, "f1./f9/f1"
			}),
		},
		{
			// jsrun sets Open MPI's variables too.
			"jsrun under LSF", "LSB_JOBID=88\nLSB_JOBNAME=run\nLSB_QUEUE=batch\nJSM_NAMESPACE_SIZE=4\nJSM_NAMESPACE_RANK=3\n" +
				"JSM_NAMESPACE_LOCAL_RANK=1\nJSM_NAMESPACE_LOCAL_SIZE=2\nPMIX_NAMESPACE=2\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3",
			with(launch(none, "jsrun", 3, 4, 1, 2), func(j *topo.Job) {
				j.Scheduler, j.ID, j.Name, j.Queue, j.Launch = "LSF", "88", "run", "batch", "2.88"
			}),
		},
		{"jsrun that names no launch", "LSB_JOBID=88\nJSM_NAMESPACE_SIZE=2\nJSM_NAMESPACE_RANK=1", with(launch(none, "jsrun", 1, 2, -1, 0), func(j *topo.Job) {
			j.Scheduler, j.ID = "LSF", "88"
		})},
		{
			"Open MPI 4", "OMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1\nPMIX_NAMESPACE=599523329\n" +
				"OMPI_MCA_orte_hnp_uri=599523328.0;tcp://192.0.2.2:33939;tcp6://[fd00::2]:50347,[fd00::3]:50347",
			// The start of printf '599523328.0;…' | sha256sum.
			named(launch(none, "Open MPI's mpirun", 1, 2, -1, 0), "599523329.113f0d520f82c319"),
		},
		{
			"ports reserved by Slurm", slurmTask + "SLURM_STEP_RESV_PORTS=12000-12003",
			with(step, func(j *topo.Job) { j.Ports = "12000-12003" }),
		},
		{"a pod", "JOB_COMPLETION_INDEX=1\nCOHORT_SIZE=3", launch(none, "a Kubernetes Job", 1, 3, -1, 0)},
		{"cohort run in a step of Slurm with one task", slurmTask + "COHORT_RANK=1\nCOHORT_SIZE=3", launch(step, "cohort run", 1, 3, -1, 0)},
		{"another PMI launcher", "PMI_RANK=1\nPMI_SIZE=2\nPMI_LOCAL_RANK=0\nPMI_LOCAL_SIZE=1", launch(none, "a PMI launcher", 1, 2, 0, 1)},
		{
			"rank and size contradict each other", "OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=4",
			with(none, func(j *topo.Job) { j.Launcher, j.Problems = "Open MPI's mpirun", problems("OMPI_COMM_WORLD_RANK") }),
		},
		{
			"a size that is no number", "OMPI_COMM_WORLD_SIZE=many\nOMPI_COMM_WORLD_RANK=4\nPMI_SIZE=2\nPMI_RANK=1",
			with(none, func(j *topo.Job) { j.Launcher, j.Problems = "Open MPI's mpirun", problems("OMPI_COMM_WORLD_SIZE") }),
		},
		{
			"local rank and size contradict each other",
			"OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=3",
			with(launch(none, "Open MPI's mpirun", 3, 4, -1, 0), func(j *topo.Job) { j.Problems = problems("local rank") }),
		},
		{
			"more local ranks than ranks",
			"OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=3\nOMPI_COMM_WORLD_LOCAL_SIZE=5\nOMPI_COMM_WORLD_LOCAL_RANK=3",
			with(launch(none, "Open MPI's mpirun", 3, 4, 3, 0), func(j *topo.Job) { j.Problems = problems("local size") }),
		},
		{
			"a list of nodes that does not fit into memory",
			"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n[0-999999999]\nSLURM_JOB_NUM_NODES=1000000000",
			with(none, func(j *topo.Job) {
				j.Scheduler, j.ID, j.Nodes, j.Problems = "Slurm", "1", 1000000000, problems("SLURM_JOB_NODELIST")
			}),
		},
		{
			"counts for other nodes than there are",
			"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n[1-3]\nSLURM_JOB_NUM_NODES=2\nSLURM_TASKS_PER_NODE=2(x2)\nSLURM_NODEID=3",
			with(none, func(j *topo.Job) {
				j.Scheduler, j.ID, j.Nodes, j.Hosts = "Slurm", "1", 3, []string{"n1", "n2", "n3"}
				j.Problems = problems("SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE")
			}),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := *topo.ReadJob(environment(c.env), jobFiles)
			if !slices.EqualFunc(got.Problems, c.want.Problems, func(a, b topo.Problem) bool { return a.Variable == b.Variable }) {
				t.Errorf("problems %v, want some of %v", got.Problems, c.want.Problems)
			}
			got.Problems, c.want.Problems = nil, nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("\n got %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// problems are the problems of some variables.
func problems(variables ...string) (all []topo.Problem) {
	for _, v := range variables {
		all = append(all, topo.Problem{Variable: v})
	}
	return all
}

func TestJobReportsProblems(t *testing.T) {
	j := topo.ReadJob(environment("SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n[0-999999999]"), nil)
	if len(j.Problems) != 1 {
		t.Fatalf("got %v", j.Problems)
	}
	p := j.Problems[0]
	if !errors.Is(p, topo.ErrHosts) || !strings.Contains(p.Error(), "SLURM_JOB_NODELIST") || !strings.Contains(p.Error(), "65536") {
		t.Errorf("%v does not name variable and limit", p)
	}
	// Text from outside is shortened.
	j = topo.ReadJob(environment("SLURM_JOB_ID="+strings.Repeat("1", 1<<20)), nil)
	if len(j.Problems) != 1 || j.ID != "" || len(j.Problems[0].Error()) > 1000 {
		t.Errorf("a long identifier: %d problems", len(j.Problems))
	}
}

func TestJobStringNamesJobAndRank(t *testing.T) {
	for env, want := range map[string]string{
		"":          "no job",
		slurmTask:   "Slurm job 4711.2 on alps (debug), 2 nodes; srun: rank 5 of 7, 1 of 3 on its node",
		slurmScript: "Slurm job 4711 on alps (debug), 3 nodes",
		"OMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1": "Open MPI's mpirun: rank 1 of 2",
	} {
		if got := topo.ReadJob(environment(env), nil).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBatchNamesTheJob(t *testing.T) {
	for env, want := range map[string]string{
		"":                                       "",
		slurmTask:                                "Slurm job 4711.2",
		slurmScript:                              "Slurm job 4711",
		slurmScript + "SLURM_STEP_ID=4294967290": "Slurm job 4711", // shell of salloc
		slurmScript + "SLURM_STEP_ID=batch":      "Slurm job 4711",
		"PBS_JOBID=12.head":                      "PBS job 12.head",
		"FLUX_JOB_ID=f2vyXn7T":                   "Flux job f2vyXn7T",
		"PMI_RANK=1\nPMI_SIZE=2":                 "",
	} {
		if got := topo.ReadJob(environment(env), nil).Batch(); got != want {
			t.Errorf("%s: got %q, want %q", env, got, want)
		}
	}
}

func TestJobHostNameComesFromScheduler(t *testing.T) {
	mpirun := "OMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_RANK=1\n"
	for _, c := range []struct{ env, own, want string }{
		{"", "n01", "n01"},
		{"", "", ""},
		// srun sets the index: this is the second of n[02-03], whatever its own name.
		{slurmTask, "n02", "n03"},
		{slurmTask, "ip-10-0-0-7", "n03"},
		// mpirun passes on the variables of the node it was started on.
		{slurmTask + mpirun, "n02", "n02"},
		{slurmTask + mpirun, "n02.cluster", "n02"},
		{slurmTask + mpirun, "n2", "n2"},
		{slurmTask + mpirun, "login.cluster", "login.cluster"},
		{slurmTask + mpirun, "", ""},
		{slurmScript, "n02.cluster", "n02"},
		{"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n1.a,n2.a", "n1", "n1.a"},
		{"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n1.a,n1.b", "n1", "n1"},
		{"SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n1.a,n1.b", "n1.b", "n1.b"},
		{"PBS_JOBID=12.head\nPBS_NODEFILE=/var/spool/pbs/aux/12.head", "c2.local", "c2"},
	} {
		if got := topo.ReadJob(environment(c.env), jobFiles).HostName(c.own); got != c.want {
			t.Errorf("%q in %s: got %q, want %q", c.own, c.env, got, c.want)
		}
	}
}

func TestJobMemoryLimit(t *testing.T) {
	for env, want := range map[string]int64{
		"": 0,
		"SLURM_JOB_ID=7\nSLURM_MEM_PER_NODE=2000":                         2000 << 20,
		"SLURM_JOB_ID=7\nSLURM_MEM_PER_NODE=0":                            0, // all memory of the node
		"SLURM_JOB_ID=7\nSLURM_MEM_PER_CPU=500\nSLURM_CPUS_ON_NODE=3":     1500 << 20,
		"SLURM_JOB_ID=7\nSLURM_MEM_PER_CPU=500":                           0,
		"SLURM_JOB_ID=7\nSLURM_MEM_PER_CPU=4096P\nSLURM_CPUS_ON_NODE=512": 0, // overflows an int64
	} {
		bytes, source := topo.ReadJob(environment(env), jobFiles).MemoryLimit()
		if bytes != want || (source == "") != (want == 0) {
			t.Errorf("%q: %d bytes by %q, want %d", env, bytes, source, want)
		}
	}
}
