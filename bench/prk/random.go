package main

import (
	"fmt"
	"math/bits"

	"github.com/cohort-hpc/cohort"
)

// random updates random words of a table that is spread over the ranks: x is the next pseudo-random number, its low
// bits are the index, and the word becomes itself xor x. Each rank has its part of the sequence. It sends the updates
// of a group at a time to the ranks that have the words, or updates each word by Accumulate.
func random(world *cohort.Comm, p params) (work, seconds float64, err error) {
	size, me := world.Size(), world.Rank()
	if bits.OnesCount(uint(size)) != 1 || p.size > 40 || 1<<p.size < size {
		return 0, 0, fmt.Errorf("random wants a power of two as the number of ranks, not %d, and a -size up to 40 of which each has a part", size)
	}
	words := uint64(1) << p.size
	shift := p.size - bits.Len(uint(size)) + 1 // an index without its high bits, which are the rank
	updates := 4 * words / uint64(size)        // of each rank
	table := make([]uint64, words/uint64(size))
	var win *cohort.Window[uint64]
	if p.oneSided {
		if win, err = cohort.NewWindow[uint64](world, len(table)); err != nil {
			return 0, 0, err
		}
		defer win.Close()
		if table, err = win.Local(); err != nil {
			return 0, 0, err
		}
	}
	first := uint64(me) << shift
	for i := range table {
		table[i] = first + uint64(i)
	}
	start := jump(updates * uint64(me))
	byMessages := func() error {
		x := start
		group := make([]uint64, p.group)
		sorted, recv := make([]uint64, p.group), []uint64(nil)
		counts, at := make([]int, size), make([]int, size)
		for done := uint64(0); done < updates; done += uint64(len(group)) {
			group = group[:min(uint64(p.group), updates-done)]
			clear(counts)
			for i := range group {
				x = next(x)
				group[i] = x
				counts[x&(words-1)>>shift]++
			}
			for q, sum := 0, 0; q < size; q++ {
				at[q] = sum
				sum += counts[q]
			}
			for _, x := range group {
				q := x & (words - 1) >> shift
				sorted[at[q]] = x
				at[q]++
			}
			var err error
			if recv, _, err = cohort.AlltoallvAppend(world, recv[:0], sorted[:len(group)], counts); err != nil {
				return err
			}
			for _, x := range recv {
				table[x&uint64(len(table)-1)] ^= x
			}
		}
		return nil
	}
	byAccumulate := func() error {
		x := start
		one := make([]uint64, 1)
		for range updates {
			x = next(x)
			one[0] = x
			if err := win.Accumulate(one, int(x&(words-1)>>shift), int(x&uint64(len(table)-1)), cohort.Bxor); err != nil {
				return err
			}
		}
		return win.Fence()
	}
	step := byMessages
	if p.oneSided {
		if err := win.Fence(); err != nil { // all tables are filled
			return 0, 0, err
		}
		step = byAccumulate
	}
	if seconds, err = repeat(world, p.iterations, step); err != nil {
		return 0, 0, err
	}
	// Each rank makes the whole sequence and updates its own words. An even number of times has no effect.
	for x, i := jump(0), uint64(0); p.iterations%2 == 0 && i < 4*words; i++ {
		x = next(x)
		if index := x & (words - 1); int(index>>shift) == me {
			table[index-first] ^= x
		}
	}
	wrong := 0.0
	for i, x := range table {
		if x != first+uint64(i) {
			wrong++
		}
	}
	return 4 * float64(words), seconds, verify(world, wrong)
}

// next returns the pseudo-random number behind x: x times the unknown of the polynomials over the field of two
// elements, modulo a primitive polynomial.
func next(x uint64) uint64 { return x<<1 ^ uint64(int64(x)>>63)&7 }

// jump returns the number that n steps of next make of 1: a power, by squaring.
func jump(n uint64) uint64 {
	x := uint64(1)
	for bit := bits.Len64(n) - 1; bit >= 0; bit-- {
		x = times(x, x)
		if n>>bit&1 == 1 {
			x = next(x)
		}
	}
	return x
}

// times multiplies two polynomials.
func times(a, b uint64) (product uint64) {
	for ; b != 0; b >>= 1 {
		if b&1 == 1 {
			product ^= a
		}
		a = next(a)
	}
	return product
}
