package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
)

// pods is the protocol of the pods of a Kubernetes Job, which starts lost pods again. Survivors and replacements meet at rank 0,
// as at the start: package meet lets each rank wait for the others, and backend tcp counts the worlds.
type pods struct{}

func (pods) abandon(int) {} // open has ended

func (pods) join(ctx context.Context, old *comm.Comm, r *rejoiner) (backend.Comm, settings, error) {
	s := r.first
	s.podWorlds = new(old.Worlds().Generation + 1)
	bc, err := r.open(ctx, s)
	s.worlds.Generation = *s.podWorlds
	return bc, s, err
}
