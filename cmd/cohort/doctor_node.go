package main

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// processors reports how many ranks can run at the same time, and where.
func (d *diagnosis) processors(n *topo.Node) {
	const group = "processors"
	text := job.Count(len(n.CPUs), "processor")
	if len(n.Online) > len(n.CPUs) {
		text = fmt.Sprintf("%d of %s", len(n.CPUs), job.Count(len(n.Online), "processor"))
	}
	text += fmt.Sprintf(" (%v), %s", n.CPUs, job.Count(len(n.Cores), "core"))
	if len(n.Packages) > 0 {
		text += " in " + job.Count(len(n.Packages), "package")
	}
	s, advice := ok, ""
	if len(n.CPUs) == 1 && len(n.Permitted) <= 1 { // more: the mask, see below
		s, advice = warn, "ranks take turns on one processor: they run, and none is faster than one rank"
	}
	d.add(group, "usable", s, text, advice)
	switch left := len(n.Permitted); {
	case !n.Binding:
		d.add(group, "affinity", none, "processes cannot be bound to processors on this system", "")
	case left > len(n.CPUs):
		s, advice := ok, ""
		if len(n.CPUs) == 1 {
			s, advice = warn, "ranks take turns on it; what has bound this process can leave it more: srun --cpus-per-task, mpirun --bind-to none, taskset"
		}
		d.add(group, "affinity", s, fmt.Sprintf("the mask of this process leaves %d of %d (%v)", len(n.CPUs), left, n.CPUs), advice)
	case left > 0 && left < len(n.Online):
		d.add(group, "affinity", ok, fmt.Sprintf("control groups leave %d of %d (%v); ranks can be bound to these", left, len(n.Online), n.Permitted), "")
	default:
		d.add(group, "affinity", ok, "all processors; ranks can be bound to them", "")
	}
	d.domains(n)
	switch time := n.Limits.CPU; {
	case time == 0:
		d.add(group, "control groups", ok, "no limit on processor time", "")
	case time < float64(len(n.CPUs)):
		d.add(group, "control groups", warn, fmt.Sprintf("%.4g processors' worth of time", time),
			fmt.Sprintf("more than %s are held up when the time is used up: start at most that many", job.Count(n.Usable(), "rank")))
	default:
		d.add(group, "control groups", ok, fmt.Sprintf("%.4g processors' worth of time", time), "")
	}
}

func (d *diagnosis) domains(n *topo.Node) {
	const group, name = "processors", "NUMA"
	forbidden, remote := []string(nil), false
	for _, m := range n.Domains {
		if len(m.CPUs) > 0 && m.Memory > 0 && !m.Allowed {
			forbidden = append(forbidden, strconv.Itoa(m.ID))
		}
		remote = remote || len(m.CPUs) == 0
	}
	text := job.Count(len(n.Domains), "domain")
	if forbidden != nil {
		d.add(group, name, warn, text+", of which memory of "+strings.Join(forbidden, ", ")+" may not be used",
			"threads there have the memory of other domains: give the job processors and memory of the same ones (cpuset.mems, srun --mem-bind)")
	} else {
		d.add(group, name, ok, text, "")
	}
	if len(n.Domains) == 1 && !remote {
		return
	}
	for _, m := range n.Domains {
		parts := []string{"no usable processors"}
		if len(m.CPUs) > 0 {
			parts[0] = "processors " + m.CPUs.String()
		}
		if m.Memory > 0 {
			parts = append(parts, fmt.Sprintf("%s, %s free", size(m.Memory), size(m.Free)))
		}
		d.detail("domain %d: %s", m.ID, strings.Join(parts, ", "))
	}
}

// lowMemory is the limit below which there is a warning: a small job's segment and heaps.
const lowMemory = 256 << 20

func (d *diagnosis) memory(n *topo.Node) {
	const group = "memory"
	if n.Memory.Total == 0 {
		return // not known on this system
	}
	s, advice := ok, ""
	if n.Memory.Available > 0 && n.Memory.Available < lowMemory {
		s, advice = warn, "little is left: large cases will not fit"
	}
	d.add(group, "machine", s, fmt.Sprintf("%s available of %s", size(n.Memory.Available), size(n.Memory.Total)), advice)
	switch limit := n.MemoryLimit(); {
	case limit >= n.Memory.Total:
		d.add(group, "control groups", ok, "no limit", "")
	case limit < lowMemory:
		d.add(group, "control groups", warn, "at most "+size(limit), "all ranks together, shared memory included, must fit; the kernel kills a rank when they do not")
	default:
		d.add(group, "control groups", ok, "at most "+size(limit)+" for all ranks together", "")
	}
}

// job reports the facts from scheduler and launcher, and whether they are consistent.
func (d *diagnosis) job(j *topo.Job, n *topo.Node) {
	const group = "job"
	if j.Scheduler == "" && j.Launcher == "" {
		d.add(group, "job", none, "none: no variables of a scheduler or launcher are set", "")
	} else {
		d.add(group, "job", ok, j.String(), "")
	}
	if j.Launcher != "" && j.CPUsPerTask > len(n.CPUs) {
		d.add(group, "processors", warn, fmt.Sprintf("%d for each task, and this one may use %d (%v)", j.CPUsPerTask, len(n.CPUs), n.CPUs),
			fmt.Sprintf("srun --cpus-per-task=%d, which it does not take from sbatch; mpirun --bind-to none", j.CPUsPerTask))
	}
	for _, p := range j.Problems {
		d.add(group, p.Variable, warn, p.Error(), "ignored")
	}
}

// solvers reports the variables that set how many threads libraries start.
func (d *diagnosis) solvers(env func(string) (string, bool)) {
	const group = "environment"
	settings, _ := pool.QuietSolvers(env, func(string, string) error { return nil }) // nothing is set: no error
	var quiet []string
	loud := false
	for _, s := range settings {
		switch {
		case s.Set:
		case s.Differs():
			loud = true
			d.add(group, s.Name, warn, s.Value+": "+s.Readers+" may start threads in every thread of a rank",
				fmt.Sprintf("unset it, or set it to %s, for ranks that have threads already", s.Quiet))
		default:
			quiet = append(quiet, s.String())
		}
	}
	switch {
	case quiet != nil:
		d.add(group, "solver threads", ok, strings.Join(quiet, " "), "")
	case !loud:
		d.add(group, "solver threads", ok, "OMP_NUM_THREADS and the like are not set: pool.QuietSolvers sets them to 1", "")
	}
}

func size[T int64 | uint64](n T) string {
	unit := max(bits.Len64(uint64(n))-1, 10) / 10
	return fmt.Sprintf("%.4g %ciB", float64(n)/float64(uint64(1)<<(10*unit)), " KMGTPE"[unit])
}
