//go:build cgo && linux && !cohort_nompi

package main

import (
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

func TestKernelsRunOverMPI(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for _, args := range small {
			check(t, l.Command(2, append([]string{program(t, "prk")}, args...)...), args[0], 2, "mpi")
		}
	})
}
