//go:build cohort_noshm

package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
)

func init() { missing["shm"] = "this program was built with the tag cohort_noshm" }

func openShm(context.Context, settings) (backend.Comm, error) {
	return nil, absent("shm")
}
