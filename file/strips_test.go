package file

import (
	"math"
	"math/big"
	"math/bits"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// However many blocks a regular layout has, it is few strips.
func TestRegularLayoutsAreFewStrips(t *testing.T) {
	const million = 1_000_000
	for what, c := range map[string]struct {
		l              cohort.Layout
		strips, pieces int
	}{
		"a column":              {cohort.Vector(million, 1, 100), 1, million},
		"one block":             {cohort.Vector(million, 100, 100), 1, 1},
		"rows of a matrix":      {cohort.Subarray([]int{million, 10}, []int{million, 3}, []int{0, 2}), 1, million},
		"all of a matrix":       {cohort.Subarray([]int{million, 10}, []int{million, 10}, []int{0, 0}), 1, 1},
		"a part of a cube":      {cohort.Subarray([]int{9, 1000, 10}, []int{4, 900, 3}, []int{0, 0, 2}), 4, 3600},
		"blocks in turn":        {cohort.Indexed([]int{1, 1, 1, 5, 5, 5}, []int{0, 3, 6, 10, 20, 30}), 2, 6},
		"blocks that touch":     {cohort.Indexed([]int{1, 2, 3}, []int{0, 1, 3}), 1, 1},
		"blocks in other order": {cohort.Indexed([]int{3, 2, 1}, []int{3, 1, 0}), 1, 1},
		"no elements":           {cohort.Vector(0, 1, 1), 0, 0},
	} {
		r, err := regionOf(c.l, 7, 8)
		if err != nil || len(r.strips) != c.strips || r.pieces != int64(c.pieces) || r.bytes != int64(8*c.l.Len()) {
			t.Errorf("%s: %d strips, %d pieces, %d bytes, %v; want %d, %d, %d", what, len(r.strips), r.pieces, r.bytes, err, c.strips, c.pieces, 8*c.l.Len())
		}
	}
}

// A layout is refused if it ends after the last offset that a file can have, and its bytes lie before that otherwise.
func TestRegionsEndInTheFile(t *testing.T) {
	for _, size := range []int64{1, 2, 3, 8} {
		for _, off := range []int64{0, 1, 100, math.MaxInt64 - 3} {
			for shift := range bits.UintSize - 1 {
				for _, near := range []int{-1, 0, 1} {
					for count := 1; count < 10; count++ {
						stride := max(1, 1<<shift+near)
						elements := big.NewInt(int64(stride))
						elements.Mul(elements, big.NewInt(int64(count-1))).Add(elements, big.NewInt(1))
						end := new(big.Int).Mul(elements, big.NewInt(size))
						end.Add(end, big.NewInt(off))
						good := elements.Cmp(big.NewInt(math.MaxInt)) <= 0 && end.IsInt64()
						l := cohort.Vector(count, 1, stride)
						r, err := regionOf(l, off, size)
						if err == nil {
							err = l.Err()
						}
						if lo, hi := r.hull(); (err == nil) != good || good && (lo != off || hi != end.Int64() || r.bytes != int64(count)*size) {
							t.Fatalf("%d elements of %d bytes from %d on, stride %d: %v, bytes %d to %d; want the end %v", count, size, off, stride, err, lo, hi, end)
						}
					}
				}
			}
		}
	}
}

// The bytes before any two offsets are those that a walk through all blocks finds.
func TestCutsHaveEveryByteOnce(t *testing.T) {
	r, err := regionOf(cohort.Indexed([]int{4, 4, 4, 1, 7, 7, 2}, []int{0, 10, 20, 25, 40, 55, 70}), 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	has := map[int64]bool{}
	for displ, n := range cohort.Indexed([]int{4, 4, 4, 1, 7, 7, 2}, []int{0, 10, 20, 25, 40, 55, 70}).Blocks() {
		for i := range n {
			has[int64(3+displ+i)] = true
		}
	}
	for first := range int64(80) {
		for second := first; second < 80; second++ {
			c := cursor{strips: r.strips}
			for _, part := range [][2]int64{{0, first}, {first, second}, {second, 80}} {
				var want, got int64
				for at := part[0]; at < part[1]; at++ {
					if has[at] {
						want++
					}
				}
				n := c.cut(part[1], func(s strip) {
					for i := range s.count {
						for at := s.off + i*s.stride; at < s.off+i*s.stride+s.n; at++ {
							if got++; !has[at] || at < part[0] || at >= part[1] {
								t.Fatalf("cut of bytes %d to %d has byte %d", part[0], part[1], at)
							}
						}
					}
				})
				if n != want || got != want {
					t.Fatalf("cut of bytes %d to %d has %d, and says %d; want %d", part[0], part[1], got, n, want)
				}
			}
		}
	}
}
