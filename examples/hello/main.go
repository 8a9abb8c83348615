// Command hello is the smallest program: every rank joins the job, says which one it is, and
// leaves. Started alone it is a job of one rank.
//
//	go run ./cmd/cohort run -n 4 ./examples/hello
//
// Ranks print when they like, so the order of the lines differs from run to run.
package main

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func main() { cohort.Main(hello) }

func hello(_ context.Context, world *cohort.Comm) error {
	_, err := fmt.Printf("hello from rank %d of %d (backend %s)\n", world.Rank(), world.Size(), world.Backend())
	return err
}
