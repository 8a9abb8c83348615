package cohort

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
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
	host, tries, full := new(alone), 0, errors.New("no memory")
	m := generation.New(generation.Config{Now: time.Now, Job: "j", Size: 1, Min: 1, Max: 1, Host: host})
	host.client = generation.NewClient(func(r generation.Request) error { m.Handle(0, r); return nil })
	u := &succession{ctx: t.Context(), launch: host.client, open: func(context.Context, settings) (backend.Comm, error) {
		tries++
		return nil, full
	}}
	if _, err := u.enter(t.Context(), nil); !errors.Is(err, full) || tries != 3 {
		t.Errorf("%d tries, want %d, and %v", tries, 3, err)
	}
}
