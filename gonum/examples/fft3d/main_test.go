package main

import (
	"context"
	"math"
	"math/cmplx"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// definition returns the transform of the field by the definition, one dimension after the other.
func definition() []complex128 {
	p := newPencil(2, []int{1, 1}, []int{0, 0}).fill()
	stride := 1
	for dim := 2; dim >= 0; dim-- {
		n, out := extents[dim], make([]complex128, len(p.data))
		for i := range out {
			k := i / stride % n
			for j := range n {
				angle := -2 * math.Pi * float64(j*k%n) / float64(n)
				out[i] += p.data[i+(j-k)*stride] * cmplx.Rect(1, angle)
			}
		}
		p.data = out
		stride *= n
	}
	return p.data
}

// The test compares every point with the definition, and the bits between numbers of ranks. Of 40 ranks
// some have no point.
func TestTransformMatchesDefinition(t *testing.T) {
	want := definition()
	var alone []complex128
	for _, ranks := range []int{1, 2, 3, 4, 6, 7, 40} {
		whole := make([]complex128, len(want))
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			grid, err := world.CartCreate([]int{0, 0}, []bool{false, false}, false)
			if err != nil {
				return err
			}
			defer grid.Close()
			p, err := transform(grid)
			if err != nil {
				return err
			}
			for i, x := range p.data { // the ranks' parts do not overlap
				at := p.point(i)
				whole[(at[0]*extents[1]+at[1])*extents[2]+at[2]] = x
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
		if alone == nil {
			alone = whole
		}
		for i := range whole {
			if whole[i] != alone[i] {
				t.Fatalf("%d ranks: point %d is %v, and on one rank %v", ranks, i, whole[i], alone[i])
			}
		}
	}
	for i := range want {
		if d := cmplx.Abs(alone[i] - want[i]); !(d < 1e-10) {
			t.Fatalf("point %d is %v, by the definition %v", i, alone[i], want[i])
		}
	}
}
