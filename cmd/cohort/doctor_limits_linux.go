package main

import (
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// A limit is one of those that ulimit shows.
type limit struct {
	name, flag string
	which      int
	unit       string // bytes, seconds, "" for a number
	hard       bool   // programs raise the soft limit to the hard one by themselves
	low        uint64 // below it, a warning
	quiet      bool   // is not mentioned where there is no limit
	advice     string
}

// limits are those that hurt ranks. The Go runtime raises the soft limit of open
// files to the hard one in every rank.
var limits = []limit{
	{"open files", "-n", unix.RLIMIT_NOFILE, "", true, 1024, false, "ulimit -n 4096: a launcher takes 3 a rank"},
	{"processes", "-u", unix.RLIMIT_NPROC, "", false, 512, false, "ulimit -u: every rank is several threads, and those of all programs of this user count"},
	{"locked memory", "-l", unix.RLIMIT_MEMLOCK, "bytes", false, 0, false, "ulimit -l unlimited: MPI libraries lock what they send over InfiniBand and the like"},
	{"stack", "-s", unix.RLIMIT_STACK, "bytes", false, 1 << 20, false, "ulimit -s 8192: solvers in C and Fortran need it"},
	{"core files", "-c", unix.RLIMIT_CORE, "bytes", false, 0, false, ""},
	{"address space", "-v", unix.RLIMIT_AS, "bytes", false, unix.RLIM_INFINITY, true, "ulimit -v unlimited: Go reserves more than it uses, and what ranks share counts for each of them"},
	{"data", "-d", unix.RLIMIT_DATA, "bytes", false, unix.RLIM_INFINITY, true, "ulimit -d unlimited: a rank that needs more fails"},
	{"file size", "-f", unix.RLIMIT_FSIZE, "bytes", false, unix.RLIM_INFINITY, true, "ulimit -f unlimited: a rank that writes more is killed"},
	{"processor time", "-t", unix.RLIMIT_CPU, "seconds", false, unix.RLIM_INFINITY, true, "each rank is killed after it, all its threads counted together: use a batch job, or ulimit -t unlimited"},
}

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

// resources reports the limits that get returns.
func (d *diagnosis) resources(files fs.FS, get func(which int, l *unix.Rlimit) error) {
	const group = "limits"
	for _, l := range limits {
		var r unix.Rlimit
		if err := get(l.which, &r); err != nil {
			d.add(group, l.name, warn, err.Error(), "")
			continue
		}
		now := r.Cur
		if l.hard {
			now = r.Max
		}
		if l.quiet && now == unix.RLIM_INFINITY {
			continue
		}
		if l.which == unix.RLIMIT_MEMLOCK {
			if devices, _ := fs.ReadDir(files, "sys/class/infiniband"); len(devices) > 0 {
				l.low = unix.RLIM_INFINITY
			}
		}
		text := "unlimited"
		switch {
		case l.which == unix.RLIMIT_CORE && now == 0:
			text = "none are written"
		case now == unix.RLIM_INFINITY:
		case l.unit == "bytes":
			text = size(now)
		case l.unit == "seconds":
			text = strconv.FormatUint(now, 10) + " s"
		default:
			text = strconv.FormatUint(now, 10)
		}
		s, advice := ok, ""
		if now < l.low {
			s, advice = warn, l.advice
		}
		d.add(group, l.name, s, text+" (ulimit "+l.flag+")", advice)
	}
}
