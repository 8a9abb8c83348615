package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func TestHelloGreetsFromEveryRank(t *testing.T) {
	const n = 3
	var out [n]strings.Builder
	err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
		hello(world, &out[world.Rank()])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range n {
		want := fmt.Sprintf("hello from rank %d of 3 (backend local)\n", rank)
		if got := out[rank].String(); got != want {
			t.Errorf("rank %d printed %q, want %q", rank, got, want)
		}
	}
}
