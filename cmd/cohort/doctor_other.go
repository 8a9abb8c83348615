//go:build !linux

package main

import (
	"io/fs"
	"runtime"

	"github.com/cohort-hpc/cohort/topo"
)

func kernelName() string { return runtime.GOOS }

func (d *diagnosis) kernel() {}

func (d *diagnosis) limits(fs.FS, *topo.Node) {}
