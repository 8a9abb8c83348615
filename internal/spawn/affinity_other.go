//go:build !linux

package spawn

import (
	"errors"

	"github.com/cohort-hpc/cohort/topo"
)

func setAffinity(topo.CPUSet) error {
	return errors.New("processes cannot be bound to processors on this system")
}
