package cohort

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// discard is a backend that does nothing: what is left is the time above the
// SPI.
type discard struct{ backend.Comm }

func (discard) OnWait(_, _ func()) {} // nothing waits

func (discard) Rank() int { return 0 }
func (discard) Size() int { return 2 }

func (discard) Caps() backend.Caps { return backend.Caps{Backend: "discard", MaxTag: MaxTag} }

func (discard) Send(*backend.Bound, []byte, int, int, backend.Mode) error { return nil }

func (discard) Recv(_ *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	return backend.Status{Source: source, Tag: tag, Bytes: len(buf)}, nil
}

func (discard) Isend(r *backend.Request, _ []byte, _, _ int, _ backend.Mode) {
	r.FinishAtOnce(backend.Status{}, nil)
}

func (discard) Irecv(r *backend.Request, buf []byte, source, tag int) {
	r.FinishAtOnce(backend.Status{Source: source, Tag: tag, Bytes: len(buf)}, nil)
}

func (discard) Await(*backend.Bound, backend.Pending) error { return nil }

func (discard) Collective(*backend.Bound, *backend.Call) (backend.Plan, error) {
	return backend.PlanDone, nil
}

func (discard) StartCollective(*backend.Call) (backend.Operation, error)           { return nil, nil }
func (discard) Exchange(_, _ *backend.Request, _, _ []byte, source, dest, tag int) {}
func (discard) Flush()                                                             {}

func discarding() *Comm { return newWorld(context.Background(), discard{}, settings{}) }

func BenchmarkOverhead(b *testing.B) {
	c := discarding()
	x, y := make([]float64, 8), make([]float64, 8)
	type particle struct {
		Pos  [3]float64
		Kind int32
	}
	ps := make([]particle, 8)
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("Send", func() error { return Send(c, x, 1, 0) })
	run("SendStruct", func() error { return Send(c, ps, 1, 0) })
	run("Recv", func() error { return second(Recv(c, x, 1, 0)) })
	run("Isend", func() error {
		q, err := Isend(c, x, 1, 0)
		if err != nil {
			return err
		}
		return second(q.Wait())
	})
	run("Sendrecv", func() error { return second(Sendrecv(c, x, 1, 0, y, 1, 0)) })
	run("SPI", func() error { return c.base().Backend().Send(nil, view.Bytes(x), 1, 0, backend.Standard) })
	run("Allreduce", func() error { return Allreduce(c, x, y, Sum) })
	run("AllreduceOne", func() error { return second(AllreduceOne(c, 1.5, Sum)) })
	run("Barrier", func() error { return c.Barrier() })
	run("typeFor", func() error { return second(typeFor[float64]()) })
	run("opFor", func() error { return second(opFor[float64](Sum)) })
}
