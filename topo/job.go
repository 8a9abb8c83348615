package topo

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
)

// Job describes the job of a process, as its environment reports it. Absent values are "" for a
// text, nil for a list, 0 for a count or a size, and -1 for a rank or another number that counts
// from 0.
type Job struct {
	// Scheduler is the batch system: Slurm, PBS, Flux or LSF.
	Scheduler string
	// ID and Step are the scheduler's IDs of the job and of its step.
	ID, Step string
	// Name is the job's name, Queue its partition or queue, and Cluster the machine's name.
	Name, Queue, Cluster string
	// Hosts are the nodes of the step, or else of the job, in the scheduler's order.
	Hosts []string
	// Nodes is the number of nodes, and Node the index of this one.
	Nodes, Node int
	// TasksPerNode is the number of tasks on each node, in the order of Hosts.
	TasksPerNode []int
	// CPUsPerTask is the number of processors of each task, and CPUsOnNode that of the job on this
	// node. Depending on the scheduler they count cores or hardware threads.
	CPUsPerTask, CPUsOnNode int
	// MemoryPerNode and MemoryPerCPU are in bytes; see [Job.MemoryLimit].
	MemoryPerNode, MemoryPerCPU int64

	// Launcher is the program that started this process as one of several, such as "srun" or "Open
	// MPI's mpirun". It is empty in a shell or script of a job, which is not a rank. If it is set and
	// Rank is not, the last of Problems says why.
	Launcher string
	// Rank and Size number the processes of the launch, and LocalRank and LocalSize those on this
	// node.
	Rank, Size, LocalRank, LocalSize int
	// Launch names the launch. All its processes have the same name, and no other launch has it.
	Launch string
	// Ports are those that the scheduler has reserved for the launch, such as "12000-12003".
	Ports string

	// Problems lists variables that are invalid or contradict others.
	Problems []Problem
}

// Problem is a variable with an invalid value.
type Problem struct {
	Variable, Value string
	Err             error
}

// Error names the variable and describes the problem.
func (p Problem) Error() string {
	return fmt.Sprintf("%s=%s: %v", p.Variable, quote(p.Value), p.Err)
}

// Unwrap returns Err.
func (p Problem) Unwrap() error { return p.Err }

// ThisJob reads the environment of this process.
func ThisJob() *Job { return ReadJob(os.LookupEnv, os.DirFS("/")) }

// ReadJob reads an environment; a nil env is that of this process. If a variable names a file, as PBS does, it is read
// from files.
func ReadJob(env func(string) (string, bool), files fs.FS) *Job {
	if env == nil {
		env = os.LookupEnv
	}
	j := &Job{Node: -1, Rank: -1, LocalRank: -1}
	r := &jobReader{env, tree{files}, j}
	switch {
	case r.text("SLURM_JOB_ID", "SLURM_JOBID") != "":
		r.slurm()
	case r.text("PBS_JOBID") != "":
		r.pbs()
	case r.text("FLUX_JOB_ID") != "":
		r.flux()
	case r.text("LSB_JOBID") != "":
		r.lsf()
	}
	r.launcher()
	r.complete()
	return j
}

// complete removes impossible values and derives missing ones.
func (r *jobReader) complete() {
	j := r.job
	if j.Nodes == 0 {
		j.Nodes = len(j.Hosts)
	}
	if j.Nodes == 1 && j.Node < 0 {
		j.Node = 0
	}
	if j.Nodes > 0 && j.Node >= j.Nodes {
		j.Node = -1
	}
	if j.Rank < 0 {
		return
	}
	if j.Nodes == 1 { // all ranks are local
		if j.LocalSize == 0 {
			j.LocalSize = j.Size
		}
		if j.LocalRank < 0 {
			j.LocalRank = j.Rank
		}
	}
	if j.LocalSize > j.Size && j.Size > 0 {
		r.problem("local size", strconv.Itoa(j.LocalSize), fmt.Errorf("more than all %d", j.Size))
		j.LocalSize = 0
	}
	if j.LocalSize > 0 && j.LocalRank >= j.LocalSize {
		r.problem("local rank", strconv.Itoa(j.LocalRank), fmt.Errorf("not below the local size %d", j.LocalSize))
		j.LocalRank, j.LocalSize = -1, 0
	}
}

