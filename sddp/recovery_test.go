package sddp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// errDies is the panic value with which a rank dies in these tests.
var errDies = errors.New("dies for the test")

// A training continues when ranks die, rank 0 included, one after the other or together, until one rank is
// left. The others get the same bits and repeat no completed iteration.
func TestTrainingContinuesAfterLosses(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 9, Passes: 5, Openings: 3, Seed: 3}
	if testing.Short() {
		opt.Passes, opt.Openings = 3, 2
	}
	losses := []loss{
		{4, map[int]int{0: 2, 1: 4, 3: 7}, "[[0] [1] [3]]"},
		{3, map[int]int{1: 9}, "[[1]]"},  // the last one
		{4, map[int]int{1: 3, 2: 3}, ""}, // at once, or one after the other
		{2, map[int]int{1: 1}, "[[1]]"},
		{2, map[int]int{0: 4}, "[[0]]"},
		{4, map[int]int{2: 3}, "[[2]]"},
		{6, map[int]int{0: 3, 2: 5, 5: 8}, "[[0] [2] [5]]"},
	}
	if testing.Short() {
		losses = losses[:3]
	}
	// With all that a training has besides cuts: old cuts, and the trial points of the selection.
	before := opt
	before.Iterations = 2
	selects := opt
	selects.Warm, selects.CutSelection = trained(t, c, before).Policy, true
	continuesAfter(t, c, selects, losses)
	// With a list of cuts for each opening.
	before.MultiCut, opt.MultiCut = true, true
	opt.Warm = trained(t, c, before).Policy
	continuesAfter(t, c, opt, losses[:1])
}

// loss says when ranks die in a training.
type loss struct {
	ranks int
	dies  map[int]int // iteration of death, by rank
	lost  string
}

func continuesAfter(t *testing.T, c *Case, opt Options, losses []loss) {
	t.Helper()
	trainings, simulations := onRanks(t, 1, c, opt, 30)
	want, wantSim := trainings[0], simulations[0]
	for _, k := range losses {
		dir := t.TempDir()
		var mu sync.Mutex
		survived := 0
		err := cohort.Run(context.Background(), k.ranks, func(world *cohort.Comm) error {
			opt := opt
			rec := &Recovery{}
			defer rec.Close()
			opt.Recovery, opt.Checkpoint, opt.CheckpointEvery = rec, dir, 2
			var did []int
			opt.Progress = func(it Iteration) {
				if did = append(did, it.Number); it.Number == k.dies[world.Rank()] {
					panic(errDies)
				}
			}
			tr, err := Train(context.Background(), world, c, opt)
			if err != nil {
				return err
			}
			sim, err := Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: 30, Recovery: rec})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			survived++
			if err := sameTraining(tr, want); err != nil {
				t.Errorf("%+v, rank %d: %v", k, world.Rank(), err)
			}
			if !reflect.DeepEqual(sim, wantSim) {
				t.Errorf("%+v, rank %d: the simulation differs", k, world.Rank())
			}
			var each []int
			for i := range opt.Iterations {
				each = append(each, i+1)
			}
			if !slices.Equal(did, each) {
				t.Errorf("%+v, rank %d did iterations %v", k, world.Rank(), did)
			}
			var lost [][]int
			n := 0
			for _, l := range rec.Losses() {
				lost = append(lost, l.Ranks)
				n += len(l.Ranks)
				at := k.dies[l.Ranks[len(l.Ranks)-1]]
				if l.Left != k.ranks-n || l.Iteration < at || l.Iteration > at+1 {
					t.Errorf("%+v, rank %d: %v; want iteration %d or the next one repeated", k, world.Rank(), l, at)
				}
			}
			if n != len(k.dies) || k.lost != "" && fmt.Sprint(lost) != k.lost || rec.World(world).Size() != k.ranks-n {
				t.Errorf("%+v, rank %d: lost %v, want %s", k, world.Rank(), lost, k.lost)
			}
			return nil
		})
		if !errors.Is(err, errDies) || survived != k.ranks-len(k.dies) {
			t.Errorf("%+v: %d ranks finished: %v", k, survived, err)
		}
		again := opt
		again.Resume = dir
		if got := trained(t, c, again); sameTraining(got, want) != nil || got.Resumed != opt.Iterations {
			t.Errorf("%+v: the checkpoints have %d iterations, or other ones", k, got.Resumed)
		}
	}
}

