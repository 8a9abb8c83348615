//go:build !linux

package main

import (
	"runtime"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

func kernelName() string { return runtime.GOOS }

func onlineCPUs(m *spawn.Machine) int { return len(m.CPUs) }

func (d *diagnosis) memory() {}

func (d *diagnosis) kernel() {
	d.add("kernel", "shared memory", none, "the shm backend is for Linux", "cohort.Run has ranks in one process on every system")
}

func (d *diagnosis) limits() {}
