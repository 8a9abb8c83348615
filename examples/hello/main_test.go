package main

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func Example() {
	ctx := context.Background()
	fmt.Println(cohort.Run(ctx, 3, func(world *cohort.Comm) error { return hello(ctx, world) }))
	// Unordered output:
	// hello from rank 0 of 3 (backend local)
	// hello from rank 1 of 3 (backend local)
	// hello from rank 2 of 3 (backend local)
	// <nil>
}
