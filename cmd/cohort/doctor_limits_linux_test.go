package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

func TestDoctorReportsLimits(t *testing.T) {
	rdma := fstest.MapFS{"sys/class/infiniband/mlx5_0/x": {}}
	const no = unix.RLIM_INFINITY
	for _, c := range []struct {
		name  string
		files fstest.MapFS
		set   map[int]unix.Rlimit // the others are without limit
		want  string
	}{
		{"no limits", rdma, nil, `
  ok    ulimit             no limit is too low for ranks`},
		{"what most have", fstest.MapFS{}, map[int]unix.Rlimit{
			unix.RLIMIT_NOFILE: {Cur: 256, Max: 524288}, unix.RLIMIT_NPROC: {Cur: 4096, Max: no}, unix.RLIMIT_MEMLOCK: {Cur: 8 << 20, Max: 8 << 20},
			unix.RLIMIT_STACK: {Cur: 8 << 20, Max: no}, unix.RLIMIT_CORE: {Cur: 0, Max: no},
		}, `
  ok    ulimit             no limit is too low for ranks`},
		{"a login node", rdma, map[int]unix.Rlimit{
			unix.RLIMIT_NOFILE: {Cur: 256, Max: 512}, unix.RLIMIT_NPROC: {Cur: 100, Max: no}, unix.RLIMIT_MEMLOCK: {Cur: 64 << 10, Max: no},
			unix.RLIMIT_STACK: {Cur: 64 << 10, Max: no}, unix.RLIMIT_AS: {Cur: 16 << 30, Max: no}, unix.RLIMIT_CPU: {Cur: 600, Max: no},
		}, `
  warn  open files         512
                           → ulimit -n 4096: a launcher takes 5 a rank
  warn  processes          100
                           → ulimit -u: every rank is several threads, and those of all programs of this user count
  warn  locked memory      64 KiB
                           → ulimit -l unlimited: MPI libraries lock what they send over InfiniBand and the like
  warn  stack              64 KiB
                           → ulimit -s 8192: solvers in C and Fortran need it
  warn  address space      16 GiB
                           → ulimit -v unlimited: Go reserves more than it uses, and what ranks share counts for each of them
  warn  processor time     600 s
                           → each rank is killed after it, all its threads counted together: use a batch job, or ulimit -t unlimited`},
	} {
		var d diagnosis
		d.resources(c.files, func(which int, l *unix.Rlimit) error {
			*l = unix.Rlimit{Cur: no, Max: no}
			if r, there := c.set[which]; there {
				*l = r
			}
			return nil
		})
		if got := d.text(); got != "limits"+c.want {
			t.Errorf("%s: got\n%s\n\nwant\nlimits%s", c.name, got, c.want)
		}
	}
	for most, want := range map[int]string{
		0:    "ok    control groups     no limit on processes and threads",
		100:  "warn  control groups     100 processes and threads (pids.max)",
		4096: "ok    control groups     4096 processes and threads (pids.max)",
	} {
		var d diagnosis
		d.limits(fstest.MapFS{}, &topo.Node{Limits: topo.Limits{Procs: most}})
		if got := d.text(); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
