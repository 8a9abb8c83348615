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
	"io"
	"log"
	"os"

	"github.com/cohort-hpc/cohort"
)

func main() {
	world, err := cohort.Init(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer world.Close()
	hello(world, os.Stdout)
}

func hello(world *cohort.Comm, out io.Writer) {
	fmt.Fprintf(out, "hello from rank %d of %d (backend %s)\n", world.Rank(), world.Size(), world.Backend())
}
