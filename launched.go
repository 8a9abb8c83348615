package cohort

import (
	"cmp"
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/pmi"
)

// meets reports whether the launcher lets the ranks find each other, without an MPI library.
func (s *settings) meets(env environment) bool { return pmi.Find(pmi.Environment(env)) != nil }

// launched takes the place of this process in its job from the launcher, where the settings do not say it. leave is
// called when the ranks have joined, or cannot.
func (s *settings) launched(ctx context.Context, name string, env environment) (leave func(), err error) {
	if s.sized || name != "tcp" && name != "shm" {
		return func() {}, nil
	}
	means := pmi.Find(pmi.Environment(env))
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.JoinTimeout, backend.JoinLimit))
	defer cancel()
	space, err := means.Open(ctx)
	if err != nil {
		return nil, initFault("%v", err)
	}
	s.Rank, s.Size, s.sized, s.Job = space.Rank(), space.Size(), true, cmp.Or(s.Job, space.Job())
	open := true
	leave = func() {
		if open {
			_ = space.Close() // the ranks need it no more
		}
		open = false
	}
	s.share = func(ctx context.Context, text string) (string, error) {
		defer leave()
		text, err := pmi.Share(ctx, space, text)
		if err != nil {
			err = initFault("%v: %v", means, err)
		}
		return text, err
	}
	return leave, nil
}
