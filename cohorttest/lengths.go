package cohorttest

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort"
)

// Errors count in elements, as the caller does, and say the same on every backend.

const sent, room = 5, 3 // elements

// says checks that an error's text contains one of the given ones.
func says(r *Rank, what string, err error, texts ...string) {
	for _, text := range texts {
		if err != nil && strings.Contains(err.Error(), text) {
			return
		}
	}
	r.Errorf("%s: %v; want %q", what, err, texts[0])
}

// mismatchedLengths has the last rank pass another length, or other counts.
func mismatchedLengths(r *Rank) {
	n, last := r.Size, r.Size-1
	v := func(k int) []float64 { return make([]float64, k) }
	counts := each(n, func(int) int { return room })
	if r.Rank == last {
		counts[0] = sent
	}
	for _, x := range []struct {
		name string
		call func(c *cohort.Comm) error
		text []string
	}{
		{"Allgather", func(c *cohort.Comm) error {
			return cohort.Allgather(c, v(counts[0]), v(n*counts[0]))
		}, []string{fmt.Sprintf("rank 0 called Allgather(type float64, count %d), rank %d called Allgather(type float64, count %d)", room, last, sent)}},
		{"Allgatherv", func(c *cohort.Comm) error {
			return cohort.Allgatherv(c, v(counts[r.Rank]), v(n*sent), counts, each(n, func(i int) int { return i * sent }))
		}, []string{fmt.Sprintf("counts with the sum %d)", n*room+sent-room)}},
		{"ReduceScatter", func(c *cohort.Comm) error {
			mine := each(n, func(int) int { return room })
			if r.Rank == last {
				mine[0], mine[1] = mine[0]-1, mine[1]+1
			}
			err := cohort.ReduceScatter(c, v(n*room), v(mine[r.Rank]), mine, cohort.Sum)
			says(r, "ReduceScatter", err, fmt.Sprintf("; rank %d passed the counts %v", r.Rank, mine))
			return err
		}, []string{"; the counts differ"}},
	} {
		c := r.dup()
		err := x.call(c)
		if m := r.mismatch(c, err, x.name); m.err != nil {
			says(r, x.name, m.err, x.text...)
		}
	}
}
