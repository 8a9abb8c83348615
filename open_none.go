package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
)

// missing has the backends that this program does not have.
var missing = map[string]struct{}{"tcp": {}}

func openTCP(context.Context, settings) (backend.Comm, error) {
	return nil, absent("tcp", "this version of cohort does not have it yet")
}
