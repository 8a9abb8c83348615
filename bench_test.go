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

func (discard) Rank() int { return 0 }
func (discard) Size() int { return 2 }

func (discard) Send(*backend.Bound, []byte, int, int, backend.Mode) error { return nil }

func (discard) Recv(_ *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	return backend.Status{Source: source, Tag: tag, Bytes: len(buf)}, nil
}

func (discard) Collective(*backend.Bound, *backend.Call) (bool, error) { return true, nil }

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
	run("Recv", func() error { _, err := Recv(c, x, 1, 0); return err })
	run("SPI", func() error { return c.core.bc.Send(c.bound, view.Bytes(x), 1, 0, backend.Standard) })
	run("Allreduce", func() error { return Allreduce(c, x, y, Sum) })
	run("AllreduceOne", func() error { _, err := AllreduceOne(c, 1.5, Sum); return err })
	run("Barrier", func() error { return c.Barrier() })
	run("typeFor", func() error { _, err := typeFor[float64](); return err })
	run("opFor", func() error { _, err := opFor[float64](Sum); return err })
}
