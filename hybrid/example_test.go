package hybrid_test

import (
	"context"
	"fmt"
	"os"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
)

// A program on ranks times threads: each rank adds up its part of the numbers, its
// workers their parts of that. It gives the same result however it is started.
func Example() {
	env, err := hybrid.Start(context.Background(), &hybrid.Config{Threads: 4})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer env.Close()

	const n = 1000
	lo, hi := env.World.Rank()*n/env.World.Size(), (env.World.Rank()+1)*n/env.World.Size()
	sums := make([]int, env.Pool.Workers())
	err = pool.ForEach(env.Pool, hi-lo, func(worker, i int) error {
		sums[worker] += lo + i
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	mine := 0
	for _, s := range sums {
		mine += s
	}
	total, err := cohort.AllreduceOne(env.World, mine, cohort.Sum)
	fmt.Println(total, err)
	// Output: 499500 <nil>
}

// Ranks that are there already, here as goroutines, get workers by Join. Those of a
// rank keep what they work with in workspaces of their own.
func ExampleJoin() {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		env, err := hybrid.Join(world, &hybrid.Config{
			Threads:   2,
			Workspace: func(worker int) (any, error) { return make([]float64, 1000), nil },
		})
		if err != nil {
			return err
		}
		defer env.Close()
		err = pool.ForEachWorker(env.Pool, func(worker int) error {
			x := env.Workspaces.At(worker).([]float64)
			x[0] = float64(worker)
			return nil
		})
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%d ranks of %d workers\n", world.Size(), env.Pool.Workers())
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// 2 ranks of 2 workers
	// <nil>
}
