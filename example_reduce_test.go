package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// A reduction of the program's own: the composition of x → a*x + b, which does
// not commute.
func ExampleNewOp() {
	type affine struct{ A, B int }
	compose := cohort.NewOp(false, func(in, inout []affine) {
		for i, f := range in { // first f, then g
			g := inout[i]
			inout[i] = affine{g.A * f.A, g.A*f.B + g.B}
		}
	})
	four(func(world *cohort.Comm) error {
		f, err := cohort.ReduceOne(world, affine{2, world.Rank()}, compose, 0)
		if world.Rank() == 0 {
			fmt.Println(f)
		}
		return err
	})
	// Output:
	// {16 11}
}

func ExampleReduce() {
	four(func(world *cohort.Comm) error {
		send := []int{world.Rank(), 1}
		recv := make([]int, 2) // used on the root only, and may be nil elsewhere
		err := cohort.Reduce(world, send, recv, cohort.Sum, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [6 4]
}

func ExampleAllreduce() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		send := []float64{float64(world.Rank()), 0.5 - float64(world.Rank())}
		recv := make([]float64, 2)
		err := cohort.Allreduce(world, send, recv, cohort.Max)
		if err == nil && world.Rank() == 3 {
			fmt.Println(recv)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [3 0.5]
}

// The same slice as send and recv reduces in place.
func ExampleAllreduce_inPlace() {
	four(func(world *cohort.Comm) error {
		buf := []int{1 << world.Rank()}
		err := cohort.Allreduce(world, buf, buf, cohort.Bor)
		if err == nil && world.Rank() == 1 {
			fmt.Println(buf)
		}
		return err
	})
	// Output:
	// [15]
}

func ExampleIallreduce() {
	four(func(world *cohort.Comm) error {
		send, recv := []int{world.Rank()}, make([]int, 1)
		req, err := cohort.Iallreduce(world, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		// Work that leaves send and recv alone goes here.
		if _, err := req.Wait(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(recv)
		}
		return nil
	})
	// Output:
	// [6]
}

func ExampleAllreduceInit() {
	four(func(world *cohort.Comm) error {
		send, recv := make([]int, 1), make([]int, 1)
		sum, err := cohort.AllreduceInit(world, send, recv, cohort.Sum)
		if err != nil {
			return err
		}
		defer sum.Close()
		for i := range 3 {
			send[0] = i * world.Rank()
			if err := sum.Start(); err != nil {
				return err
			}
			if _, err := sum.Wait(); err != nil {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println(recv)
			}
		}
		return nil
	})
	// Output:
	// [0]
	// [6]
	// [12]
}

func ExampleReduceScatterBlock() {
	four(func(world *cohort.Comm) error {
		send := []int{1, 2, 3, 4, 5, 6, 7, 8} // two elements of the result for each rank
		recv := make([]int, 2)
		err := cohort.ReduceScatterBlock(world, send, recv, cohort.Sum)
		if err == nil && world.Rank() == 1 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [12 16]
}

func ExampleReduceScatter() {
	four(func(world *cohort.Comm) error {
		counts := []int{0, 1, 2, 3}
		send := []int{1, 2, 3, 4, 5, 6}
		recv := make([]int, counts[world.Rank()])
		err := cohort.ReduceScatter(world, send, recv, counts, cohort.Sum)
		if err == nil && world.Rank() == 3 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [16 20 24]
}

// A rank combines what two threads have counted before it takes part in the reduction.
func ExampleReduceLocal() {
	four(func(world *cohort.Comm) error {
		me := world.Rank()
		first, second := []int{me, 1}, []int{10 * me, 1}
		if err := cohort.ReduceLocal(first, second, cohort.Sum); err != nil {
			return err
		}
		if err := cohort.Allreduce(world, second, second, cohort.Sum); err != nil {
			return err
		}
		if me == 0 {
			fmt.Println(second)
		}
		return nil
	})
	// Output:
	// [66 8]
}

func ExampleBcastOne() {
	four(func(world *cohort.Comm) error {
		x, err := cohort.BcastOne(world, 1.5*float64(world.Rank()), 2)
		if err == nil && world.Rank() == 0 {
			fmt.Println(x)
		}
		return err
	})
	// Output:
	// 3
}

func ExampleReduceOne() {
	four(func(world *cohort.Comm) error {
		x, err := cohort.ReduceOne(world, world.Rank()+1, cohort.Prod, 0)
		if err == nil && world.Rank() == 0 {
			fmt.Println(x)
		}
		return err
	})
	// Output:
	// 24
}

func ExampleAllreduceOne() {
	four(func(world *cohort.Comm) error {
		x, err := cohort.AllreduceOne(world, world.Rank(), cohort.Sum)
		if err == nil && world.Rank() == 3 {
			fmt.Println(x)
		}
		return err
	})
	// Output:
	// 6
}

func ExampleScanOne() {
	four(func(world *cohort.Comm) error {
		x, err := cohort.ScanOne(world, world.Rank(), cohort.Sum)
		if err == nil && world.Rank() == 2 {
			fmt.Println(x)
		}
		return err
	})
	// Output:
	// 3
}

func ExampleExscanOne() {
	four(func(world *cohort.Comm) error {
		x, err := cohort.ExscanOne(world, world.Rank(), cohort.Sum)
		if err == nil && world.Rank() == 2 {
			fmt.Println(x)
		}
		return err
	})
	// Output:
	// 1
}

func ExampleScan() {
	four(func(world *cohort.Comm) error {
		send, recv := []int{world.Rank() + 1}, make([]int, 1)
		err := cohort.Scan(world, send, recv, cohort.Prod)
		if err == nil && world.Rank() == 3 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [24]
}

func ExampleExscan() {
	four(func(world *cohort.Comm) error {
		// Where does each rank's part begin, if rank r has r+1 elements?
		send, recv := []int{world.Rank() + 1}, make([]int, 1)
		err := cohort.Exscan(world, send, recv, cohort.Sum)
		if err == nil && world.Rank() == 3 {
			fmt.Println(recv)
		}
		return err
	})
	// Output:
	// [6]
}

// The other forms of reductions and scans, nonblocking and persistent.
func ExampleIreduce() {
	four(func(world *cohort.Comm) error {
		r := world.Rank()
		mine, row, ones := []int{r}, []int{10 * r, 10*r + 1, 10*r + 2, 10*r + 3}, []int{1, 1, 1, 1}
		one := make([]int, 1)
		return errors.Join(
			show(r, "Ireduce", one, waited(cohort.Ireduce(world, mine, one, cohort.Sum, 3))),
			show(r, "IreduceScatterBlock", one, waited(cohort.IreduceScatterBlock(world, row, one, cohort.Sum))),
			show(r, "IreduceScatter", one, waited(cohort.IreduceScatter(world, row, one, ones, cohort.Max))),
			show(r, "Iscan", one, waited(cohort.Iscan(world, mine, one, cohort.Sum))),
			show(r, "Iexscan", one, waited(cohort.Iexscan(world, mine, one, cohort.Sum))),
			show(r, "ReduceInit", one, ranOnce(cohort.ReduceInit(world, mine, one, cohort.Sum, 3))),
			show(r, "ReduceScatterBlockInit", one, ranOnce(cohort.ReduceScatterBlockInit(world, row, one, cohort.Sum))),
			show(r, "ReduceScatterInit", one, ranOnce(cohort.ReduceScatterInit(world, row, one, ones, cohort.Max))),
			show(r, "ScanInit", one, ranOnce(cohort.ScanInit(world, mine, one, cohort.Sum))),
			show(r, "ExscanInit", one, ranOnce(cohort.ExscanInit(world, mine, one, cohort.Sum))))
	})
	// Output:
	// Ireduce [6]
	// IreduceScatterBlock [72]
	// IreduceScatter [33]
	// Iscan [6]
	// Iexscan [3]
	// ReduceInit [6]
	// ReduceScatterBlockInit [72]
	// ReduceScatterInit [33]
	// ScanInit [6]
	// ExscanInit [3]
}

// Both have 16 bits. A Float16 has more digits, and a BFloat16 the range of a float32.
func ExampleToFloat16() {
	fmt.Println(cohort.ToFloat16(1.0/3).Float32(), cohort.ToBFloat16(1.0/3).Float32())
	// Output:
	// 0.33325195 0.33398438
}
