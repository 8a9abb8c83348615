package cohort_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

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
