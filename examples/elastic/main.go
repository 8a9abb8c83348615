// Command elastic goes on after it has lost ranks. It sums up the squares of all numbers below 1000, in steps, and
// every rank keeps the whole state: the step, and the sum so far.
//
//	go run ./cmd/cohort run -n 4 --restarts 2 ./examples/elastic -kill 2
//
// With -kill, that rank kills its process in the middle, or after -at steps. Another process takes its place, the others hand it the state,
// and the result is the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cohort-hpc/cohort"
)

const (
	steps = 100
	each  = 10 // numbers in a step
)

var (
	kill = flag.Int("kill", -1, "the `RANK` that kills its process, once")
	at   = flag.Int("at", steps/2, "after this many `STEPS`")
)

func main() {
	flag.Parse()
	cohort.Main(elastic)
}

// state is what a process that takes the place of a lost one needs.
type state struct {
	Step int
	Sum  int
}

func elastic(ctx context.Context, world *cohort.Comm) error {
	var s state
	for {
		err := s.handOver(world)
		for err == nil && s.Step < steps {
			err = s.step(world)
		}
		if err == nil {
			dieIfAsked(world, s.Step)
			err = world.Barrier() // fails if a rank has been lost since its last step
		}
		done := 1
		if err != nil {
			done = 0
		}
		switch all, agreed := world.Agree(done); {
		case agreed != nil:
			return agreed
		case all == 1: // on every rank: none finishes while another needs it
			if world.Rank() == 0 {
				fmt.Printf("the sum is %d, in generation %d\n", s.Sum, world.Generation())
			}
			return nil
		case err != nil && !errors.Is(err, cohort.ErrPeerLost):
			return err
		}
		next, err := cohort.Rejoin(ctx, world)
		switch {
		case errors.Is(err, cohort.ErrClosed):
			return nil // the job shrinks, and goes on without this rank
		case err != nil:
			return err
		}
		world = next
	}
}

// handOver gives every rank the latest state that one of them has. A rank may have finished a step that others have not.
func (s *state) handOver(world *cohort.Comm) error {
	latest, err := cohort.AllreduceOne(world, cohort.Loc[int]{Val: s.Step, Idx: int64(world.Rank())}, cohort.MaxLoc)
	if err != nil {
		return err
	}
	*s, err = cohort.BcastOne(world, *s, int(latest.Idx))
	return err
}

// step adds the squares of the next numbers, which the ranks share.
func (s *state) step(world *cohort.Comm) error {
	dieIfAsked(world, s.Step)
	mine := 0
	for i := s.Step*each + world.Rank(); i < (s.Step+1)*each; i += world.Size() {
		mine += i * i
	}
	sum, err := cohort.AllreduceOne(world, mine, cohort.Sum)
	if err == nil {
		s.Sum += sum
		s.Step++
	}
	return err
}

// dieIfAsked kills the process if -kill and -at say so.
func dieIfAsked(world *cohort.Comm, step int) {
	if world.Rank() == *kill && step == *at && world.Generation() == 0 {
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Kill()
		}
	}
}
