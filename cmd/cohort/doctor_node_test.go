package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// A machine is files in the kernel's formats.
type machine fstest.MapFS

func (m machine) write(name, format string, args ...any) {
	m[name] = &fstest.MapFile{Data: []byte(fmt.Sprintf(format, args...) + "\n")}
}

func (m machine) read(t *testing.T, mask string) *topo.Node {
	t.Helper()
	set, err := topo.ParseCPUSet(mask)
	if err != nil {
		t.Fatal(err)
	}
	n, err := topo.Read(fstest.MapFS(m), set)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// server has two sockets of eight cores with two hardware threads, a domain each.
func server(*testing.T) machine {
	m := machine{}
	m.write("sys/devices/system/cpu/online", "0-31")
	for c := range 32 {
		folder := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", c)
		m.write(folder+"core_cpus_list", "%d,%d", c%16, c%16+16)
		m.write(folder+"physical_package_id", "%d", c%16/8)
	}
	for d := range 2 {
		folder := fmt.Sprintf("sys/devices/system/node/node%d/", d)
		m.write(folder+"cpulist", "%d-%d,%d-%d", 8*d, 8*d+7, 8*d+16, 8*d+23)
		m.write(folder+"meminfo", "Node %d MemTotal: %d kB\nNode %[1]d MemFree: %[3]d kB", d, 96<<20, (90-10*d)<<20)
	}
	m.write("sys/devices/system/node/online", "0-1")
	m.write("proc/meminfo", "MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB", 192<<20, 170<<20, 180<<20)
	m.write("proc/self/status", "Mems_allowed_list:\t0-1")
	return m
}

// container is a part of the server: four processors, time for 2.5, and little memory.
func container(t *testing.T) machine {
	m := server(t)
	m.write("proc/self/cgroup", "0::/")
	m.write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw")
	m.write("sys/fs/cgroup/cpu.max", "250000 100000")
	m.write("sys/fs/cgroup/memory.max", "%d", 128<<20)
	m.write("sys/fs/cgroup/cpuset.cpus.effective", "4-7")
	m.write("proc/self/status", "Mems_allowed_list:\t1")
	return m
}

// text is what is printed of findings, without the last line.
func (d *diagnosis) text() string {
	var b strings.Builder
	d.print(&b)
	before, _, _ := strings.Cut(b.String(), "\n\nready")
	return strings.TrimPrefix(before, "\n")
}

func TestDoctorDescribesNode(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine func(*testing.T) machine
		mask    string
		want    string
	}{
		{"a server", server, "0-31", `processors
  ok    usable             32 processors (0-31), 16 cores in 2 packages
  ok    affinity           all processors; ranks can be bound to them
  ok    NUMA               2 domains
                           domain 0: processors 0-7,16-23, 96 GiB, 90 GiB free
                           domain 1: processors 8-15,24-31, 96 GiB, 80 GiB free
  ok    control groups     no limit on processor time

memory
  ok    machine            180 GiB available of 192 GiB
  ok    control groups     no limit`},
		{"one processor of it", server, "9", `processors
  ok    usable             1 of 32 processors (9), 1 core in 1 package
  warn  affinity           the mask of this process leaves 1 of 32 (9)
                           → ranks take turns on it; what has bound this process can leave it more: srun --cpus-per-task, mpirun --bind-to none, taskset
  ok    NUMA               2 domains
                           domain 0: no usable processors, 96 GiB, 90 GiB free
                           domain 1: processors 9, 96 GiB, 80 GiB free
  ok    control groups     no limit on processor time

memory
  ok    machine            180 GiB available of 192 GiB
  ok    control groups     no limit`},
		{"a small container", func(t *testing.T) machine {
			m := container(t)
			m.write("sys/fs/cgroup/cpuset.cpus.effective", "12")
			m.write("sys/fs/cgroup/cpu.max", "max 100000")
			m.write("sys/fs/cgroup/memory.max", "%d", int64(100)<<30)
			return m
		}, "0-31", `processors
  warn  usable             1 of 32 processors (12), 1 core in 1 package
                           → ranks take turns on one processor: they run, and none is faster than one rank
  ok    affinity           control groups leave 1 of 32 (12); ranks can be bound to these
  ok    NUMA               1 domain
  ok    control groups     no limit on processor time

memory
  ok    machine            180 GiB available of 192 GiB
  ok    control groups     at most 96 GiB for all ranks together`},
		{"a container", container, "4-7", `processors
  ok    usable             4 of 32 processors (4-7), 4 cores in 1 package
  ok    affinity           control groups leave 4 of 32 (4-7); ranks can be bound to these
  warn  NUMA               2 domains, of which memory of 0 may not be used
                           domain 0: processors 4-7, 96 GiB, 90 GiB free
                           domain 1: no usable processors, 96 GiB, 80 GiB free
                           → threads there have the memory of other domains: give the job processors and memory of the same ones (cpuset.mems, srun --mem-bind)
  warn  control groups     2.5 processors' worth of time
                           → more than 2 ranks are held up when the time is used up: start at most that many

memory
  ok    machine            180 GiB available of 192 GiB
  warn  control groups     at most 128 MiB
                           → all ranks together, shared memory included, must fit; the kernel kills a rank when they do not`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := c.machine(t).read(t, c.mask)
			var d diagnosis
			d.processors(n)
			d.memory(n)
			if got := d.text(); got != c.want {
				t.Errorf("got\n%s\n\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestDoctorReportsPinning(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine func(*testing.T) machine
		mask    string
		p       pinning
		env     map[string]string
		want    string
	}{
		{"as cohort run, more ranks than shown", server, "0-4,16-20", pinning{}, nil, `
  ok    ranks              10 ranks, --bind core; 1 thread in each, --pin none
                           rank 0: 0 (domain 0)
                           rank 1: 16 (domain 0)
                           rank 2: 1 (domain 0)
                           rank 3: 17 (domain 0)
                           rank 4: 2 (domain 0)
                           rank 5: 18 (domain 0)
                           rank 6: 3 (domain 0)
                           rank 7: 19 (domain 0)
                           … and 2 more
                           → 10 threads on 5 cores: some share a core, as its hardware threads`},
		{"a rank for each socket", server, "0-31", pinning{ranks: 2, threads: 4, pin: pool.Cores}, nil, `
  ok    ranks              2 ranks, --bind core; 4 threads in each, --pin cores
                           rank 0: 0,16 | 1,17 | 2,18 | 3,19 (domain 0)
                           rank 1: 8,24 | 9,25 | 10,26 | 11,27 (domain 1)`},
		{"from variables", server, "0-31", pinning{ranks: 2, bind: spawn.BindNUMA}, map[string]string{"COHORT_THREADS": "3", "COHORT_PIN": "numa"}, `
  ok    ranks              2 ranks, --bind numa; 3 threads in each, --pin numa
                           rank 0: 0-7,16-23 (domain 0)
                           rank 1: 8-15,24-31 (domain 1)`},
		{"one rank on two domains", server, "0-31", pinning{ranks: 1}, map[string]string{"SLURM_CPUS_PER_TASK": "16"}, `
  ok    ranks              1 rank, --bind core; 16 threads in each, --pin none
                           rank 0: 0-31 (domain 0-1)`},
		{"threads alone", server, "0-31", pinning{ranks: 2, threads: 2, bind: spawn.BindNone, pin: pool.Cores}, nil, `
  ok    ranks              2 ranks, --bind none; 2 threads in each, --pin cores
                           rank 0: 0,16 | 1,17 (domain 0)
                           rank 1: 8,24 | 9,25 (domain 1)`},
		{"more than there is time for", container, "4-7", pinning{ranks: 3}, nil, `
  warn  ranks              3 ranks, --bind none; 1 thread in each, --pin none
                           → control groups allow the time of 2.5 processors: threads are held up when it is used`},
		{"nonsense", container, "4-7", pinning{}, map[string]string{"COHORT_PIN": "socket"}, `
  warn  threads            ERROR
                           → programs that use package pool stop with this error`},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.machine(t)
			env := func(name string) (string, bool) {
				v, ok := c.env[name]
				return v, ok
			}
			_, err := pool.Config{Env: env}.Resolved()
			var d diagnosis
			d.pinning(fstest.MapFS(m), m.read(t, c.mask), c.p, env)
			want := "pinning" + strings.ReplaceAll(c.want, "ERROR", fmt.Sprint(err))
			if got := d.text(); got != want {
				t.Errorf("got\n%s\n\nwant\n%s", got, want)
			}
		})
	}
}

func TestDoctorReportsJobOfScheduler(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"none", nil, `
  none  job                none: no variables of a scheduler or launcher are set`},
		{"a task of srun", map[string]string{
			"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[01-03]", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
			"SLURM_STEP_NUM_TASKS": "11", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_CPUS_PER_TASK": "4",
		}, `
  ok    job                Slurm job 4711.0, 3 nodes; srun: rank 5 of 11, 1 of 4 on its node
  warn  processors         4 for each task, and this one may use 2 (0-1)
                           → srun --cpus-per-task=4, which it does not take from sbatch; mpirun --bind-to none`},
		{"a launcher alone", map[string]string{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, `
  ok    job                Open MPI's mpirun: rank 1 of 2`},
		{"what makes no sense", map[string]string{"SLURM_JOB_ID": "1", "SLURM_NODEID": "first"}, `
  ok    job                Slurm job 1
  warn  SLURM_NODEID       SLURM_NODEID="first": not a number from 0 to 2147483647
                           → ignored`},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := topo.ReadJob(func(name string) (string, bool) {
				v, ok := c.env[name]
				return v, ok
			}, nil)
			var d diagnosis
			d.job(j, server(t).read(t, "0-1"))
			if got := d.text(); got != "job"+c.want {
				t.Errorf("got\n%s\n\nwant\njob%s", got, c.want)
			}
		})
	}
}

