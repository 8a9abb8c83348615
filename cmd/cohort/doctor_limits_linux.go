package main

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// limits are those of ulimit that hurt ranks when they are below low. The Go runtime raises the soft limit of open files
// to the hard one in every rank.
var limits = []struct {
	name   string
	which  int
	low    uint64
	text   func(uint64) string
	advice string
}{
	{"open files", unix.RLIMIT_NOFILE, 1024, count, "ulimit -n 4096: a launcher takes 5 a rank"},
	{"processes", unix.RLIMIT_NPROC, 512, count, "ulimit -u: every rank is several threads, and those of all programs of this user count"},
	{"locked memory", unix.RLIMIT_MEMLOCK, 0, size[uint64], "ulimit -l unlimited: MPI libraries lock what they send over InfiniBand and the like"},
	{"stack", unix.RLIMIT_STACK, 1 << 20, size[uint64], "ulimit -s 8192: solvers in C and Fortran need it"},
	{"address space", unix.RLIMIT_AS, unix.RLIM_INFINITY, size[uint64], "ulimit -v unlimited: Go reserves more than it uses, and what ranks share counts for each of them"},
	{"data", unix.RLIMIT_DATA, unix.RLIM_INFINITY, size[uint64], "ulimit -d unlimited: a rank that needs more fails"},
	{"file size", unix.RLIMIT_FSIZE, unix.RLIM_INFINITY, size[uint64], "ulimit -f unlimited: a rank that writes more is killed"},
	{"processor time", unix.RLIMIT_CPU, unix.RLIM_INFINITY, func(n uint64) string { return count(n) + " s" },
		"each rank is killed after it, all its threads counted together: use a batch job, or ulimit -t unlimited"},
}

func count(n uint64) string { return fmt.Sprint(n) }

// limits reports what this user may have open and running.
func (d *diagnosis) limits(files fs.FS, n *topo.Node) {
	d.resources(files, unix.Getrlimit)
	const group, name = "limits", "control groups"
	switch most := n.Limits.Procs; {
	case most == 0:
		d.add(group, name, ok, "no limit on processes and threads", "")
	case most < 512:
		d.add(group, name, warn, fmt.Sprintf("%d processes and threads (pids.max)", most), "each rank has several threads, and all of them count")
	default:
		d.add(group, name, ok, fmt.Sprintf("%d processes and threads (pids.max)", most), "")
	}
}

// resources reports which of the limits that get returns are too low.
func (d *diagnosis) resources(files fs.FS, get func(which int, l *unix.Rlimit) error) {
	const group = "limits"
	before := len(d.all)
	for _, l := range limits {
		var r unix.Rlimit
		if err := get(l.which, &r); err != nil {
			d.add(group, l.name, warn, err.Error(), "")
			continue
		}
		now := r.Cur
		if l.which == unix.RLIMIT_NOFILE {
			now = r.Max
		}
		if devices, _ := fs.ReadDir(files, "sys/class/infiniband"); len(devices) > 0 && l.which == unix.RLIMIT_MEMLOCK {
			l.low = unix.RLIM_INFINITY
		}
		if now < l.low {
			d.add(group, l.name, warn, l.text(now), l.advice)
		}
	}
	if len(d.all) == before {
		d.add(group, "ulimit", ok, "no limit is too low for ranks", "")
	}
}
