package cohort

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// alone is the launcher's side of one process.
type alone struct{ client *generation.Client }

func (a *alone) Start(int, int)                   {}
func (a *alone) Kill(int)                         {}
func (a *alone) Fail(string)                      {}
func (a *alone) Tell(_ int, m generation.Message) { a.client.Got(m) }

// A rank that can never join gives up, and says why.
func TestEnterGivesUp(t *testing.T) {
	const deaths = 5 // of other ranks, which are no failures of this one
	host, tries, full := new(alone), 0, errors.New("no memory")
	m := generation.New(generation.Config{Now: time.Now, Job: "j", Size: 1, Min: 1, Max: 1, Host: host})
	host.client = generation.NewClient(func(r generation.Request) error { m.Handle(0, r); return nil })
	r := &rejoiner{protocol: &launcher{host.client}, ctx: t.Context(), open: func(context.Context, settings) (backend.Comm, error) {
		if tries++; tries <= deaths {
			return nil, ErrPeerLost
		}
		return nil, full
	}}
	if _, err := r.next(t.Context(), nil); !errors.Is(err, full) || tries != deaths+generation.MostFailures {
		t.Errorf("%d tries, want %d, and %v", tries, deaths+generation.MostFailures, err)
	}
}

// The survivors of a loss use a world together: if one of them has no time left to join, none does, and all try again.
func TestSurvivorsUseWorldTogether(t *testing.T) {
	const ranks = 3
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	made := map[string][]backend.Comm{"j": local.New(ranks)}
	var all sync.WaitGroup
	for rank := range ranks {
		short, end := context.WithCancel(ctx)
		defer end()
		open := func(ctx context.Context, s settings) (backend.Comm, error) {
			mu.Lock()
			defer mu.Unlock()
			if made[s.Job] == nil {
				made[s.Job] = local.New(s.Size)
			}
			if rank == 2 {
				end()
			}
			if ctx.Err() != nil {
				return nil, fault(ErrCanceled, "no time is left")
			}
			return made[s.Job][s.Rank], nil
		}
		first := settings{Config: Config{Job: "j"}}
		r := &rejoiner{protocol: new(survivors), ctx: ctx, first: first, open: open, entered: func(*Comm) {}}
		world := r.enter(made["j"][rank], first)
		all.Go(func() {
			if rank == 2 {
				if _, err := Rejoin(short, world); !errors.Is(err, ErrCanceled) {
					t.Errorf("rank 2: %v", err)
				}
			}
			next, err := Rejoin(ctx, world)
			if err != nil || next.Size() != ranks || next.Generation() != 1 {
				t.Errorf("rank %d: a world of %d, %v", rank, next.Size(), err)
				return
			}
			if err := errors.Join(next.Barrier(), next.Close()); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	all.Wait()
}
