package tensor_test

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tensor"
)

func ExampleTensor() {
	x, err := tensor.New[float32](2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range x.Data() {
		x.Data()[i] = float32(i) / 2
	}
	v, err := x.Elem(1, 2)
	fmt.Println(x, x.Strides(), v, err)
	_, err = x.Elem(2, 0)
	fmt.Println(errors.Is(err, cohort.ErrCount))
	// Output:
	// float32[2 3] on cpu [3 1] 2.5 <nil>
	// true
}

func ExampleOf() {
	data := []complex64{1, 2i, 3, 4i}
	x, err := tensor.Of(data, 2, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := x.SetElem(9, 0, 1); err != nil {
		fmt.Println(err)
	}
	fmt.Println(x, data)
	// Output: complex64[2 2] on cpu [(1+0i) (9+0i) (3+0i) (0+4i)]
}

// A view of some columns is not contiguous. Operations do not take it as it is.
func ExampleTensor_Compact() {
	x, err := tensor.Of([]int32{
		1, 2, 3,
		4, 5, 6,
	}, 2, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	right, err := x.Sub(1, 1, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(right, right.Strides(), right.IsContiguous())
	packed, err := right.Compact()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(packed.Data())
	// Output:
	// int32[2 2] on cpu [3 1] false
	// [2 3 5 6]
}

// The windows of a series share memory, and can be copied to a matrix.
func ExampleStrided() {
	series := []float64{1, 2, 3, 4, 5}
	windows, err := tensor.Strided(series, []int{3, 3}, []int{1, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	matrix, err := windows.Compact()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(matrix.Data())
	fmt.Println(errors.Is(tensor.Copy(windows, matrix), cohort.ErrBuffer)) // what would be written twice
	// Output:
	// [1 2 3 2 3 4 3 4 5]
	// true
}

func ExampleCopy() {
	table, err := tensor.New[int64](3, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	row, err := tensor.Of([]int64{7, 8}, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	middle, err := table.Index(0, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tensor.Copy(middle, row); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Data())
	fmt.Println(tensor.Copy(table, row))
	// Output:
	// [0 0 7 8 0 0]
	// tensor: copy: the source is int64[2] on cpu, and the destination int64[3 2] on cpu: invalid count
}
