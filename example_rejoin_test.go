package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// Rank 1 fails, and is replaced. The others keep what they have, and hand it to the new one.
func ExampleRejoin() {
	ctx := context.Background()
	err := cohort.RunWith(ctx, 3, cohort.RunOptions{Restarts: 1}, func(world *cohort.Comm) error {
		text := ""
		if world.Generation() == 0 {
			text = "known to all"
			if world.Rank() == 1 {
				return errors.New("rank 1 fails")
			}
			err := world.Barrier()
			if !errors.Is(err, cohort.ErrPeerLost) {
				return err
			}
			if world, err = cohort.Rejoin(ctx, world); err != nil {
				return err
			}
		}
		got, err := cohort.BcastOne(world, [12]byte([]byte(text+"            ")), 0)
		if world.Rank() == 1 {
			fmt.Printf("rank 1 of %d, generation %d: %s\n", world.Size(), world.Generation(), got)
		}
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 1 of 3, generation 1: known to all
}

// A program asks between two steps whether the job is to have another size.
func ExampleComm_Resized() {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		for step := range 3 {
			resize := false
			select {
			case <-world.Resized():
				resize = true
			default:
			}
			// All ranks call Rejoin, or none.
			if any, err := cohort.AllreduceOne(world, resize, cohort.Lor); err != nil || any {
				return err
			}
			if world.Rank() == 0 {
				fmt.Println("step", step)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 0
	// step 1
	// step 2
}
