// Command counter counts the primes below a million. It shows a one-sided window: the ranks draw blocks of
// numbers from a counter on rank 0, which computes like the others. Blocks of large numbers take longer, so
// ranks that draw small ones come back for more.
//
//	go run ./cmd/cohort run -n 4 ./examples/counter
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

const limit, block = 1_000_000, 10_000

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		primes, err := count(world, limit)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%d primes below %d\n", primes, limit)
		}
		return err
	})
}

// count returns the number of primes below limit. All ranks call it.
func count(world *cohort.Comm, limit int) (primes int, err error) {
	counter, err := cohort.NewWindow[int64](world, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, counter.Close()) }()
	for {
		next, err := counter.FetchAndOp(block, 0, 0, cohort.Sum)
		if err != nil {
			return 0, err
		}
		if int(next) >= limit {
			break
		}
		for n := int(next); n < min(int(next)+block, limit); n++ {
			if prime(n) {
				primes++
			}
		}
	}
	return cohort.AllreduceOne(world, primes, cohort.Sum)
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}
