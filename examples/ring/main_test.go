package main

import (
	"context"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The token visits every rank in order and returns.
func TestTokenVisitsEveryRank(t *testing.T) {
	for n, want := range map[int]string{
		1: "the token went 0 and is back\n",
		2: "the token went 0 1 and is back\n",
		7: "the token went 0 1 2 3 4 5 6 and is back\n",
	} {
		var out [7]strings.Builder
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			return ring(world, &out[world.Rank()])
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
		for rank := range n {
			if rank > 0 {
				want = ""
			}
			if got := out[rank].String(); got != want {
				t.Errorf("%d ranks: rank %d printed %q, want %q", n, rank, got, want)
			}
		}
	}
}
