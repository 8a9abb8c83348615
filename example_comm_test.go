package cohort_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
)

// A program started without a launcher is a world of one rank; under cohort run
// the same program is one rank of many.
func ExampleInit() {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer world.Close()
	fmt.Printf("rank %d of %d\n", world.Rank(), world.Size())
	// Output:
	// rank 0 of 1
}

// four runs body as four ranks of this process.
func four(body func(world *cohort.Comm) error) {
	if err := cohort.Run(context.Background(), 4, body); err != nil {
		fmt.Println(err)
	}
}

func ExampleRun() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		sum, err := cohort.AllreduceOne(world, world.Rank(), cohort.Sum)
		if world.Rank() == 0 {
			fmt.Printf("%d ranks, sum %d\n", world.Size(), sum)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 4 ranks, sum 6
}

// An error of one rank ends what the others are waiting for, and comes first.
func ExampleRun_failure() {
	errNoInput := errors.New("no input")
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		if world.Rank() == 2 {
			return errNoInput
		}
		err := world.Barrier()
		if !errors.Is(err, cohort.ErrPeerLost) {
			return err
		}
		return nil // rank 2 says why
	})
	fmt.Println(err, errors.Is(err, errNoInput))
	// Output:
	// rank 2: no input true
}

// A deadline ends an operation; the communicator stays usable.
func ExampleComm_WithContext() {
	four(func(world *cohort.Comm) error {
		if world.Rank() == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
			defer cancel()
			_, err := cohort.Recv(world.WithContext(ctx), make([]int, 1), 1, 0)
			fmt.Println(errors.Is(err, cohort.ErrTimeout))
		}
		return world.Barrier()
	})
	// Output:
	// true
}

func ExampleComm_Split() {
	four(func(world *cohort.Comm) error {
		row, err := world.Split(world.Rank()/2, 0) // ranks 0 and 1, and 2 and 3
		if err != nil {
			return err
		}
		sum, err := cohort.AllreduceOne(row, world.Rank(), cohort.Sum)
		if world.Rank() == 2 {
			fmt.Printf("rank %d of %d in its row, sum %d\n", row.Rank(), row.Size(), sum)
		}
		return err
	})
	// Output:
	// rank 0 of 2 in its row, sum 5
}

func ExampleComm_CreateGroup() {
	four(func(world *cohort.Comm) error {
		odd, err := world.Group().Incl(3, 1)
		if err != nil || odd.Rank() == cohort.Undefined {
			return err // ranks 0 and 2 take no part
		}
		c, err := world.CreateGroup(odd, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("rank %d is the first of %d\n", world.Rank(), c.Size())
		}
		return nil
	})
	// Output:
	// rank 3 is the first of 2
}

// The flight recorder keeps when each rank was in which part. After cohort run --flight FOLDER,
// cohort report --trace FILE shows it as a timeline.
func ExampleComm_Region() {
	four(func(world *cohort.Comm) error {
		assemble := world.Region("assemble")
		x := float64(world.Rank())
		assemble.End()

		defer world.Region("solve").End()
		sum, err := cohort.AllreduceOne(world, x, cohort.Sum)
		if world.Rank() == 0 {
			fmt.Println(sum)
		}
		return err
	})
	// Output:
	// 6
}

// Without a launcher the world has one rank.
func ExampleMain() {
	body := func(ctx context.Context, world *cohort.Comm) error {
		sum, err := cohort.AllreduceOne(world, 2, cohort.Sum)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d of %d: %d\n", world.Rank(), world.Size(), sum)
		return nil
	}
	cohort.Main(body) // func main() { cohort.Main(body) }
	// Output:
	// rank 0 of 1: 2
}

// One rank cannot open its file, and all ranks stop.
func ExampleJoinErrors() {
	four(func(world *cohort.Comm) error {
		var err error
		if world.Rank() == 2 {
			err = errors.New("open part-2.csv: no such file")
		}
		if err = cohort.JoinErrors(world, err); err != nil && world.Rank() == 0 {
			fmt.Println("rank 0 stops:", err)
		}
		return nil
	})
	// Output:
	// rank 0 stops: rank 2: open part-2.csv: no such file
}

// Rank 1 fails while rank 0 waits for it.
func ExampleComm_CloseWith() {
	_ = cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		if world.Rank() == 1 {
			return world.CloseWith(errors.New("open input.csv: no such file"))
		}
		err := world.Barrier()
		fmt.Println(errors.Is(err, cohort.ErrPeerLost), err)
		return err
	})
	// Output:
	// true barrier: rank 0: peer lost: rank 1 failed: open input.csv: no such file
}

