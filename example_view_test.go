package cohort_test

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// Each rank has 2 rows of a field and a column of its left neighbor beside them.
func ExampleSendrecvView() {
	four(func(world *cohort.Comm) error {
		me, n := world.Rank(), world.Size()
		field := []int{ // 2 rows of 3; the first column is the neighbor's
			-1, 10*me + 1, 10*me + 2,
			-1, 10*me + 3, 10*me + 4,
		}
		last := cohort.ViewOf(field[2:], cohort.Vector(2, 1, 3))
		first := cohort.ViewOf(field, cohort.Vector(2, 1, 3))
		_, err := cohort.SendrecvView(world, last, (me+1)%n, 0, first, (me+n-1)%n, 0)
		if err == nil && me == 1 {
			fmt.Println(field[:3], field[3:])
		}
		return err
	})
	// Output:
	// [2 11 12] [4 13 14]
}

// The diagonal of a matrix on rank 0 is sent, and arrives as a slice.
func ExampleSendView() {
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 0:
			matrix := []int{
				1, 2, 3,
				4, 5, 6,
				7, 8, 9,
			}
			return cohort.SendView(world, cohort.ViewOf(matrix, cohort.Vector(3, 1, 4)), 1, 0)
		case 1:
			diagonal, _, err := cohort.RecvAppend[int](world, nil, 0, 0)
			fmt.Println(diagonal)
			return err
		}
		return nil
	})
	// Output:
	// [1 5 9]
}

// A block of a matrix is received into the middle of a larger one.
func ExampleRecvView() {
	four(func(world *cohort.Comm) error {
		switch world.Rank() {
		case 0:
			return cohort.Send(world, []int{1, 2, 3, 4}, 1, 0)
		case 1:
			matrix := make([]int, 4*4)
			middle := cohort.Subarray([]int{4, 4}, []int{2, 2}, []int{1, 1})
			_, err := cohort.RecvView(world, cohort.ViewOf(matrix, middle), 0, 0)
			for i := range 4 {
				fmt.Println(matrix[4*i : 4*i+4])
			}
			return err
		}
		return nil
	})
	// Output:
	// [0 0 0 0]
	// [0 1 2 0]
	// [0 3 4 0]
	// [0 0 0 0]
}

func ExampleIsendView() {
	four(func(world *cohort.Comm) error {
		me, n := world.Rank(), world.Size()
		x := []int{me, -1, me * me, -1}
		y := make([]int, 4)
		even, odd := cohort.Vector(2, 1, 2), cohort.Indexed([]int{1, 1}, []int{3, 1})
		recv, err := cohort.IrecvView(world, cohort.ViewOf(y, odd), (me+1)%n, 0)
		if err != nil {
			return err
		}
		send, err := cohort.IsendView(world, cohort.ViewOf(x, even), (me+n-1)%n, 0)
		if err != nil {
			return err
		}
		if err := cohort.WaitAll(send, recv); err != nil {
			return err
		}
		if me == 2 {
			fmt.Println(y)
		}
		return nil
	})
	// Output:
	// [0 9 0 3]
}

// Every rank has a row of a matrix of 4 by 4, and receives a column of it into every second element of a
// slice.
func ExampleAlltoallView() {
	four(func(world *cohort.Comm) error {
		row, column := make([]int, 4), make([]int, 8)
		send, recv := make([]cohort.View[int], 4), make([]cohort.View[int], 4)
		one := cohort.Vector(1, 1, 1)
		for r := range 4 {
			row[r] = 10*world.Rank() + r
			send[r], recv[r] = cohort.ViewOf(row[r:], one), cohort.ViewOf(column[2*r:], one)
		}
		err := cohort.AlltoallView(world, send, recv)
		if err == nil && world.Rank() == 3 {
			fmt.Println(column)
		}
		return err
	})
	// Output:
	// [3 0 13 0 23 0 33 0]
}

func ExampleViewOf() {
	matrix := []int{
		1, 2, 3,
		4, 5, 6,
	}
	second := cohort.ViewOf(matrix[1:], cohort.Vector(2, 1, 3))
	column := make([]int, second.Len())
	if err := second.Pack(column); err != nil {
		fmt.Println(err)
	}
	fmt.Println(column)
	// Output:
	// [2 5]
}

func ExampleView_Unpack() {
	matrix := make([]int, 2*3)
	last := cohort.ViewOf(matrix[2:], cohort.Vector(2, 1, 3))
	err := last.Unpack([]int{7, 8})
	fmt.Println(matrix, err)
	// Output:
	// [0 0 7 0 0 8] <nil>
}

// The second column of a matrix of 3 by 4.
func ExampleVector() {
	column := cohort.Vector(3, 1, 4)
	matrix := []int{
		1, 2, 3, 4,
		5, 6, 7, 8,
		9, 10, 11, 12,
	}
	out := make([]int, column.Len())
	err := cohort.ViewOf(matrix[1:], column).Pack(out)
	fmt.Println(out, err)
	// Output:
	// [2 6 10] <nil>
}

// Two elements from index 4 on, and then one at index 1.
func ExampleIndexed() {
	out := make([]int, 3)
	err := cohort.ViewOf([]int{0, 10, 20, 30, 40, 50}, cohort.Indexed([]int{2, 1}, []int{4, 1})).Pack(out)
	fmt.Println(out, err)
	// Output:
	// [40 50 10] <nil>
}

// The 1 by 2 elements from row 1, column 2 on of an array of 3 by 4.
func ExampleSubarray() {
	array := []int{
		1, 2, 3, 4,
		5, 6, 7, 8,
		9, 10, 11, 12,
	}
	out := make([]int, 2)
	err := cohort.ViewOf(array, cohort.Subarray([]int{3, 4}, []int{1, 2}, []int{1, 2})).Pack(out)
	fmt.Println(out, err)
	// Output:
	// [7 8] <nil>
}

// A part of 2 by 2 elements in the middle of an array of 4 by 4.
func ExampleLayout_Blocks() {
	l := cohort.Subarray([]int{4, 4}, []int{2, 2}, []int{1, 1})
	for at, n := range l.Blocks() {
		fmt.Println(n, "elements from", at)
	}
	// Output:
	// 2 elements from 5
	// 2 elements from 9
}

func ExampleLayout_Err() {
	fmt.Println(errors.Is(cohort.Vector(-1, 1, 2).Err(), cohort.ErrCount))
	// Output:
	// true
}
