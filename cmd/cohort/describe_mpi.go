//go:build cgo && linux && !cohort_nompi

package main

import "github.com/cohort-hpc/cohort/internal/libmpi"

const mpiBuilt = true

// describe loads a library into this process and returns what it supports.
func describe(path string) (r report, err error) {
	d, err := libmpi.Describe(path)
	if err != nil {
		return r, err
	}
	return report{
		Standard: d.Version, Says: d.Library, ThreadLevel: d.ThreadLevel, LargeCounts: d.LargeCounts,
		Persistent: d.Persistent, CUDA: d.CUDA,
	}, nil
}
