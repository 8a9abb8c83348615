package main

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func Example() {
	ctx := context.Background()
	for _, n := range []int{1, 2, 7} {
		err := cohort.Run(ctx, n, func(world *cohort.Comm) error { return ring(ctx, world) })
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// the token went [0] and is back
	// the token went [0 1] and is back
	// the token went [0 1 2 3 4 5 6] and is back
}
