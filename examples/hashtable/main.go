// Command hashtable finds the numbers below a million that are the sum of two positive cubes in two ways. The
// first is 1729. The program shows a hash table that is spread over all ranks, in a one-sided window: each
// rank inserts its sums wherever they belong, and no rank waits for another.
//
//	go run ./cmd/cohort run -n 4 ./examples/hashtable
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
)

const limit = 1_000_000

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		numbers, err := twice(world, limit)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%d numbers below %d are the sum of two cubes in two ways, from %d to %d\n",
				len(numbers), limit, numbers[0], numbers[len(numbers)-1])
		}
		return err
	})
}

// twice returns the numbers below limit that are the sum of two positive cubes in at least two ways, in order.
// All ranks call it.
func twice(world *cohort.Comm, limit int64) (numbers []int64, err error) {
	side := int64(1) // the largest number with a cube below limit
	for (side+1)*(side+1)*(side+1) < limit {
		side++
	}
	t, err := newTable(world, int(side*side))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	for a := 1 + int64(world.Rank()); a <= side; a += int64(world.Size()) {
		for b := int64(1); b <= a; b++ {
			if sum := a*a*a + b*b*b; sum < limit {
				if err := t.add(sum); err != nil {
					return nil, err
				}
			}
		}
	}
	mine, err := t.counted(2)
	if err != nil {
		return nil, err
	}
	numbers, _, err = cohort.AllgathervAppend(world, nil, mine)
	slices.Sort(numbers)
	return numbers, err
}

// table counts keys. Every rank has a part of the slots. A slot is two elements: the key, 0 if the slot is
// free, and how often it was added.
type table struct {
	w            *cohort.Window[int64]
	ranks, slots int
}

var errFull = errors.New("the hash table is full; make it for more keys")

// newTable makes a table for the given number of keys. All ranks call it.
func newTable(world *cohort.Comm, keys int) (*table, error) {
	slots := 2*keys/world.Size() + 16
	w, err := cohort.NewWindow[int64](world, 2*slots)
	return &table{w, world.Size(), slots}, err
}

// add counts a key. The rank that adds it first sets a free slot to the key, and the others find it there.
func (t *table) add(key int64) error {
	h := uint64(key) * 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, volume 3, section 6.4)
	rank, slot := int(h>>32%uint64(t.ranks)), int(h>>40%uint64(t.slots))
	for range t.slots {
		was, err := t.w.CompareAndSwap(0, key, rank, 2*slot)
		if err != nil {
			return err
		}
		if was == 0 || was == key {
			return t.w.Accumulate([]int64{1}, rank, 2*slot+1, cohort.Sum)
		}
		slot = (slot + 1) % t.slots
	}
	return errFull
}

// counted returns this rank's keys that were added at least n times. All ranks call it.
func (t *table) counted(n int64) (keys []int64, err error) {
	if err := t.w.Fence(); err != nil { // waits until all ranks have added their keys
		return nil, err
	}
	mine, err := t.w.Local()
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(mine); i += 2 {
		if mine[i+1] >= n {
			keys = append(keys, mine[i])
		}
	}
	return keys, nil
}

// close frees the table. All ranks call it.
func (t *table) close() error { return t.w.Close() }
