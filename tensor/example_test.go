package tensor_test

import (
	"context"
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

// A view of some columns is not contiguous. Operations take it only after Compact.
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

// The windows of a series share memory. They can be copied to a matrix.
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
	fmt.Println(errors.Is(tensor.Copy(windows, matrix), cohort.ErrBuffer)) // elements would be written twice
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
	// tensor: copy: the source is int64[2] on cpu, but the destination is int64[3 2] on cpu: invalid count
}

// job runs body as n ranks, each with a communicator for tensors.
func job(n int, body func(c *tensor.Comm) error) {
	err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
		c, err := tensor.NewComm(world, nil)
		if err != nil {
			return err
		}
		return errors.Join(body(c), c.Close())
	})
	if err != nil {
		fmt.Println(err)
	}
}

func ExampleAllreduce() {
	job(4, func(c *tensor.Comm) error {
		grad, err := tensor.Of([]float32{float32(c.Rank()), 1}, 2)
		if err != nil {
			return err
		}
		if err = tensor.Allreduce(c, grad, grad, tensor.Average); c.Rank() == 3 {
			fmt.Println(grad.Data())
		}
		return err
	})
	// Output: [1.5 1]
}

func ExampleIallreduce() {
	job(4, func(c *tensor.Comm) error {
		a, b := []int{c.Rank()}, []int{-c.Rank()}
		x, err := tensor.Of(a, 1)
		y, err2 := tensor.Of(b, 1)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		first, err := tensor.Iallreduce(c, x, x, tensor.Sum)
		second, err2 := tensor.Iallreduce(c, y, y, tensor.Min)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		// … compute …
		if err = tensor.WaitAll(first, second); c.Rank() == 0 {
			fmt.Println(a, b)
		}
		return err
	})
	// Output: [6] [-3]
}

func ExampleBcast() {
	job(3, func(c *tensor.Comm) error {
		weights, err := tensor.New[float64](2, 2)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			copy(weights.Data(), []float64{1, 2, 3, 4})
		}
		if err = tensor.Bcast(c, weights, 0); c.Rank() == 2 {
			fmt.Println(weights, weights.Data())
		}
		return err
	})
	// Output: float64[2 2] on cpu [1 2 3 4]
}

func ExampleReduce() {
	job(3, func(c *tensor.Comm) error {
		x, err := tensor.Of([]int32{int32(c.Rank() + 1), 2}, 2)
		if err != nil {
			return err
		}
		var product *tensor.Tensor[int32]
		if c.Rank() == 0 {
			if product, err = tensor.New[int32](2); err != nil {
				return err
			}
		}
		if err = tensor.Reduce(c, x, product, tensor.Prod, 0); c.Rank() == 0 {
			fmt.Println(product.Data())
		}
		return err
	})
	// Output: [6 8]
}

func ExampleAllgather() {
	job(3, func(c *tensor.Comm) error {
		row, err := tensor.Of([]int64{int64(c.Rank()), int64(c.Rank() * c.Rank())}, 2)
		matrix, err2 := tensor.New[int64](c.Size(), 2)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if err = tensor.Allgather(c, row, matrix); c.Rank() == 1 {
			fmt.Println(matrix, matrix.Data())
		}
		return err
	})
	// Output: int64[3 2] on cpu [0 0 1 1 2 4]
}

func ExampleReduceScatter() {
	job(2, func(c *tensor.Comm) error {
		x, err := tensor.Of([]int{1, 2, 3, 4}, 2, 2)
		mine, err2 := tensor.New[int](2)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if err = tensor.ReduceScatter(c, x, mine, tensor.Sum); c.Rank() == 1 {
			fmt.Println(mine.Data())
		}
		return err
	})
	// Output: [6 8]
}

func ExampleAlltoall() {
	job(2, func(c *tensor.Comm) error {
		x, err := tensor.Of([]int{10 * c.Rank(), 10*c.Rank() + 1}, 2)
		if err != nil {
			return err
		}
		if err = tensor.Alltoall(c, x, x); c.Rank() == 1 {
			fmt.Println(x.Data())
		}
		return err
	})
	// Output: [1 11]
}

func ExampleRecvAppend() {
	job(3, func(c *tensor.Comm) error {
		if me := c.Rank(); me > 0 { // rank 1 sends one row, and rank 2 two
			rows, err := tensor.New[int](me, 2)
			if err != nil {
				return err
			}
			rows.Data()[0] = me
			return tensor.Send(c, rows, 0, 0)
		}
		var all *tensor.Tensor[int]
		for source := 1; source < c.Size(); source++ {
			var err error
			if all, _, err = tensor.RecvAppend(c, all, source, 0); err != nil {
				return err
			}
		}
		fmt.Println(all, all.Data())
		return nil
	})
	// Output: int64[3 2] on cpu [1 0 2 0 0 0]
}

func ExampleReducer() {
	job(2, func(c *tensor.Comm) error {
		var grads []*tensor.Tensor[float32]
		for n := range 3 {
			g, err := tensor.New[float32](n + 1)
			if err != nil {
				return err
			}
			grads = append(grads, g)
		}
		r, err := tensor.NewReducer(c, grads, tensor.Average, 0)
		if err != nil {
			return err
		}
		for range 2 { // steps
			for i, g := range grads {
				for k := range g.Data() {
					g.Data()[k] = float32(i + c.Rank()) // the backward pass
				}
				if err := r.Ready(i); err != nil {
					return err
				}
			}
			if err := r.Wait(); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			fmt.Println(grads[0].Data(), grads[1].Data(), grads[2].Data())
		}
		return r.Close()
	})
	// Output: [0.5] [1.5 1.5] [2.5 2.5 2.5]
}

func ExampleAllreduceAll() {
	job(2, func(c *tensor.Comm) error {
		a, err := tensor.Of([]int8{1, 2}, 2)
		b, err2 := tensor.Of([]int8{3}, 1)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if err = tensor.AllreduceAll(c, []*tensor.Tensor[int8]{a, b}, tensor.Sum); c.Rank() == 1 {
			fmt.Println(a.Data(), b.Data())
		}
		return err
	})
	// Output: [2 4] [6]
}
