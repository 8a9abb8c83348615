package dense_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/gonum/dense"
	"github.com/cohort-hpc/cohort/tensor"
)

// formula is element (i, j) of the tests' matrices.
func formula(i, j int) float64 { return float64(10*i + j) }

func newMatrix(rows, cols int) *mat.Dense {
	m := mat.NewDense(rows, cols, nil)
	m.Apply(func(i, j int, _ float64) float64 { return formula(i, j) }, m)
	return m
}

func TestFromDenseSharesMemory(t *testing.T) {
	wide := newMatrix(6, 7)
	for _, c := range []struct {
		name       string
		m          *mat.Dense
		i, j       int // position in wide
		rows, cols int
		contiguous bool
	}{
		{"all", wide, 0, 0, 6, 7, true},
		{"rows", wide.Slice(1, 4, 0, 7).(*mat.Dense), 1, 0, 3, 7, true},
		{"columns", wide.Slice(0, 6, 2, 5).(*mat.Dense), 0, 2, 6, 3, false},
		{"block", wide.Slice(1, 4, 2, 5).(*mat.Dense), 1, 2, 3, 3, false},
		{"one row", wide.Slice(5, 6, 3, 7).(*mat.Dense), 5, 3, 1, 4, true},
		{"one column", wide.Slice(0, 6, 6, 7).(*mat.Dense), 0, 6, 6, 1, false},
		{"one element", wide.Slice(5, 6, 6, 7).(*mat.Dense), 5, 6, 1, 1, true},
	} {
		x, err := dense.FromDense(c.m)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !slices.Equal(x.Shape(), []int{c.rows, c.cols}) || x.IsContiguous() != c.contiguous {
			t.Errorf("%s: shape %v, contiguous %v", c.name, x.Shape(), x.IsContiguous())
		}
		for i := range c.rows {
			for j := range c.cols {
				if v, err := x.Elem(i, j); v != formula(c.i+i, c.j+j) || err != nil {
					t.Errorf("%s: element (%d, %d) is %v, %v", c.name, i, j, v, err)
				}
			}
		}
		// Convert back to the same memory.
		m, err := dense.Dense(x)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !mat.Equal(m, c.m) {
			t.Errorf("%s: back again it is\n%v", c.name, mat.Formatted(m))
		}
		old := wide.At(c.i, c.j)
		m.Set(0, 0, -1)
		if v, _ := x.Elem(0, 0); v != -1 || wide.At(c.i, c.j) != -1 {
			t.Errorf("%s: the memory is not the same", c.name)
		}
		if err := x.SetElem(old, 0, 0); err != nil || wide.At(c.i, c.j) != old {
			t.Errorf("%s: the memory is not the same, %v", c.name, err)
		}
		var sum mat.Dense // gonum's arithmetic accepts it
		sum.Add(m, m)
		if last := sum.At(c.rows-1, c.cols-1); last != 2*formula(c.i+c.rows-1, c.j+c.cols-1) {
			t.Errorf("%s: twice the last element is %v", c.name, last)
		}
	}
}

