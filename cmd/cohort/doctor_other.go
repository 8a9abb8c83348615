//go:build !linux

package main

import (
	"io/fs"
	"runtime"

	"github.com/cohort-hpc/cohort/topo"
)

func kernelName() string { return runtime.GOOS }

func (d *diagnosis) kernel() {
	d.add("kernel", "shared memory", none, "the shm backend needs Linux", "cohort.Run runs ranks in one process on every system")
}

func (d *diagnosis) limits(fs.FS, *topo.Node) {}
