//go:build cohort_notcp

package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
)

func init() { missing["tcp"] = "this program was built with the tag cohort_notcp" }

func openTCP(context.Context, settings) (backend.Comm, error) {
	return nil, absent("tcp")
}
