package topo

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
)

// Job is what the environment of a process reports of its job. Facts that it does
// not report are absent: "" for a text, nil for a list, 0 for a count or a size,
// -1 for a rank or another number that counts from 0.
type Job struct {
	// Scheduler is the batch system that gave the nodes: Slurm, PBS or Flux.
	Scheduler string
	// ID is the job's, Step that of the step of it, as Slurm has them.
	ID, Step string
	// Name is the job's name, Queue its partition or queue, Cluster the machine.
	Name, Queue, Cluster string
	// Hosts are the nodes of the step, else of the job, in their order there.
	Hosts []string
	// Nodes is how many there are, Node the place of this one.
	Nodes, Node int
	// TasksPerNode is how many tasks each node has, in the order of Hosts.
	TasksPerNode []int
	// CPUsPerTask is how many processors each task was given, CPUsOnNode how many
	// the job has on this node. What a scheduler calls so may be cores or hardware
	// threads.
	CPUsPerTask, CPUsOnNode int
	// MemoryPerNode and MemoryPerCPU are in bytes; see [Job.MemoryLimit].
	MemoryPerNode, MemoryPerCPU int64

	// Launcher is what started this process as one of several: "srun", "Open MPI's
	// mpirun". It is empty in a shell or script of a job, which is no rank.
	Launcher string
	// Rank and Size are its rank and how many there are; LocalRank and LocalSize
	// the same on this node.
	Rank, Size, LocalRank, LocalSize int

	// Problems are the variables that make no sense, or contradict others.
	Problems []Problem
}

// Problem is a variable whose value makes no sense.
type Problem struct {
	Variable, Value string
	Err             error
}

// Error names the variable and what is wrong with it.
func (p Problem) Error() string {
	return fmt.Sprintf("%s=%s: %v", p.Variable, quote(p.Value), p.Err)
}

// Unwrap returns what is wrong.
func (p Problem) Unwrap() error { return p.Err }

// ThisJob reads the environment of this process.
func ThisJob() *Job { return ReadJob(os.LookupEnv, os.DirFS("/")) }

// ReadJob reads an environment. Files that variables name, which only PBS's do,
// are looked for in files.
func ReadJob(env func(string) (string, bool), files fs.FS) *Job {
	j := &Job{Node: -1, Rank: -1, LocalRank: -1}
	r := &jobReader{env, tree{files}, j}
	switch {
	case r.text("SLURM_JOB_ID", "SLURM_JOBID") != "":
		r.slurm()
	case r.text("PBS_JOBID") != "":
		r.pbs()
	case r.text("FLUX_JOB_ID") != "":
		r.flux()
	}
	r.launcher()
	r.complete()
	return j
}

// complete removes impossible values and adds those that follow from the rest.
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
	if j.Launcher == "" {
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

// String returns in one line what is known: "Slurm job 4711.0 on alps (debug); srun:
// rank 3 of 8, 1 of 4 on its node". It is "no job" where nothing is.
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

// Batch returns scheduler, job and step: "Slurm job 4711.0". It is "" without a
// scheduler.
func (j *Job) Batch() string {
	if j.Scheduler == "" {
		return ""
	}
	s := j.Scheduler + " job " + j.ID
	// What has a name or a number from 0xfffffff0 on (slurm.h,
	// SLURM_MAX_NORMAL_STEP_ID) is no step of the user's but the batch script, or
	// an interactive shell.
	if n, ok := digits(j.Step); ok && n < 0xfffffff0 {
		s += "." + j.Step
	}
	return s
}

// MemoryLimit returns how many bytes the scheduler gives the job on a node, and the variable that states
// so: "SLURM_MEM_PER_NODE". It is 0 where no variable does: of other schedulers than Slurm, control
// groups have the limit.
func (j *Job) MemoryLimit() (bytes int64, source string) {
	switch cpus := int64(j.CPUsOnNode); {
	case j.MemoryPerNode > 0:
		return j.MemoryPerNode, "SLURM_MEM_PER_NODE"
	case j.MemoryPerCPU > 0 && cpus > 0 && j.MemoryPerCPU <= math.MaxInt64/cpus:
		return j.MemoryPerCPU * cpus, "SLURM_MEM_PER_CPU for " + plural(j.CPUsOnNode, "processor")
	}
	return 0, ""
}

// HostName returns the name of this node as the job's list of nodes has it, given
// its own, which may be with or without a domain where the list is not; its own
// name where the list does not say.
func (j *Job) HostName(own string) string {
	// A process that srun started has its place from srun. Others may have that variable from
	// where their launcher ran.
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
			return own // two nodes of one name in different domains
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

// first returns the first of the variables that has a value, with its name.
func (r *jobReader) first(names ...string) (name, value string) {
	for _, name := range names {
		if v, _ := r.env(name); strings.TrimSpace(v) != "" {
			return name, strings.TrimSpace(v)
		}
	}
	return "", ""
}

// maxText bounds what names and identifiers are taken for.
const maxText = 1 << 10

// text returns the value of the first of the variables that has one.
func (r *jobReader) text(names ...string) string {
	name, v := r.first(names...)
	if len(v) > maxText {
		r.problem(name, v, fmt.Errorf("longer than %d bytes", maxText))
		return ""
	}
	return v
}

// number returns the number of the first of the variables that has a value, -1
// if none has or it is no number.
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

// errNumber is what is wrong with what should count something.
var errNumber = fmt.Errorf("not a number from 0 to %d", 1<<31-1)

// count is number for what there is at least one of; 0 is absent.
func (r *jobReader) count(names ...string) int { return max(r.number(names...), 0) }

// hosts returns the list of nodes of the first of the variables that has a value.
func (r *jobReader) hosts(names ...string) []string {
	name, v := r.first(names...)
	all, err := ExpandHosts(v)
	if err != nil {
		r.problem(name, v, err)
	}
	return all
}

// counts returns the list of numbers of the first of the variables that has a value.
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

// mebibytes returns a size in bytes that a variable gives in mebibytes, or in
// another unit that it names.
func (r *jobReader) mebibytes(names ...string) int64 {
	name, v := r.first(names...)
	if name == "" {
		return 0
	}
	n, ok := parseMebibytes(v)
	if !ok {
		r.problem(name, v, fmt.Errorf("not a size such as 2048 (mebibytes) or 2G"))
	}
	return n
}

// parseMebibytes reads a size as Slurm takes them: a number of mebibytes, or one
// with a unit of K, M, G, T or P, in either case. It returns bytes.
func parseMebibytes(s string) (bytes int64, ok bool) {
	shift := 20
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
