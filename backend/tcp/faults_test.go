//go:build linux || darwin

package tcp_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) { cohorttest.Faults(t, launcher{}, 150) }
