//go:build cgo && linux

package jobtest

import (
	"fmt"
	"testing"
)

// TestLeftoverMessagesDoNotReachLaterCalls runs a short collective of which each rank is the root,
// so that its messages are left over. A later collective that is the same on all ranks must not
// receive them: a long message would then come to a short call, where Open MPI writes past the end.
func TestLeftoverMessagesDoNotReachLaterCalls(t *testing.T) {
	skipShort(t, "messages that nobody received")
	program("left over", leftOver)
	for _, library := range inTurn(t) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", library, n), func(t *testing.T) { mismatchJob(t, library, n, "left over") })
		}
	}
}

func leftOver() error {
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
