package coll

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{4, 64, 1000} {
		for _, c := range []*backend.Call{
			{Coll: backend.Barrier},
			{Coll: backend.Bcast, Count: 8},
			{Coll: backend.Allreduce, Count: 1},
			{Coll: backend.Allreduce, Count: 1 << 20},
			{Coll: backend.Alltoall, Count: 1},
			{Coll: backend.Alltoall, Count: 1 << 16},
		} {
			c.Type, c.Op = word, wordOp(true, sum)
			s, err := Build(c, 1, n, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", s.Algorithm, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Build(c, 1, n, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkEval adds float64 vectors of n ranks; the same sums without an order
// to keep, one rank added to the result after the other, are the measure.
func BenchmarkEval(b *testing.B) {
	op := wordOp(true, func(x, y uint64) uint64 {
		return math.Float64bits(math.Float64frombits(x) + math.Float64frombits(y))
	})
	for _, n := range []int{2, 3, 4, 8, 13} {
		for _, count := range []int{1, 1 << 10, 1 << 17} {
			in := make(vectors, n)
			for r := range in {
				in[r] = make([]byte, 8*count)
			}
			dst := make([]byte, 8*count)
			o := NewOrder(n, count, 8, true)
			scratch := make([]byte, BlockBytes*o.ScratchBlocks())
			var l Loader = in
			b.Run(fmt.Sprintf("order/%d/%d", n, 8*count), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(8 * count * n))
				for b.Loop() {
					if err := o.Eval(op, 0, count, dst, l, scratch); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprintf("plain/%d/%d", n, 8*count), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(8 * count * n))
				for b.Loop() {
					for block := range slices.Chunk(dst, BlockBytes) {
						op.Apply(block, in[0][:len(block)], in[1][:len(block)])
						for _, v := range in[2:] {
							op.Apply(block, block, v[:len(block)])
						}
					}
				}
			})
		}
	}
}
