// A program for tests of launchers: each rank says where it is, and fails if it has loaded an MPI library.
package main

import (
	"context"
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
		return nil
	})
}
