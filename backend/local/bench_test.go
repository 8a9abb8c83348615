package local

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func BenchmarkPing(b *testing.B) {
	b.ReportAllocs()
	comms := New(2)
	each(comms, func(c *Comm) {
		buf := make([]byte, 8)
		for range b.N {
			if c.Rank() == 0 {
				c.Send(nil, buf, 1, 0, backend.Standard)
				c.Recv(nil, buf, 1, 0)
			} else {
				c.Recv(nil, buf, 0, 0)
				c.Send(nil, buf, 0, 0, backend.Standard)
			}
		}
	})
}

func benchBarrier(b *testing.B, n int) {
	b.ReportAllocs()
	comms := New(n)
	each(comms, func(c *Comm) {
		call := &backend.Call{Coll: backend.Barrier, Root: -1}
		for range b.N {
			if _, err := c.Collective(nil, call); err != nil {
				b.Error(err)
			}
			call.Seq++
		}
	})
}
func BenchmarkBarrier2(b *testing.B)    { benchBarrier(b, 2) }
func BenchmarkBarrier4(b *testing.B)    { benchBarrier(b, 4) }
func BenchmarkBarrier8(b *testing.B)    { benchBarrier(b, 8) }
func BenchmarkBarrier1000(b *testing.B) { benchBarrier(b, 1000) }
