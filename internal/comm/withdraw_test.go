package comm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// withdrawing is a backend on which every send waits for a receiver that does not answer, even to a cancel. If matched is set,
// the message has matched, and its data do not come.
type withdrawing struct {
	backend.Comm
	waits   *int // for answers
	matched *bool
}

func (w withdrawing) Isend(*backend.Request, []byte, int, int, backend.Mode) {}

func (w withdrawing) Cancel(q *backend.Request) bool { return w.waits == nil && w.Comm.Cancel(q) }

func (w withdrawing) Await(b *backend.Bound, p backend.Pending) error {
	if w.waits != nil && b != nil && b.Timeout == sched.Grace {
		*w.waits++
	}
	return w.Comm.Await(b, p)
}

func (w withdrawing) GiveUp(q *backend.Request, err error) bool {
	if *w.matched {
		return false
	}
	q.Complete(backend.Status{}, err)
	return true
}

// Many sends are over, and nobody answers. They wait for the answers once, together. A message that has matched has its own
// time.
func TestSendsThatAreOverWaitForAnswersOnce(t *testing.T) {
	const n = 20
	all := func(_ *Comm, reqs []*Request) (errs []error) {
		s := NewSet()
		defer s.Put()
		for _, q := range reqs {
			s.Add(q)
		}
		err := s.WaitAll()
		for range reqs {
			errs = append(errs, err)
		}
		return errs
	}
	each := func(_ *Comm, reqs []*Request) (errs []error) {
		for _, q := range reqs {
			_, err := q.Wait()
			errs = append(errs, err)
		}
		return errs
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	for _, x := range []struct {
		why     string
		limit   time.Duration
		ctx     context.Context
		wait    func(*Comm, []*Request) []error
		matched bool
		most    int // waits
		want    error
	}{
		{"WaitAll, one deadline", 0, late, all, false, 1, backend.ErrTimeout},
		{"Wait, one deadline", 0, late, each, false, 1, backend.ErrTimeout},
		{"WaitAll, canceled", 0, canceled, all, false, 1, backend.ErrCanceled},
		{"Wait, canceled", 0, canceled, each, false, 1, backend.ErrCanceled},
		{"Wait, a limit for each", time.Millisecond, t.Context(), each, false, 2, backend.ErrTimeout}, // the second may end later than the first looks
		{"Wait, matched", 0, late, each, true, n, backend.ErrTimeout},
	} {
		waits := 0
		w := NewWorld(context.Background(), withdrawing{local.New(1)[0], &waits, &x.matched}, Options{Timeout: x.limit})
		c := w.WithContext(x.ctx)
		var reqs []*Request
		for range n {
			q, err := c.Isend("isend", datatype.Number(backend.Int64), make([]byte, 8), nil, 0, 1, backend.Synchronous, nil)
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, q)
		}
		for i, err := range x.wait(c, reqs) {
			if !errors.Is(err, x.want) {
				t.Errorf("%s: send %d ends with %v, want %v", x.why, i, err, x.want)
			}
		}
		if waits < 1 || waits > x.most || x.matched && waits < x.most {
			t.Errorf("%s: %d waits for %d answers, want %d at most", x.why, waits, n, x.most)
		}
		_ = w.Close()
	}
}