// String formats the job in one line: "Slurm job 4711.0 on alps (debug); srun: rank 3 of 8, 1 of 4
// on its node". Without any information it is "no job".
func (j *Job) String() string {
	var all []string
	if s := j.Batch(); s != "" {
		if j.Cluster != "" {
			s += " on " + j.Cluster
		}
		if j.Queue != "" {
			s += " (" + j.Queue + ")"
		}
		if j.Nodes > 0 {
			s += ", " + plural(j.Nodes, "node")
		}
		all = append(all, s)
	}
	if j.Launcher != "" {
		s := j.Launcher
		if j.Rank >= 0 && j.Size > 0 {
			s += fmt.Sprintf(": rank %d of %d", j.Rank, j.Size)
			if j.LocalRank >= 0 && j.LocalSize > 0 {
				s += fmt.Sprintf(", %d of %d on its node", j.LocalRank, j.LocalSize)
			}
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return "no job"
	}
	return strings.Join(all, "; ")
}

// Batch formats scheduler, job and step: "Slurm job 4711.0". It is "" without a scheduler.
func (j *Job) Batch() string {
	if j.Scheduler == "" {
		return ""
	}
	s := j.Scheduler + " job " + j.ID
	if j.Step != "" && !pseudoStep(j.Step) {
		s += "." + j.Step
	}
	return s
}

// MemoryLimit returns the memory in bytes that the scheduler gives the job on each node, and the
// variable that says so, such as "SLURM_MEM_PER_NODE". It returns 0 if no variable does; schedulers
// other than Slurm set limits with control groups.
func (j *Job) MemoryLimit() (bytes int64, source string) {
	switch cpus := int64(j.CPUsOnNode); {
	case j.MemoryPerNode > 0:
		return j.MemoryPerNode, "SLURM_MEM_PER_NODE"
	case j.MemoryPerCPU > 0 && cpus > 0 && j.MemoryPerCPU <= math.MaxInt64/cpus:
		return j.MemoryPerCPU * cpus, "SLURM_MEM_PER_CPU for " + plural(j.CPUsOnNode, "processor")
	}
	return 0, ""
}

// HostName returns the name of this node in the job's list of nodes, given its own name. Either may
// have a domain that the other lacks. It returns own if the list does not contain it.
func (j *Job) HostName(own string) string {
	// srun sets the index of the node. Under other launchers the variable may come from the node
	// where the launcher ran.
	if j.Launcher == "srun" && j.Node >= 0 && j.Node < len(j.Hosts) {
		return j.Hosts[j.Node]
	}
	short := func(name string) string {
		before, _, _ := strings.Cut(name, ".")
		return before
	}
	alike := ""
	for _, h := range j.Hosts {
		switch {
		case h == own:
			return own
		case own == "" || short(h) != short(own):
		case alike != "" && alike != h:
			return own // two nodes of this name in different domains
		default:
			alike = h
		}
	}
	if alike != "" {
		return alike
	}
	return own
}

// jobReader reads variables into a job.
type jobReader struct {
	env   func(string) (string, bool)
	files tree
	job   *Job
}

func (r *jobReader) problem(name, value string, err error) {
	r.job.Problems = append(r.job.Problems, Problem{name, value, err})
}

// first returns the first of the variables that is set, with its name.
func (r *jobReader) first(names ...string) (name, value string) {
	for _, name := range names {
		if v, _ := r.env(name); strings.TrimSpace(v) != "" {
			return name, strings.TrimSpace(v)
		}
	}
	return "", ""
}

// maxText bounds the length of names and identifiers.
const maxText = 1 << 10

// text returns the value of the first of the variables that is set.
func (r *jobReader) text(names ...string) string {
	name, v := r.first(names...)
	if len(v) > maxText {
		r.problem(name, v, fmt.Errorf("longer than %d bytes", maxText))
		return ""
	}
	return v
}

// number returns the number in the first of the variables that is set, or -1.
func (r *jobReader) number(names ...string) int {
	name, v := r.first(names...)
	if name == "" {
		return -1
	}
	n, ok := decimal(v)
	if !ok {
		r.problem(name, v, errNumber)
		return -1
	}
	return n
}

// errNumber is the problem of an invalid count.
var errNumber = fmt.Errorf("not a number from 0 to %d", 1<<31-1)

// count is number for counts from 1; it returns 0 if absent.
func (r *jobReader) count(names ...string) int { return max(r.number(names...), 0) }

// hosts returns the list of nodes in the first of the variables that is set.
func (r *jobReader) hosts(names ...string) []string {
	name, v := r.first(names...)
	all, err := ExpandHosts(v)
	if err != nil {
		r.problem(name, v, err)
	}
	return all
}

// counts returns the list of numbers in the first of the variables that is set.
func (r *jobReader) counts(names ...string) []int {
	name, v := r.first(names...)
	if name == "" {
		return nil
	}
	all, err := ExpandCounts(v)
	if err != nil {
		r.problem(name, v, err)
	}
	return all
}

// mebibytes returns a size in bytes that a variable gives in mebibytes, or in the unit it names.
func (r *jobReader) mebibytes(names ...string) int64 {
	name, v := r.first(names...)
	if name == "" {
		return 0
	}
	n, ok := parseSize(v, 20)
	if !ok {
		r.problem(name, v, fmt.Errorf("not a size such as 2048 (mebibytes) or 2G"))
	}
	return n
}

// parseSize parses a size: a number of bytes times 2^shift, or with a unit of K, M, G, T or P in either case.
func parseSize(s string, shift int) (bytes int64, ok bool) {
	if s != "" {
		if i := strings.IndexByte("KMGTP", s[len(s)-1]&^0x20); i >= 0 {
			s, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, ok := digits(s)
	if !ok || n > 1<<62>>shift {
		return 0, false
	}
	return int64(n) << shift, true
}