func TestDoctorReportsThreadsOfSolvers(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, `
  ok    solver threads     OMP_NUM_THREADS and the like are not set: pool.QuietSolvers sets them to 1`},
		{map[string]string{"OMP_NUM_THREADS": "1", "HIGHS_PARALLEL": "off"}, `
  ok    solver threads     OMP_NUM_THREADS=1 HIGHS_PARALLEL=off`},
		{map[string]string{"OPENBLAS_NUM_THREADS": "8"}, `
  warn  OPENBLAS_NUM_THREADS 8: OpenBLAS may start threads in every thread of a rank
                           → unset it, or set it to 1, for ranks that have threads already`},
	} {
		var d diagnosis
		d.solvers(func(name string) (string, bool) {
			v, ok := c.env[name]
			return v, ok
		})
		if got := d.text(); got != "environment"+c.want {
			t.Errorf("got\n%s\n\nwant\nenvironment%s", got, c.want)
		}
	}
}

func TestSizesArePrintedWithUnits(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 KiB", 512: "0.5 KiB", 1 << 20: "1 MiB", 10 << 20: "10 MiB", 1 << 30: "1 GiB", 3 << 29: "1.5 GiB", 96 << 30: "96 GiB", 1<<40 - 1<<30: "1023 GiB", 20 << 40: "20 TiB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
