package cohorttest

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// The collectives that exchange the counts and allocate what they receive.

func countScenarios() []scenario {
	return []scenario{
		{name: "counts/lengths", body: func(r *Rank) {
			for _, m := range lengths {
				m = min(m, max(m/r.Size, long/4))
				unknownCounts(r, packeds, m)
				unknownCounts(r, uint8s, m)
				unknownCounts(r, triples, m)
			}
		}},
		{name: "counts/mismatch", sizes: atLeast(2), body: mismatchedAlloc},
	}
}

// unknownCounts calls each of the collectives. Rank i contributes i mod 4 times m/3 elements, and sends
// rank j (2i+j) mod 4 times m/3 of them in AlltoallvAlloc.
func unknownCounts[T comparable](r *Rank, k kind[T], m int) {
	seed := m + 1
	block := func(rank, n int) []T { // the first n elements of what a rank contributes
		s := make([]T, n)
		for i := range s {
			s[i] = k.elem(value(seed, rank, i))
		}
		return s
	}
	same := func(what string, got, want []T, counts, wantCounts []int) {
		if !slices.Equal(got, want) || !slices.Equal(counts, wantCounts) {
			r.Errorf("%s of %d %s: %d elements with counts %v, want %d with %v, or the elements differ",
				what, m, k.name, len(got), counts, len(want), wantCounts)
		}
	}

	length := func(rank int) int { return rank % 4 * m / 3 }
	var all []T
	for i := range r.Size {
		all = append(all, block(i, length(i))...)
	}
	mine := block(r.Rank, length(r.Rank))
	got, counts := must2(cohort.AllgathervAlloc(r.Comm, mine))
	same("AllgathervAlloc", got, all, counts, each(r.Size, length))
	for _, root := range []int{0, r.Size / 2, r.Size - 1} {
		got, counts := must2(cohort.GathervAlloc(r.Comm, mine, root))
		if r.Rank == root {
			same("GathervAlloc", got, all, counts, each(r.Size, length))
		} else if got != nil || counts != nil {
			r.Errorf("GathervAlloc returns %d elements and counts %v on a rank that is not the root", len(got), counts)
		}
	}

	count := func(from, to int) int { return (2*from + to) % 4 * m / 3 }
	sends := func(from int) (blocks [][]T) { // what a rank sends, divided
		n := 0
		for to := range r.Size {
			n += count(from, to)
		}
		whole := block(from, n)
		for to := range r.Size {
			blocks = append(blocks, whole[:count(from, to)])
			whole = whole[count(from, to):]
		}
		return blocks
	}
	var want []T
	for from := range r.Size {
		want = append(want, sends(from)[r.Rank]...)
	}
	got, counts = must2(cohort.AlltoallvAlloc(r.Comm, slices.Concat(sends(r.Rank)...), each(r.Size, func(to int) int { return count(r.Rank, to) })))
	same("AlltoallvAlloc", got, want, counts, each(r.Size, func(from int) int { return count(from, r.Rank) }))
}

// mismatchedAlloc has one rank make another call than the others.
func mismatchedAlloc(r *Rank) {
	x, counts := []int32{1}, each(r.Size, func(to int) int { return 1 - min(to, 1) })
	for _, o := range []struct {
		name       string
		usual, odd func(c *cohort.Comm) error
		words      []string
	}{
		{"the collective that needs counts",
			func(c *cohort.Comm) error { _, _, err := cohort.AllgathervAlloc(c, x); return err },
			func(c *cohort.Comm) error {
				return cohort.Allgatherv(c, x, make([]int32, r.Size), each(r.Size, func(int) int { return 1 }), each(r.Size, func(i int) int { return i }))
			},
			[]string{"AllgathervAlloc", "Allgatherv("}},
		{"another type",
			func(c *cohort.Comm) error { _, _, err := cohort.AllgathervAlloc(c, x); return err },
			func(c *cohort.Comm) error { _, _, err := cohort.AllgathervAlloc(c, []float32{1}); return err },
			[]string{"int32", "float32"}},
		{"another root",
			func(c *cohort.Comm) error { _, _, err := cohort.GathervAlloc(c, x, 0); return err },
			func(c *cohort.Comm) error { _, _, err := cohort.GathervAlloc(c, x, 1); return err },
			[]string{"GathervAlloc", "root 0", "root 1"}},
		{"few counts",
			func(c *cohort.Comm) error { _, _, err := cohort.AlltoallvAlloc(c, x, counts); return err },
			func(c *cohort.Comm) error { _, _, err := cohort.AlltoallvAlloc(c, x, counts[1:]); return err },
			[]string{"AlltoallvAlloc", "argument error"}},
	} {
		for _, who := range []int{0, r.Size - 1} {
			c, err := r.Comm.Dup()
			r.OK(err)
			if r.Rank == who {
				if err = o.odd(c); o.name == "few counts" {
					r.Is(err, cohort.ErrCount, "AlltoallvAlloc with few counts")
					err = c.Barrier()
					r.Is(err, cohort.ErrBroken, "Barrier after it")
					r.OK(c.Close())
					continue
				}
			} else {
				err = o.usual(c)
			}
			if ok, err := r.mismatch(c, err, o.name); ok {
				names(r, err, o.words...)
			}
			broken(r, c, o.name)
			r.OK(c.Close())
		}
	}
}
