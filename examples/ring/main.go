// Command ring sends a token once round all ranks. Every rank appends its number before it passes
// the token on, so the token is longer each time and RecvAppend, which sizes itself, receives it.
//
//	go run ./cmd/cohort run -n 4 ./examples/ring
//
// prints, from rank 0: the token went [0 1 2 3] and is back.
package main

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

func main() { cohort.Main(ring) }

const tag = 7

func ring(_ context.Context, world *cohort.Comm) (err error) {
	rank, size := world.Rank(), world.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	var token []int
	if rank > 0 {
		if token, _, err = cohort.RecvAppend[int](world, nil, previous, tag); err != nil {
			return err
		}
	}
	// With one rank, next is this rank, and a blocking send might wait for the receive below.
	sent, err := cohort.Isend(world, append(token, rank), next, tag)
	if err != nil {
		return err
	}
	if rank == 0 {
		if token, _, err = cohort.RecvAppend[int](world, nil, previous, tag); err != nil {
			return err
		}
		fmt.Println("the token went", token, "and is back")
	}
	_, err = sent.Wait()
	return err
}
