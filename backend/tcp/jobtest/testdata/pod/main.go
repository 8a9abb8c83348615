// A program for the test of pods: a rank prints a sum over all ranks and does what its argument says.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cohort-hpc/cohort"
)

func main() {
	cohort.Main(func(ctx context.Context, world *cohort.Comm) error {
		sum, err := cohort.AllreduceOne(world, world.Rank()+1, cohort.Sum)
		if err != nil {
			return err
		}
		fmt.Printf("rank %d of %d on %s, sum %d\n", world.Rank(), world.Size(), world.Backend(), sum)
		switch os.Args[1] {
		case "fail":
			if world.Rank() == 1 {
				return errors.New("no more work")
			}
			fallthrough
		case "wait": // for a message that does not come
			_, err = cohort.Recv(world, make([]byte, 1), cohort.AnySource, 0)
			if ctx.Err() != nil {
				fmt.Printf("rank %d saves its work\n", world.Rank())
			}
		}
		return err
	})
}
