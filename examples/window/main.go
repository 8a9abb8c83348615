// Command window finds out how large a prime it takes to write an even number up to 1000000 as the
// sum of two (Goldbach's conjecture says that two are enough). It shows memory that the ranks of a
// node share: each node has one table of primes, which its ranks fill together. After a fence each
// rank reads all of it.
//
//	go run ./cmd/cohort run -n 4 ./examples/window
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

const limit = 1_000_000

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		hardest, err := goldbach(world, limit)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("every even number up to %d is the sum of two primes; %d needs the largest: %d + %d\n",
				limit, hardest.Idx, hardest.Val, hardest.Idx-hardest.Val)
		}
		return err
	})
}

// goldbach returns the even number, from 4 to limit, of which the smaller of two primes it is the sum
// of has to be the largest, and that prime; the lowest such number. All ranks call it.
func goldbach(world *cohort.Comm, limit int) (hardest cohort.Loc[int64], err error) {
	table, err := cohort.NewSharedRegion[bool](world, limit+1)
	if err != nil {
		return hardest, err
	}
	// Slices of the table must not be used after this.
	defer func() { err = errors.Join(err, table.Close()) }()

	// Every rank of a node writes its part of the node's copy.
	node := table.Node()
	lo, hi := cohort.Block(limit+1, node.Size(), node.Rank())
	part, err := table.Range(lo, hi)
	if err != nil {
		return hardest, err
	}
	sieve(part, lo)
	if err := table.Fence(); err != nil { // all parts are written
		return hardest, err
	}
	prime, err := table.Slice()
	if err != nil {
		return hardest, err
	}

	// Every rank of the world takes its part of the numbers, and may need any prime for that.
	lo, hi = cohort.Block(limit/2+1, world.Size(), world.Rank())
	for half := max(lo, 2); half < hi; half++ {
		even := 2 * half
		p := 2
		for p <= half && !(prime[p] && prime[even-p]) {
			p++
		}
		if p > half {
			return hardest, fmt.Errorf("%d is not the sum of two primes", even) // and the conjecture is wrong
		}
		if int64(p) > hardest.Val {
			hardest = cohort.Loc[int64]{Val: int64(p), Idx: int64(even)}
		}
	}
	return cohort.AllreduceOne(world, hardest, cohort.MaxLoc) // the lower number of equals
}

// sieve sets prime[i] where lo+i is prime. The memory of a new region is zero.
func sieve(prime []bool, lo int) {
	hi := lo + len(prime)
	for i := range prime {
		prime[i] = lo+i >= 2
	}
	for d := 2; d*d < hi; d++ {
		for m := max(d*d, (lo+d-1)/d*d); m < hi; m += d {
			prime[m-lo] = false
		}
	}
}
