package comm

import (
	"context"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// stuck is an operation that does not end.
type stuck struct{ starts int }

func (s *stuck) Ready() bool         { return false }
func (s *stuck) Start()              { s.starts++ }
func (s *stuck) Err() error          { return nil }
func (s *stuck) End(why error) error { return why }
func (s *stuck) Release()            {}

// A persistent operation was given up while it was under way. It is not started again beside that start.
func TestGivenUpPersistentIsNotRestarted(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		var o stuck
		p := w.WithContext(ctx).persistent(&Persistent{op: &o}, "test", nil, Undefined, Undefined)
		err := p.Start()
		cancel()
		if _, err := p.Wait(); !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("Wait: %v, want ErrCanceled", err)
		}
		if err := p.Start(); !errors.Is(err, backend.ErrRequest) || o.starts != 1 {
			t.Errorf("Start again: %v, %d starts; want ErrRequest and one", err, o.starts)
		}
		return err
	})
}
