package topo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// slurm reads the variables that srun(1) and sbatch(1) document. A step may have only a part of its
// job, so the step's variables come first.
func (r *jobReader) slurm() {
	j := r.job
	j.Scheduler = "Slurm"
	j.ID = r.text("SLURM_JOB_ID", "SLURM_JOBID")
	j.Step = r.text("SLURM_STEP_ID", "SLURM_STEPID")
	j.Name, j.Queue, j.Cluster = r.text("SLURM_JOB_NAME"), r.text("SLURM_JOB_PARTITION"), r.text("SLURM_CLUSTER_NAME")
	j.Hosts = r.hosts("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
	j.Nodes = r.count("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	if j.Hosts != nil && j.Nodes > 0 && j.Nodes != len(j.Hosts) {
		name, v := r.first("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
		r.problem(name, v, fmt.Errorf("the list of nodes has %d", len(j.Hosts)))
		j.Nodes = len(j.Hosts)
	}
	j.Node = r.number("SLURM_NODEID")
	j.TasksPerNode = r.perNode("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	j.CPUsPerTask = r.count("SLURM_CPUS_PER_TASK")
	j.CPUsOnNode = r.count("SLURM_CPUS_ON_NODE")
	if all := r.counts("SLURM_JOB_CPUS_PER_NODE"); j.CPUsOnNode == 0 && len(all) > 0 && slices.Min(all) == slices.Max(all) {
		j.CPUsOnNode = all[0]
	}
	j.Ports = r.text("SLURM_STEP_RESV_PORTS")
	j.MemoryPerNode, j.MemoryPerCPU = r.mebibytes("SLURM_MEM_PER_NODE"), r.mebibytes("SLURM_MEM_PER_CPU")
}

// perNode returns one count for each node.
func (r *jobReader) perNode(names ...string) []int {
	all := r.counts(names...)
	if nodes := r.job.Nodes; all != nil && nodes > 0 && len(all) != nodes {
		name, v := r.first(names...)
		r.problem(name, v, fmt.Errorf("%d numbers for %d nodes", len(all), nodes))
		return nil
	}
	return all
}

// pbs reads the variables of OpenPBS, PBS Professional and Torque.
func (r *jobReader) pbs() {
	j := r.job
	j.Scheduler = "PBS"
	j.ID, j.Name, j.Queue = r.text("PBS_JOBID"), r.text("PBS_JOBNAME"), r.text("PBS_QUEUE")
	// NCPUS, and Torque's PBS_NUM_PPN, are those of the first node; all nodes are alike if their
	// chunks are.
	j.CPUsOnNode = r.count("NCPUS", "PBS_NUM_PPN")
	j.Nodes = r.count("PBS_NUM_NODES") // Torque
	name, file := r.first("PBS_NODEFILE")
	if name == "" {
		return
	}
	hosts, tasks, err := nodeFile(r.files.text(file))
	if err != nil {
		r.problem(name, file, err)
		return
	}
	j.Hosts, j.TasksPerNode, j.Nodes = hosts, tasks, len(hosts)
}

// nodeFile reads PBS's list of nodes: one line for each task, in any order.
func nodeFile(text string) (hosts []string, tasks []int, err error) {
	place := make(map[string]int)
	for line := range strings.Lines(text) {
		host := strings.TrimSpace(line)
		if host == "" {
			continue
		}
		i, known := place[host]
		if !known {
			switch i = len(hosts); {
			case i == MaxHosts:
				return nil, nil, fmt.Errorf("%w: more than %d names", ErrHosts, MaxHosts)
			case len(host) > maxHostName || strings.ContainsAny(host, " \t"):
				return nil, nil, fmt.Errorf("%w: %s is not a name", ErrHosts, quote(host))
			}
			place[host] = i
			hosts, tasks = append(hosts, host), append(tasks, 0)
		}
		tasks[i]++
	}
	if hosts == nil {
		return nil, nil, errors.New("the file is missing or empty")
	}
	return hosts, tasks, nil
}

// flux reads the variables that flux-environment(7) documents.
func (r *jobReader) flux() {
	j := r.job
	j.Scheduler = "Flux"
	j.ID = r.text("FLUX_JOB_ID")
	j.Nodes = r.count("FLUX_JOB_NNODES")
}

// lsf reads the variables of LSF. Its list of nodes may begin with one that has no ranks of jsrun.
func (r *jobReader) lsf() {
	j := r.job
	j.Scheduler = "LSF"
	j.ID, j.Name, j.Queue = r.text("LSB_JOBID"), r.text("LSB_JOBNAME"), r.text("LSB_QUEUE")
}
