package local

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
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

func benchAllreduce(b *testing.B, n, count int) {
	b.ReportAllocs()
	b.SetBytes(int64(8 * count))
	each(New(n), func(c *Comm) {
		call := &backend.Call{Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: count,
			Send: make([]byte, 8*count), Recv: make([]byte, 8*count)}
		for range b.N {
			if err := c.collective(nil, call, int(call.Seq)+1); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkAllreduce(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		for _, count := range []int{1, 128, 512, 4096, 1 << 17} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d", n, 8*count), func(b *testing.B) { benchAllreduce(b, n, count) })
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 14, 1 << 16, 1 << 20, 1 << 22} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			each(New(2), func(c *Comm) {
				buf := make([]byte, n)
				for range b.N {
					if c.rank == 0 {
						must(b, c.Send(nil, buf, 1, 0, backend.Standard))
					} else {
						_, err := c.Recv(nil, buf, 0, 0)
						must(b, err)
					}
				}
			})
		})
	}
}
