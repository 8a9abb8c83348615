// Command hybrid looks for the number below 1000000 whose Collatz sequence (n/2 of an even n, 3n+1
// of an odd one) takes the most steps to 1. It shows ranks times threads: every rank has a part of
// the numbers, and the threads of its pool share that out, block by block, as they get done.
//
//	go run ./cmd/cohort run -n 2 ./examples/hybrid
//	COHORT_THREADS=2 go run ./examples/hybrid
//
// The first line, on standard error, says what runs where. COHORT_PIN=cores pins the threads.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/pool"
)

const limit = 1_000_000

func main() { cohort.Main(report) }

func report(_ context.Context, world *cohort.Comm) error {
	env, err := hybrid.Join(world, &hybrid.Config{Summary: os.Stderr})
	if err != nil {
		return err
	}
	longest, err := collatz(env, limit)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("below %d, %d takes the most steps: %d\n", limit, longest.Idx, longest.Val)
	}
	return env.Close()
}

// perBlock is how many numbers a thread takes at a time. Blocks differ in how long they take, which
// is why none belongs to a thread beforehand.
const perBlock = 1000

// collatz returns the number below limit that takes the most steps, the lowest of equals, and the
// steps. All ranks call it.
func collatz(env *hybrid.Env, limit int) (cohort.Loc[int64], error) {
	blocks := (limit + perBlock - 1) / perBlock
	lo, hi := cohort.Block(blocks, env.World.Size(), env.World.Rank())

	// One result per block, and not per thread: which thread does what is another matter in every
	// run, and the result is not.
	longest, err := pool.Map(env.Pool, hi-lo, func(_, i int) (cohort.Loc[int64], error) {
		first := (lo + i) * perBlock
		return inBlock(max(first, 1), min(first+perBlock, limit)), nil
	})
	if err != nil {
		return cohort.Loc[int64]{}, err
	}
	var mine cohort.Loc[int64]
	for _, b := range longest {
		if b.Val > mine.Val || mine.Idx == 0 {
			mine = b
		}
	}
	if mine.Idx == 0 {
		mine = cohort.Loc[int64]{Val: -1} // more ranks than blocks: this one has nothing
	}
	return cohort.AllreduceOne(env.World, mine, cohort.MaxLoc)
}

// inBlock returns the first number from lo to before hi of those with the most steps.
func inBlock(lo, hi int) cohort.Loc[int64] {
	most := cohort.Loc[int64]{Val: -1}
	for n := lo; n < hi; n++ {
		if s := steps(uint64(n)); s > most.Val {
			most = cohort.Loc[int64]{Val: s, Idx: int64(n)}
		}
	}
	return most
}

// steps returns how many steps n takes to 1.
func steps(n uint64) (count int64) {
	for ; n != 1; count++ {
		if n%2 == 0 {
			n /= 2
		} else {
			n = 3*n + 1
		}
	}
	return count
}