// A program that continues without a rank that fails in its third step.
func ExampleComm_Shrink() {
	tired := errors.New("rank 3 gives up")
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		c := world
		for step := 0; step < 5; {
			if world.Rank() == 3 && step == 2 {
				return tired
			}
			sum, err := cohort.AllreduceOne(c, world.Rank(), cohort.Sum)
			ok := 1
			if err != nil {
				ok = 0
			}
			all, err := c.Agree(ok)
			switch {
			case err != nil:
				return err
			case all == 0: // a rank has not finished the step: repeat it without the lost ranks
				if c.Rank() == 0 {
					fmt.Println("lost:", c.Lost())
				}
				if c, err = c.Shrink(); err != nil {
					return err
				}
			default:
				if c.Rank() == 0 {
					fmt.Printf("step %d: %d ranks, sum %d\n", step, c.Size(), sum)
				}
				step++
			}
		}
		return nil
	})
	fmt.Println(errors.Is(err, tired))
	// Output:
	// step 0: 4 ranks, sum 6
	// step 1: 4 ranks, sum 6
	// lost: [3]
	// step 2: 3 ranks, sum 3
	// step 3: 3 ranks, sum 3
	// step 4: 3 ranks, sum 3
	// true
}

// A program that repeats a step without the ranks that are lost, as docs/recovery.md describes.
// Rank 1 fails in its second step.
func ExampleComm_Revoke() {
	died := errors.New("rank 1 dies")
	work := func(c *cohort.Comm, world, step int) error {
		if world == 1 && step == 1 {
			return died
		}
		_, err := cohort.AllreduceOne(c, 1, cohort.Sum)
		return err
	}
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		c := world
		for step := 0; step < 3; {
			ok := 1
			if err := work(c, world.Rank(), step); errors.Is(err, died) {
				return err
			} else if err != nil {
				ok = 0
				c.Revoke() // others may still wait in this step
			}
			all, err := c.Agree(ok)
			if err != nil {
				return err
			}
			if all == 1 {
				step++
				continue
			}
			d, err := c.Shrink()
			if err != nil {
				return err
			}
			if c != world { // closing the world leaves the job
				c.Close()
			}
			c = d
		}
		if c.Rank() == 0 {
			fmt.Println("finished by", c.Size())
		}
		return nil
	})
	fmt.Println(errors.Is(err, died))
	// Output:
	// finished by 3
	// true
}

// Under an MPI launcher the handle goes to a C library, and one that the library makes comes back.
// examples/hdf5 is a whole program.
func ExampleComm_MPIHandle() {
	four(func(world *cohort.Comm) error {
		handle, err := world.MPIHandle()
		if errors.Is(err, cohort.ErrNotSupported) {
			if world.Rank() == 0 {
				fmt.Println("the ranks do not use MPI")
			}
			return nil
		}
		if err != nil {
			return err
		}
		c, err := cohort.FromMPIHandle(handle)
		if err != nil {
			return err
		}
		return c.Close()
	})
	// Output: the ranks do not use MPI
}

// Under Run, ranks are goroutines: Abort ends no process, and the others learn of it.
func ExampleComm_Abort() {
	_ = cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		if world.Rank() == 1 {
			return world.Abort(7)
		}
		fmt.Println(errors.Is(world.Barrier(), cohort.ErrPeerLost))
		return nil
	})
	// Output:
	// true
}

// A library that communicates on its own communicator never receives the program's messages.
func ExampleComm_Dup() {
	four(func(world *cohort.Comm) error {
		own, err := world.Dup()
		if err != nil {
			return err
		}
		defer own.Close()
		if world.Rank() == 0 {
			fmt.Println(own.Size(), "ranks, another name:", own.Name() != world.Name())
		}
		return own.Barrier()
	})
	// Output:
	// 4 ranks, another name: true
}

func ExampleGroup_Union() {
	four(func(world *cohort.Comm) error {
		all := world.Group()
		low, err1 := all.Incl(0, 1)
		odd, err2 := all.Incl(1, 3)
		even, err3 := all.Excl(1, 3)
		numbers, err4 := odd.TranslateRanks([]int{0, 1}, all)
		if world.Rank() == 0 {
			fmt.Println(low.Union(odd).Size(), low.Intersection(odd).Size(), low.Difference(odd).Size())
			fmt.Println("the odd ranks are", numbers)
			sorted := even.Union(odd) // 0, 2, 1, 3
			fmt.Println("same order:", sorted.Equal(all), "same ranks:", sorted.Similar(all))
		}
		return errors.Join(err1, err2, err3, err4)
	})
	// Output:
	// 3 1 1
	// the odd ranks are [1 3]
	// same order: false same ranks: true
}

// What a program can print about itself.
func ExampleBackends() {
	for _, b := range cohort.Backends(nil) {
		if b.Name == "local" {
			fmt.Println(b.Name, "can be used:", b.Err == nil)
		}
	}
	four(func(world *cohort.Comm) error {
		if err := world.Barrier(); err != nil || world.Rank() > 0 {
			return err
		}
		var operations strings.Builder
		err := world.DumpFlight(&operations)
		fmt.Println(world.Backend(), "with its last operations:", operations.Len() > 0)
		fmt.Println("sends from device memory:", world.Devices() != nil)
		fmt.Println("tags up to 32767, as MPI demands:", world.Caps().MaxTag >= 32767)
		return err
	})
	// Output:
	// local can be used: true
	// local with its last operations: true
	// sends from device memory: false
	// tags up to 32767, as MPI demands: true
}
