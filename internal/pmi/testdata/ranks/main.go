// A program for tests of launchers and of pods: each rank says where it is, fails if it has loaded an MPI library, and does
// what its argument says, if it has one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cohort-hpc/cohort"
)

func main() {
	cohort.Main(func(ctx context.Context, world *cohort.Comm) error {
		sum, err := cohort.AllreduceOne(world, world.Rank()+1, cohort.Sum)
		if err != nil {
			return err
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil || strings.Contains(string(maps), "libmpi") {
			return fmt.Errorf("an MPI library is loaded, or %v", err)
		}
		fmt.Printf("rank %d of %d on %s, sum %d\n", world.Rank(), world.Size(), world.Backend(), sum)
		switch strings.Join(os.Args[1:], " ") {
		case "rejoin":
			if world.Generation() == 0 {
				_, err := cohort.Recv(world, make([]byte, 1), cohort.AnySource, 0) // until a rank is lost
				if !errors.Is(err, cohort.ErrPeerLost) {
					return err
				}
				if world, err = cohort.Rejoin(ctx, world); err != nil {
					return err
				}
				sum, err = cohort.AllreduceOne(world, world.Rank()+1, cohort.Sum)
			}
			fmt.Printf("rank %d of %d in generation %d, sum %d\n", world.Rank(), world.Size(), world.Generation(), sum)
			return err
		case "add":
			for err == nil {
				_, err = cohort.AllreduceOne(world, 1, cohort.Sum)
			}
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
