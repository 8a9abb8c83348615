// Command ring sends a token once round all ranks. Every rank appends its number before it passes
// the token on, so the token is longer each time and RecvAlloc, which sizes itself, receives it.
//
//	go run ./cmd/cohort run -n 4 ./examples/ring
//
// prints, from rank 0: the token went 0 1 2 3 and is back.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cohort-hpc/cohort"
)

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error { return ring(world, os.Stdout) })
}

const tokenTag = 7

func ring(world *cohort.Comm, out io.Writer) error {
	rank, size := world.Rank(), world.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size

	if rank == 0 {
		// A nonblocking send: with one rank, next is rank 0 itself, and a blocking one might
		// wait for the receive below.
		sent, err := cohort.Isend(world, []int64{0}, next, tokenTag)
		if err != nil {
			return err
		}
		token, _, err := cohort.RecvAlloc[int64](world, previous, tokenTag)
		if err != nil {
			return err
		}
		if _, err := sent.Wait(); err != nil {
			return err
		}
		path := strings.Trim(fmt.Sprint(token), "[]")
		_, err = fmt.Fprintf(out, "the token went %s and is back\n", path)
		return err
	}

	token, _, err := cohort.RecvAlloc[int64](world, previous, tokenTag)
	if err != nil {
		return err
	}
	return cohort.Send(world, append(token, int64(rank)), next, tokenTag)
}
