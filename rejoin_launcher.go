package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// launcher is the protocol of a rank whose launcher decides who is in each world. Package generation describes it. Init uses
// it too, so that a replacement enters the world that the others rejoin.
type launcher struct {
	settings settings // of the first world
	client   *generation.Client
	open     func(context.Context, settings) (backend.Comm, error)
}

func (l *launcher) abandon(int) {} // Enter has ended

// next joins the world in which the launcher gives this rank a place. old is nil for a process that is in no world.
func (l *launcher) next(ctx context.Context, old *comm.Comm) (backend.Comm, settings, error) {
	var bc backend.Comm
	var s settings
	lost := func() []int { return nil }
	if old != nil {
		lost = old.Dead
	}
	err := l.client.Enter(ctx, lost, func(ctx context.Context, place generation.Place) (*generation.Attempt, error) {
		s = l.settings
		s.first.job = s.Job
		s.Rank, s.Size, s.Job, s.worlds.Generation = place.Rank, place.Size, place.Job, place.Generation
		s.share = func(ctx context.Context, text string) (string, error) { return l.client.Share(ctx, place.Rank, text) }
		made, err := l.open(ctx, s)
		if err != nil {
			return nil, err
		}
		bc = made
		return &generation.Attempt{Leave: func() { made.Close() }, Lost: func() []int { return comm.Failed(made) }}, nil
	})
	s.worlds.Resized = l.client.Resized()
	return bc, s, err
}
