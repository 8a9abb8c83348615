//go:build cgo && linux && !cohort_nompi

package main

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// With -short each kernel and setting runs with one of two libraries, in turn.
func TestKernelsRunOverMPI(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for i, args := range small {
			if !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			check(t, l.Command(2, append([]string{program(t, "prk")}, args...)...), args[0], 2, "mpi")
		}
	})
}
