package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

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
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		var err error
		if world.Rank() == 2 {
			err = errors.New("open part-2.csv: no such file")
		}
		if err = cohort.JoinErrors(world, err); err != nil && world.Rank() == 0 {
			fmt.Println("rank 0 stops:", err)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
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
