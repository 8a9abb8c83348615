package main

import (
	"math"
	"slices"

	"github.com/cohort-hpc/cohort/bench/npb"
)

const condition = 0.1 // about the reciprocal of the matrix's condition number

// matrix is a block of rows of a sparse matrix, cut into stripes of columns. A product reads 10 bytes for an element, and a
// column of 16 bits never lies outside a stripe of the vector, which saves a check.
type matrix []stripe

// width is the number of columns of a stripe.
const width = 1 << 16

// stripe has the elements of row i from begin[i] up to begin[i+1].
type stripe struct {
	begin   []int
	columns []uint16 // within the stripe, ascending in a row
	values  []float64
}

// makeMatrix returns rows lo up to hi of the matrix that routine makea of the report makes: the sum of w(k) v(k) v(k)ᵀ, where
// the v(k) are sparse random vectors and the weights w(k) fall from 1 to 0.1, with a shifted diagonal.
//
// The vectors come from one sequence of random numbers, some of which are rejected. So each rank makes all vectors, one
// after the other, and keeps those with an element in its rows.
func makeMatrix(p problem, lo, hi int) matrix {
	type term struct {
		factor float64
		vector vector
	}
	rows := make([][]term, hi-lo) // what each row is the sum of
	weight, ratio := 1.0, math.Pow(condition, 1/float64(p.rows))
	for v := range vectors(p) {
		var kept vector
		for i, row := range v.index {
			if row < lo || row >= hi {
				continue
			}
			if kept.index == nil {
				kept = vector{slices.Clone(v.index), slices.Clone(v.value)}
			}
			rows[row-lo] = append(rows[row-lo], term{weight * v.value[i], kept})
		}
		weight *= ratio
	}
	m := make(matrix, (p.rows+width-1)/width)
	for s := range m {
		m[s].begin = make([]int, 1, hi-lo+1)
	}
	sum, present := make([]float64, p.rows), make([]bool, p.rows)
	for i, terms := range rows {
		terms = append(terms, term{1, vector{[]int{lo + i}, []float64{condition - p.shift}}})
		var columns []int
		for _, t := range terms {
			for j, column := range t.vector.index {
				if !present[column] {
					present[column], columns = true, append(columns, column)
				}
				sum[column] += t.factor * t.vector.value[j]
			}
		}
		slices.Sort(columns)
		for _, column := range columns {
			s := &m[column/width]
			s.columns, s.values = append(s.columns, uint16(column%width)), append(s.values, sum[column])
			sum[column], present[column] = 0, false
		}
		for s := range m {
			m[s].begin = append(m[s].begin, len(m[s].values))
		}
	}
	return m
}

// vector is a sparse vector.
type vector struct {
	index []int
	value []float64
}

// vectors yields the random vectors. Vector k has p.nonzeros elements at random places, and element k is 1/2. The next
// vector overwrites it.
func vectors(p problem) func(yield func(vector) bool) {
	return func(yield func(vector) bool) {
		random := npb.Seed
		random.Next()
		places := 1 // a power of two: no number is rounded
		for places < p.rows {
			places *= 2
		}
		var v vector
		for k := range p.rows {
			v.index, v.value = v.index[:0], v.value[:0]
			for len(v.index) < p.nonzeros {
				value, place := random.Next(), int(random.Next()*float64(places))
				if place < p.rows && !slices.Contains(v.index, place) {
					v.index, v.value = append(v.index, place), append(v.value, value)
				}
			}
			if at := slices.Index(v.index, k); at >= 0 {
				v.value[at] = 0.5
			} else {
				v.index, v.value = append(v.index, k), append(v.value, 0.5)
			}
			if !yield(v) {
				return
			}
		}
	}
}

// multiply computes product = m x. The slice x has room for whole stripes.
func (m matrix) multiply(product, x []float64) {
	clear(product)
	for s := range m {
		m[s].addProduct(product, (*[width]float64)(x[s*width:]))
	}
}

// addProduct adds the product of a stripe and its part of the vector. Four sums need not wait for each other.
func (s *stripe) addProduct(product []float64, x *[width]float64) {
	begin := s.begin[:len(product)+1]
	for i := range product {
		columns, values := s.columns[begin[i]:begin[i+1]], s.values[begin[i]:begin[i+1]]
		var a, b, c, d float64
		j := 0
		for ; j < len(columns)-7 && j < len(values)-7; j += 8 {
			a += values[j] * x[columns[j]]
			b += values[j+1] * x[columns[j+1]]
			c += values[j+2] * x[columns[j+2]]
			d += values[j+3] * x[columns[j+3]]
			a += values[j+4] * x[columns[j+4]]
			b += values[j+5] * x[columns[j+5]]
			c += values[j+6] * x[columns[j+6]]
			d += values[j+7] * x[columns[j+7]]
		}
		for ; j < len(columns); j++ {
			a += values[j] * x[columns[j]]
		}
		product[i] += (a + b) + (c + d)
	}
}