// gonum computes the product of a shared matrix from the tensor's elements.
func TestProductOfSharedMatrix(t *testing.T) {
	x, err := tensor.Strided([]float64{1, 2, -1, 3, 4, -1, 5, 6}, []int{3, 2}, []int{3, 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := dense.Dense(x)
	if err != nil {
		t.Fatal(err)
	}
	var got mat.Dense
	got.Mul(m.T(), m)
	if want := mat.NewDense(2, 2, []float64{35, 44, 44, 56}); !mat.Equal(&got, want) {
		t.Errorf("the product is\n%v", mat.Formatted(&got))
	}
}

func TestComplexMatrixSharesMemory(t *testing.T) {
	const rows, cols = 4, 5
	wide := mat.NewCDense(rows, cols, nil)
	for i := range rows {
		for j := range cols {
			wide.Set(i, j, complex(float64(i), float64(j)))
		}
	}
	part := wide.Slice(1, 3, 2, 5).(*mat.CDense)
	x, err := dense.FromCDense(part)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := x.Elem(1, 2); v != 2+4i || err != nil || x.IsContiguous() {
		t.Errorf("element (1, 2) is %v, %v", v, err)
	}
	m, err := dense.CDense(x)
	if err != nil {
		t.Fatal(err)
	}
	m.Set(0, 1, 9)
	if v, err := x.Elem(0, 1); v != 9 || err != nil || wide.At(1, 3) != 9 {
		t.Errorf("the memory is not the same: %v, %v", v, wide.At(1, 3))
	}
}

func TestVectorSharesMemory(t *testing.T) {
	wide := newMatrix(4, 3)
	column := wide.ColView(1).(*mat.VecDense)
	x, err := dense.FromVec(column)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(x.Shape(), []int{4}) || !slices.Equal(x.Strides(), []int{3}) {
		t.Errorf("shape %v, strides %v", x.Shape(), x.Strides())
	}
	packed, err := x.Compact()
	if err != nil || !slices.Equal(packed.Data(), []float64{1, 11, 21, 31}) {
		t.Errorf("the column is %v, %v", packed.Data(), err)
	}
	for name, x := range map[string]*tensor.Tensor[float64]{"strided": x, "contiguous": packed} {
		v, err := dense.Vec(x)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := mat.Norm(v, 2), math.Sqrt(1+11*11+21*21+31*31); math.Abs(got-want) > 1e-12*want {
			t.Errorf("%s: the norm is %v, want %v", name, got, want)
		}
		v.SetVec(3, -5)
		if got, err := x.Elem(3); got != -5 || err != nil {
			t.Errorf("%s: the memory is not the same: %v, %v", name, got, err)
		}
		v.SetVec(3, 31)
	}
	one, err := tensor.Strided([]float64{7}, []int{1}, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := dense.Vec(one); err != nil || v.Len() != 1 || mat.Norm(v, 1) != 7 {
		t.Errorf("one element with the stride 0: %v, %v", v, err)
	}
}

// The empty matrix and the empty vector can be converted both ways.
func TestEmptyMatrixAndVector(t *testing.T) {
	x, err := dense.FromDense(&mat.Dense{})
	if err != nil || !slices.Equal(x.Shape(), []int{0, 0}) {
		t.Errorf("the empty matrix is %v, %v", x, err)
	}
	y, err := dense.FromVec(&mat.VecDense{})
	if err != nil || !slices.Equal(y.Shape(), []int{0}) {
		t.Errorf("the empty vector is %v, %v", y, err)
	}
	for _, shape := range [][]int{{0, 0}, {0, 3}, {3, 0}} {
		x, err := tensor.New[float64](shape...)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := dense.Dense(x); err != nil || !m.IsEmpty() {
			t.Errorf("%v is %v, %v, want the empty matrix", shape, m, err)
		}
	}
	if x, err = tensor.New[float64](0); err != nil {
		t.Fatal(err)
	}
	if v, err := dense.Vec(x); err != nil || !v.IsEmpty() {
		t.Errorf("no elements are %v, %v, want the empty vector", v, err)
	}
}

func TestWhatDoesNotFitIsNotConverted(t *testing.T) {
	x, err := tensor.New[float64](2, 3)
	if err != nil {
		t.Fatal(err)
	}
	turned, err := x.Transpose()
	if err != nil {
		t.Fatal(err)
	}
	windows, err := tensor.Strided(make([]float64, 5), []int{3, 3}, []int{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	same, err := tensor.Strided(make([]float64, 1), []int{3}, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	z, err := tensor.New[complex128](2)
	if err != nil {
		t.Fatal(err)
	}
	short := &mat.Dense{}
	short.SetRawMatrix(blas64.General{Rows: 3, Cols: 3, Stride: 3, Data: make([]float64, 8)})
	backwards := &mat.VecDense{}
	backwards.SetRawVector(blas64.Vector{N: 3, Inc: -1, Data: make([]float64, 3)})
	for _, c := range []struct {
		name string
		make func() error
		want error
	}{
		{"no matrix", func() error { _, err := dense.FromDense(nil); return err }, cohort.ErrBuffer},
		{"no complex matrix", func() error { _, err := dense.FromCDense(nil); return err }, cohort.ErrBuffer},
		{"no vector", func() error { _, err := dense.FromVec(nil); return err }, cohort.ErrBuffer},
		{"no tensor", func() error { _, err := dense.Dense(nil); return err }, cohort.ErrBuffer},
		{"no complex tensor", func() error { _, err := dense.CDense(nil); return err }, cohort.ErrBuffer},
		{"no tensor for a vector", func() error { _, err := dense.Vec(nil); return err }, cohort.ErrBuffer},
		{"too short", func() error { _, err := dense.FromDense(short); return err }, cohort.ErrBuffer},
		{"backwards", func() error { _, err := dense.FromVec(backwards); return err }, cohort.ErrBuffer},
		{"a vector", func() error { _, err := dense.Dense(same); return err }, cohort.ErrCount},
		{"a complex vector", func() error { _, err := dense.CDense(z); return err }, cohort.ErrCount},
		{"a matrix", func() error { _, err := dense.Vec(x); return err }, cohort.ErrCount},
		{"a transpose", func() error { _, err := dense.Dense(turned); return err }, cohort.ErrBuffer},
		{"rows that overlap", func() error { _, err := dense.Dense(windows); return err }, cohort.ErrBuffer},
		{"one place", func() error { _, err := dense.Vec(same); return err }, cohort.ErrBuffer},
	} {
		if err := c.make(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// The matrix is summed over the ranks in place.
func ExampleFromDense() {
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		comm, err := tensor.NewComm(world, nil)
		if err != nil {
			return err
		}
		defer comm.Close()
		m := mat.NewDense(2, 2, []float64{1, 2, 3, float64(world.Rank())})
		t, err := dense.FromDense(m)
		if err != nil {
			return err
		}
		if err := tensor.Allreduce(comm, t, t, tensor.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(mat.Formatted(m))
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// ⎡3  6⎤
	// ⎣9  3⎦
}

func ExampleDense() {
	t, err := tensor.Of([]float64{4, 1, 1, 3}, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := dense.Dense(t)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mat.Trace(m))
	// Output: 7
}
