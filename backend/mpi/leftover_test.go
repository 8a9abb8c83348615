//go:build cgo && linux

package mpi_test

import (
	"fmt"
	"testing"
)

// A short collective that each rank takes to be rooted at itself leaves a message
// behind. A later one that is the same on all ranks must not take that for its own,
// and so leave a long message that comes to a short call: Open MPI would write all
// of it behind that call's buffer.
func TestLeftOverMessages(t *testing.T) {
	leftOut(t, "messages that nobody received")
	program("leave over", leaveOver)
	for _, library := range libraries {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", library, n), func(t *testing.T) { mismatchJob(t, library, n, "leave over") })
		}
	}
}

func leaveOver() error {
	r, err := newReckless()
	if err != nil {
		return err
	}
	for _, coll := range []string{"Bcast", "Scatter"} {
		for _, n := range []int{2000, 7000, 100000} {
			for _, form := range []form{blocking, persistent} {
				c, err := r.w.Dup()
				if err != nil {
					return err
				}
				var mine []planned
				for _, s := range []step{
					{coll: coll, n: 2, root: r.w.Rank()},
					{coll: coll, n: n, form: form},
					{coll: coll, n: 2},
					{coll: coll, n: 2},
				} {
					mine = append(mine, r.plan(s, r.at+64))
					r.at += (n + 64) * 4
				}
				r.run(c, mine, 0)
			}
		}
	}
	return r.end()
}
