package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// launcher is the protocol of a rank whose launcher decides who is in each world. Package generation describes it. Init uses
// it too, so that a replacement enters the world that the others rejoin.
type launcher struct{ client *generation.Client }

func (l *launcher) abandon(int) {} // Enter has ended

// join joins the world in which the launcher gives this rank a place.
func (l *launcher) join(ctx context.Context, old *comm.Comm, r *rejoiner) (backend.Comm, settings, error) {
	var bc backend.Comm
	var s settings
	lost := func() []int { return nil }
	if old != nil {
		lost = old.Dead
	}
	err := l.client.Enter(ctx, lost, func(ctx context.Context, place generation.Place) (*generation.Attempt, error) {
		s = r.first
		s.first.job = s.Job
		s.Rank, s.Size, s.Job, s.worlds.Generation = place.Rank, place.Size, place.Job, place.Generation
		s.share = func(ctx context.Context, text string) (string, error) { return l.client.Share(ctx, place.Rank, text) }
		made, err := r.open(ctx, s)
		if err != nil {
			return nil, err
		}
		bc = made
		return &generation.Attempt{Leave: func() { made.Close() }, Lost: func() []int { return comm.Failed(made) }}, nil
	})
	s.worlds.Resized = l.client.Resized()
	return bc, s, err
}
