package sddp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
)

// errDies is the panic value with which a rank dies in these tests.
var errDies = errors.New("dies for the test")

// A training continues when ranks die, rank 0 included, one after the other or together: without them until one rank is
// left, or with others in their places. The ranks get the bits of an undisturbed training, and survivors repeat no
// completed iteration.
func TestTrainingContinuesAfterLosses(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 9, Passes: 5, Openings: 3, Seed: 3}
	if testing.Short() {
		opt.Passes, opt.Openings = 3, 2
	}
	losses := []loss{
		{4, false, map[int]int{0: 2, 1: 4, 3: 7}, "[[0] [1] [3]]"},
		{4, true, map[int]int{0: 2, 1: 4, 3: 7}, "[[0] [1] [3]]"},
		{3, false, map[int]int{1: 9}, "[[1]]"}, // the last one
		{3, true, map[int]int{0: 9}, "[[0]]"},
		{4, false, map[int]int{1: 3, 2: 3}, ""}, // at once, or one after the other
		{4, true, map[int]int{0: 3, 2: 3}, ""},
		{2, false, map[int]int{1: 1}, "[[1]]"},
		{2, true, map[int]int{0: 1}, "[[0]]"},
		{2, false, map[int]int{0: 4}, "[[0]]"},
		{4, false, map[int]int{2: 3}, "[[2]]"},
		{6, false, map[int]int{0: 3, 2: 5, 5: 8}, "[[0] [2] [5]]"},
		{6, true, map[int]int{0: 3, 2: 5, 5: 8}, "[[0] [2] [5]]"},
	}
	if testing.Short() {
		losses = losses[1:4]
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
	ranks    int
	replaced bool
	dies     map[int]int // iteration of death, by rank
	lost     string
}

func continuesAfter(t *testing.T, c *Case, opt Options, losses []loss) {
	t.Helper()
	trainings, simulations := onRanks(t, 1, c, opt, 30)
	want, wantSim := trainings[0], simulations[0]
	for _, k := range losses {
		dir := t.TempDir()
		var mu sync.Mutex
		finished := 0
		var with cohort.RunOptions
		left := func(losses int) int { return k.ranks - losses }
		if k.replaced {
			with.Restarts = len(k.dies)
			left = func(int) int { return k.ranks }
		}
		err := cohort.RunWith(context.Background(), k.ranks, with, func(world *cohort.Comm) error {
			opt, me, isNew := opt, world.Rank(), world.Generation() > 0
			rec := &Recovery{}
			opt.Recovery, opt.Checkpoint, opt.CheckpointEvery = rec, dir, 2
			var did []int
			opt.Progress = func(it Iteration) {
				if did = append(did, it.Number); it.Number == k.dies[me] && !isNew {
					panic(errDies)
				}
			}
			var tr *Training
			var sim *Simulation
			err := rec.Do(context.Background(), world, func(world *cohort.Comm) (err error) {
				if tr, err = Train(context.Background(), world, c, opt); err == nil {
					sim, err = Simulate(context.Background(), world, c, tr.Policy, SimulateOptions{Scenarios: 30})
				}
				return err
			})
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			finished++
			if err := sameTraining(tr, want); err != nil {
				t.Errorf("%+v, rank %d: %v", k, me, err)
			}
			if !reflect.DeepEqual(sim, wantSim) {
				t.Errorf("%+v, rank %d: the simulation differs", k, me)
			}
			var each []int
			for i := range opt.Iterations {
				each = append(each, i+1)
			}
			if isNew {
				each = each[len(each)-len(did):] // those before are from a survivor
			}
			if !slices.Equal(did, each) || isNew && opt.Iterations-len(did) < k.dies[me]-1 {
				t.Errorf("%+v, rank %d did iterations %v", k, me, did)
			}
			var lost [][]int
			n := 0
			for _, l := range rec.Losses() {
				lost = append(lost, l.Ranks)
				n += len(l.Ranks)
				at := k.dies[l.Ranks[len(l.Ranks)-1]]
				last := at == opt.Iterations && l.Iteration == 0
				if l.Left != left(n) || !last && (l.Iteration < at || l.Iteration > min(at+1, opt.Iterations)) {
					t.Errorf("%+v, rank %d: %v; want iteration %d or the next one repeated, or none", k, me, l, at)
				}
			}
			if n != len(k.dies) || k.lost != "" && fmt.Sprint(lost) != k.lost || rec.World(world).Size() != left(n) {
				t.Errorf("%+v, rank %d: lost %v, want %s", k, me, lost, k.lost)
			}
			return nil
		})
		if errors.Is(err, errDies) == k.replaced || finished != left(len(k.dies)) {
			t.Errorf("%+v: %d ranks finished: %v", k, finished, err)
		}
		again := opt
		again.Resume = dir
		if got := trained(t, c, again); sameTraining(got, want) != nil || got.Resumed != opt.Iterations {
			t.Errorf("%+v: the checkpoints have %d iterations, or other ones", k, got.Resumed)
		}
	}
}