// TestTrainingContinuesWhenRankClosesBeforeItIsLost has rank 1 close its communicators, as a deferred Close does
// in a panic, and end only after the others continue without it. Its loss ends their communicator again.
func TestTrainingContinuesWhenRankClosesBeforeItIsLost(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 6, Passes: 2, Openings: 3}
	continued := make(chan struct{}, 4)
	var survived atomic.Int32
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		opt, rec := opt, &Recovery{}
		defer rec.Close()
		rec.Lost = func(l Loss) {
			if slices.Contains(l.Ranks, 1) {
				continued <- struct{}{}
			}
		}
		opt.Recovery = rec
		opt.Progress = func(it Iteration) {
			switch {
			case it.Number == 2 && world.Rank() == 0:
				panic(errDies)
			case it.Number == 4 && world.Rank() == 1:
				rec.Close()
				<-continued
				<-continued
				panic(errDies)
			}
		}
		if _, err := Train(context.Background(), world, c, opt); err != nil {
			return err
		}
		survived.Add(1)
		return nil
	})
	if !errors.Is(err, errDies) || survived.Load() != 2 {
		t.Errorf("%d ranks finished: %v", survived.Load(), err)
	}
}

// The rank that takes over from rank 0 does not count a newer damaged checkpoint as saved.
func TestRecoverySkipsDamagedCheckpoint(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 5, Passes: 2, Openings: 3, CheckpointEvery: maxIterations, Checkpoint: t.TempDir()}
	trained(t, c, opt)
	if err := os.WriteFile(filepath.Join(opt.Checkpoint, checkpointName(maxIterations)), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	opt.Iterations, opt.Resume = maxIterations, opt.Checkpoint
	var at *CheckpointError
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		opt, rec, stop := opt, &Recovery{}, make(chan struct{})
		defer rec.Close()
		opt.Recovery, opt.Stop = rec, stop
		opt.Progress = func(it Iteration) {
			switch {
			case it.Number == 6 && world.Rank() == 0:
				panic(errDies)
			case it.Number == 6:
				close(stop)
			}
		}
		_, err := Train(context.Background(), world, c, opt)
		if !errors.Is(err, ErrStopped) || !errors.As(err, &at) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if !errors.Is(err, errDies) || at == nil {
		t.Fatal(err)
	}
	if at.Iterations < 6 || at.Iterations >= maxIterations || at.Unsaved != nil {
		t.Errorf("%d iterations are reported as saved (%v), want the completed ones", at.Iterations, at.Unsaved)
	}
	if got, want := names(t, opt.Checkpoint), []string{checkpointName(5), checkpointName(at.Iterations)}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}

// An error of a living rank ends the operation on all ranks; it is not repeated.
func TestErrorWithoutLossEndsRecovery(t *testing.T) {
	cause := errors.New("no license")
	var mu sync.Mutex
	calls, got := map[int]int{}, map[int]error{}
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		rec := &Recovery{}
		defer rec.Close()
		err := rec.Do(world, func(world *cohort.Comm) error {
			mu.Lock()
			calls[world.Rank()]++
			mu.Unlock()
			if world.Rank() == 1 {
				return cause
			}
			return world.Barrier()
		})
		mu.Lock()
		got[world.Rank()] = err
		mu.Unlock()
		return nil
	})
	if err != nil || got[1] != cause || !errors.Is(got[0], ErrPeer) || !errors.Is(got[2], ErrPeer) || fmt.Sprint(calls) != "map[0:1 1:1 2:1]" {
		t.Errorf("got %v and %v after %v calls; want the rank's own error and ErrPeer", err, got, calls)
	}
}

// A simulation, and a later operation with the shrunk communicator, continue after a loss.
func TestSimulationContinuesAfterLoss(t *testing.T) {
	c := readShipped(t, "toy")
	trainings, simulations := onRanks(t, 1, c, Options{Iterations: 3, Passes: 2, Openings: 3}, 1500)
	for victim := range 3 {
		var mu sync.Mutex
		survived := 0
		err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			rec := &Recovery{}
			defer rec.Close()
			ctx := context.Background()
			if world.Rank() == victim {
				ctx = mortal{ctx}
			}
			sim, err := Simulate(ctx, world, c, trainings[0].Policy, SimulateOptions{Scenarios: 1500, Recovery: rec})
			if err != nil {
				return err
			}
			mu.Lock()
			survived++
			mu.Unlock()
			if !reflect.DeepEqual(sim, simulations[0]) || fmt.Sprint(rec.Losses()) != fmt.Sprintf("[lost rank %d; continuing with 2 ranks]", victim) {
				return fmt.Errorf("rank %d: another simulation, or %v", world.Rank(), rec.Losses())
			}
			return rec.Do(world, (*cohort.Comm).Barrier)
		})
		if !errors.Is(err, errDies) || survived != 2 {
			t.Errorf("without rank %d: %d ranks finished: %v", victim, survived, err)
		}
	}
}

// mortal is a context that kills its rank at the first linear program.
type mortal struct{ context.Context }

func (mortal) Err() error { panic(errDies) }
