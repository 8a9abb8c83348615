package main

import (
	"math"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// Parts of the matrix, made apart, have the bits of the whole one.
func TestMatrixInPartsIsTheWhole(t *testing.T) {
	p := classes["S"]
	whole := makeMatrix(p, 0, p.rows)
	for _, size := range []int{2, 3, 8} {
		for rank := range size {
			lo, hi := cohort.Block(p.rows, size, rank)
			part := makeMatrix(p, lo, hi)
			if len(part) != 1 || len(whole) != 1 {
				t.Fatalf("%d stripes in a part, %d in the whole, want 1", len(part), len(whole))
			}
			for i := range hi - lo {
				columns, values := part[0].row(i)
				wantColumns, wantValues := whole[0].row(lo + i)
				if !slices.Equal(columns, wantColumns) || !slices.Equal(values, wantValues) {
					t.Fatalf("part %d of %d: row %d differs", rank, size, lo+i)
				}
			}
		}
	}
}

func (s *stripe) row(i int) ([]uint16, []float64) {
	return s.columns[s.begin[i]:s.begin[i+1]], s.values[s.begin[i]:s.begin[i+1]]
}

// The products with unit vectors are the columns of the sum that defines the matrix. The matrix is wider than a stripe.
func TestMatrixIsTheSumOfItsVectors(t *testing.T) {
	p := problem{rows: width + 1000, nonzeros: 5, shift: 3}
	const lo, hi = width - 20, width + 20
	want := make(map[[2]int]float64)
	k := 0
	for v := range vectors(p) {
		if len(v.index) < p.nonzeros || len(v.index) > p.nonzeros+1 {
			t.Fatalf("vector %d has %d elements, want %d or one more", k, len(v.index), p.nonzeros)
		}
		if at := slices.Index(v.index, k); at < 0 || v.value[at] != 0.5 {
			t.Fatalf("vector %d has no element %d that is 1/2", k, k)
		}
		for i, row := range v.index {
			for j, column := range v.index {
				if row >= lo && row < hi {
					want[[2]int{row, column}] += math.Pow(condition, float64(k)/float64(p.rows)) * v.value[i] * v.value[j]
				}
			}
		}
		k++
	}
	m := makeMatrix(p, lo, hi)
	x, product := make([]float64, len(m)*width), make([]float64, hi-lo)
	for column := range p.rows {
		x[column] = 1
		m.multiply(product, x)
		x[column] = 0
		for i, got := range product {
			sum := want[[2]int{lo + i, column}]
			if lo+i == column {
				sum += condition - p.shift
			}
			if math.Abs(got-sum) > 1e-12 {
				t.Fatalf("element %d, %d is %v, want %v", lo+i, column, got, sum)
			}
		}
	}
}