// When all ranks are lost and replaced, the training continues from the checkpoint; without one, it begins again.
func TestTrainingContinuesWhenAllRanksAreReplaced(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 6, Passes: 2, Openings: 3}
	want := trained(t, c, opt)
	opt.CheckpointEvery = 1
	for _, dir := range []string{t.TempDir(), ""} {
		var resumed [2]int
		err := cohort.RunWith(context.Background(), 2, cohort.RunOptions{Restarts: 2}, func(world *cohort.Comm) error {
			opt, isNew := opt, world.Generation() > 0
			rec := &Recovery{}
			opt.Recovery, opt.Checkpoint = rec, dir
			opt.Progress = func(it Iteration) {
				if it.Number == 4 && !isNew {
					panic(errDies)
				}
			}
			return rec.Do(context.Background(), world, func(world *cohort.Comm) error {
				tr, err := Train(context.Background(), world, c, opt)
				if err != nil {
					return err
				}
				resumed[world.Rank()] = tr.Resumed
				tr.Resumed = 0
				return sameTraining(tr, want)
			})
		})
		if err != nil || resumed[0] != resumed[1] || (resumed[0] > 0) != (dir != "") {
			t.Errorf("checkpoints in %q: resumed %v iterations: %v", dir, resumed, err)
		}
	}
}

// A process that takes the place of a rank that is lost in the simulation gets the policy from the others.
func TestReplacedRankGetsFinishedTraining(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 3, Passes: 2, Openings: 3}
	trainings, simulations := onRanks(t, 1, c, opt, 600)
	for victim := range 2 {
		err := cohort.RunWith(context.Background(), 2, cohort.RunOptions{Restarts: 1}, func(world *cohort.Comm) error {
			opt, ctx, rec := opt, context.Background(), &Recovery{}
			opt.Recovery = rec
			isNew := world.Generation() > 0
			if world.Rank() == victim && !isNew {
				ctx = mortal{ctx}
			}
			if isNew {
				opt.Progress = func(it Iteration) { t.Errorf("victim %d: iteration %d is repeated", victim, it.Number) }
			}
			return rec.Do(context.Background(), world, func(world *cohort.Comm) error {
				tr, err := Train(context.Background(), world, c, opt)
				if err != nil {
					return err
				}
				sim, err := Simulate(ctx, world, c, tr.Policy, SimulateOptions{Scenarios: 600})
				if err == nil && (sameTraining(tr, trainings[0]) != nil || !reflect.DeepEqual(sim, simulations[0])) {
					err = errors.New("another policy or simulation")
				}
				return err
			})
		})
		if err != nil {
			t.Errorf("victim %d: %v", victim, err)
		}
	}
}

// The time before a loss counts for the time limit, also if rank 0 is new.
func TestTimeLimitCountsTimeBeforeLoss(t *testing.T) {
	c := readShipped(t, "toy")
	err := cohort.RunWith(context.Background(), 3, cohort.RunOptions{Restarts: 1}, func(world *cohort.Comm) error {
		rec, isNew := &Recovery{}, world.Generation() > 0
		opt := Options{Iterations: 6, Passes: 3, Openings: 3, TimeLimit: time.Hour, Recovery: rec}
		opt.Progress = func(it Iteration) {
			if it.Number == 3 && world.Rank() == 0 && !isNew {
				panic(errDies)
			}
		}
		return rec.Do(context.Background(), world, func(world *cohort.Comm) error {
			if rec.kept != nil {
				rec.kept.began = rec.kept.began.Add(-time.Hour)
			}
			tr, err := Train(context.Background(), world, c, opt)
			if err == nil && (len(tr.Iterations) > 4 || !strings.HasPrefix(tr.Stopped, "the time limit")) {
				err = fmt.Errorf("%d iterations: %s", len(tr.Iterations), tr.Stopped)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
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
		opt.Recovery, opt.Stop = rec, stop
		opt.Progress = func(it Iteration) {
			switch {
			case it.Number == 6 && world.Rank() == 0:
				panic(errDies)
			case it.Number == 6:
				close(stop)
			}
		}
		err := rec.Do(context.Background(), world, func(world *cohort.Comm) error {
			_, err := Train(context.Background(), world, c, opt)
			return err
		})
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
		err := rec.Do(context.Background(), world, func(world *cohort.Comm) error {
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

// A simulation, and a later operation with the next world, continue after a loss.
func TestSimulationContinuesAfterLoss(t *testing.T) {
	c := readShipped(t, "toy")
	trainings, simulations := onRanks(t, 1, c, Options{Iterations: 3, Passes: 2, Openings: 3}, 1500)
	for victim := range 3 {
		var mu sync.Mutex
		survived := 0
		err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
			rec := &Recovery{}
			ctx := context.Background()
			if world.Rank() == victim {
				ctx = mortal{ctx}
			}
			var sim *Simulation
			err := rec.Do(context.Background(), world, func(world *cohort.Comm) (err error) {
				sim, err = Simulate(ctx, world, c, trainings[0].Policy, SimulateOptions{Scenarios: 1500})
				return err
			})
			if err != nil {
				return err
			}
			mu.Lock()
			survived++
			mu.Unlock()
			if !reflect.DeepEqual(sim, simulations[0]) || fmt.Sprint(rec.Losses()) != fmt.Sprintf("[lost rank %d; continuing with 2 ranks]", victim) {
				return fmt.Errorf("rank %d: another simulation, or %v", world.Rank(), rec.Losses())
			}
			return rec.Do(context.Background(), world, (*cohort.Comm).Barrier)
		})
		if !errors.Is(err, errDies) || survived != 2 {
			t.Errorf("without rank %d: %d ranks finished: %v", victim, survived, err)
		}
	}
}

// mortal is a context that kills its rank at the first linear program.
type mortal struct{ context.Context }

func (mortal) Err() error { panic(errDies) }
