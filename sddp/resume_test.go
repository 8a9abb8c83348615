package sddp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp/lp"
)

// sameTraining returns an error if two trainings differ in anything but times and resumed iterations.
func sameTraining(got, want *Training) error {
	switch {
	case got.Policy.Pool.SHA256() != want.Policy.Pool.SHA256():
		return errors.New("other cuts")
	case !reflect.DeepEqual(plain(got.Iterations), plain(want.Iterations)):
		return fmt.Errorf("other iterations: the last is\n%+v, want\n%+v", plain(got.Iterations)[len(got.Iterations)-1], plain(want.Iterations)[len(want.Iterations)-1])
	case got.Policy.LowerBound != want.Policy.LowerBound || got.Policy.Iterations != want.Policy.Iterations || got.Solves != want.Solves:
		return fmt.Errorf("other figures: %+v", got.Policy)
	case got.Stopped != want.Stopped:
		return fmt.Errorf("stopped because %s, want %s", got.Stopped, want.Stopped)
	}
	return nil
}

// A resumed training has the bits of an uninterrupted one, with other ranks and threads and for every
// stopping rule.
func TestResumedTrainingHasSameBits(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 11, Passes: 5, Openings: 4, Seed: 11}
	if testing.Short() {
		opt.Iterations, opt.Passes, opt.Openings = 8, 3, 2
	}
	first := opt
	first.Iterations, first.CheckpointEvery, first.Checkpoint = 5, 2, t.TempDir()
	onRanks(t, 3, c, first, 2)
	if got := fmt.Sprint(names(t, first.Checkpoint)); got != "[checkpoint-000004.bin checkpoint-000005.bin]" {
		t.Fatalf("the folder holds %v, want the two newest", got)
	}
	wants := map[[2]int]*Training{} // by iterations and stall
	for _, k := range []struct {
		ranks, threads, iterations, from int
		stall                            int
	}{
		{1, 1, opt.Iterations, 5, 0},
		{2, 2, opt.Iterations, 5, 0},
		{4, 1, opt.Iterations, 5, 0},
		{7, 1, opt.Iterations, 5, 0}, // more than passes
		{2, 1, 5, 5, 0},              // nothing is left to do
		{2, 1, 3, 3, 0},              // it would have stopped at the third
		{1, 1, opt.Iterations, 2, 1}, // it would have stalled at the second
	} {
		again := opt
		again.Resume, again.Threads, again.Iterations, again.Stall, again.StallTolerance = first.Checkpoint, k.threads, k.iterations, k.stall, 1e9
		whole := [2]int{k.iterations, k.stall}
		want := wants[whole]
		if want == nil {
			uninterrupted := again
			uninterrupted.Resume = ""
			want = trained(t, c, uninterrupted)
			wants[whole] = want
		}
		trainings, _ := onRanks(t, k.ranks, c, again, 2)
		for r, got := range trainings {
			if err := sameTraining(got, want); err != nil {
				t.Errorf("%+v, rank %d: %v", k, r, err)
			}
			if got.Resumed != k.from {
				t.Errorf("%+v, rank %d: %d iterations are from the checkpoint, want %d", k, r, got.Resumed, k.from)
			}
		}
	}
	if got := names(t, first.Checkpoint); len(got) != 2 {
		t.Errorf("a training without checkpoints has left %v", got)
	}
}

// A checkpoint has more cuts than rank 0 sends at a time, and its cuts fill the reserved memory.
func TestRestoreSendsCutsInParts(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 2, Passes: restoreChunk/4 + 5, Openings: 1, Checkpoint: t.TempDir()}
	want := trained(t, c, opt)
	opt.Resume, opt.Iterations = opt.Checkpoint, 3
	got, _ := onRanks(t, 2, c, opt, 2)
	if got[1].Resumed != 2 || !reflect.DeepEqual(plain(got[1].Iterations[:2]), plain(want.Iterations)) {
		t.Errorf("%d iterations are from the checkpoint, want 2", got[1].Resumed)
	}
	for s := range c.Stages - 1 {
		for i := range want.Policy.Pool.Len(s) {
			a, b := got[1].Policy.Pool.Cut(s, i)
			wa, wb := want.Policy.Pool.Cut(s, i)
			if math.Float64bits(a) != math.Float64bits(wa) || !sameBits(b, wb) {
				t.Fatalf("stage %d, cut %d: %v %v, want %v %v", s, i, a, b, wa, wb)
			}
		}
	}
}

// If the newest checkpoint is damaged, the one before it is used, with a warning. If all are damaged, that
// is an error, as are an empty folder and the checkpoints of another training.
func TestResumeUsesNewestUndamagedCheckpoint(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 6, Passes: 2, Openings: 3, Seed: 4, CheckpointEvery: 2, Checkpoint: t.TempDir()}
	want := trained(t, c, opt)
	opt.Resume = opt.Checkpoint
	at := func(n int) string { return filepath.Join(opt.Checkpoint, checkpointName(n)) }
	damage := func(n int) {
		data, err := os.ReadFile(at(n))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2]++
		if err := os.WriteFile(at(n), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	train := func(opt Options) (out *Training, warned []error, err error) {
		opt.Warn = func(err error) { warned = append(warned, err) }
		var errs [2]error
		cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
			mine := opt
			if world.Rank() > 0 {
				mine.Warn = nil
			}
			var tr *Training
			tr, errs[world.Rank()] = Train(context.Background(), world, c, mine)
			if world.Rank() == 0 {
				out = tr
			}
			return nil
		})
		if !strings.HasSuffix(fmt.Sprint(errs[1]), fmt.Sprint(errs[0])) {
			t.Errorf("rank 0 got %v, rank 1 %v", errs[0], errs[1])
		}
		return out, warned, errs[0]
	}

	damage(6)
	got, warned, err := train(opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(warned) != 1 || !strings.Contains(warned[0].Error(), at(6)) || got.Resumed != 4 {
		t.Errorf("from iteration %d, warned of %v; want 4 and %s", got.Resumed, warned, at(6))
	}
	if err := sameTraining(got, want); err != nil {
		t.Error(err)
	}
	if got, warned, err := train(opt); err != nil || got.Resumed != 6 || len(warned) != 0 {
		t.Errorf("the damaged checkpoint was not replaced: %v, %v", warned, err)
	}

	for text, change := range map[string]func(*Options){
		"seed: got 4, want 5":                 func(o *Options) { o.Seed = 5 },
		"passes: got 2, want 3":               func(o *Options) { o.Passes = 3 },
		"openings: got 3, want 4":             func(o *Options) { o.Openings = 4 },
		"resume that one":                     func(o *Options) { o.Resume = "" },
		"it has no checkpoint to resume from": func(o *Options) { o.Resume = t.TempDir() },
		"it has a training of 6 iterations":   func(o *Options) { o.Resume, o.ResumeOrBegin = t.TempDir(), true },
		"not a directory":                     func(o *Options) { o.Checkpoint = at(6) },
	} {
		other := opt
		change(&other)
		if _, _, err := train(other); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	both := opt
	both.Checkpoint = t.TempDir()
	both.Resume, both.ResumeOrBegin = both.Checkpoint, true
	if got, warned, err := train(both); err != nil || got.Resumed != 0 || len(warned) != 0 || sameTraining(got, want) != nil {
		t.Errorf("nothing to resume: %v, %v", warned, err)
	}

	damage(4)
	damage(6)
	if _, warned, err := train(opt); err == nil || len(warned) != 2 || !strings.Contains(err.Error(), at(4)) || !strings.Contains(err.Error(), at(6)) {
		t.Errorf("all damaged: warned of %v, got %v", warned, err)
	}
}

func TestResumeRejectsOtherArithmetic(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 3, Passes: 2, Openings: 3, Checkpoint: t.TempDir()}
	its := trained(t, c, opt).Iterations
	opt.Resume, opt.Iterations = opt.Checkpoint, 4
	name := filepath.Join(opt.Checkpoint, checkpointName(3))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	last := its[2].LowerBound
	third := bytes.IndexByte(data, '\n') + 1 + 2*origin{lists: c.Stages - 1}.recordBytes()
	copy(data[third:], packNumbers([]float64{math.Nextafter(last, math.Inf(1))}))
	if err := os.WriteFile(name, signed(data), 0o644); err != nil {
		t.Fatal(err)
	}
	err = cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		_, err := Train(context.Background(), world, c, opt)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "is 11800 here and was 11800.000000000002") {
		t.Errorf("got %v", err)
	}
}

// A training may continue with another solver, with a warning. The checkpoint's iterations stay, and the
// rest has the same bits on any number of ranks.
func TestResumeMayChangeSolver(t *testing.T) {
	solvers(t, lp.CLP)
	c := rotated(t, 4)
	opt := Options{Iterations: 4, Passes: 3, Openings: 3, Seed: 6, Solver: lp.Embedded, Checkpoint: t.TempDir()}
	first := trained(t, c, opt)
	opt.Resume, opt.Checkpoint, opt.Iterations, opt.Solver = opt.Checkpoint, "", 7, lp.CLP
	var want *Training
	for _, ranks := range []int{1, 3} {
		var mu sync.Mutex
		var warned []error
		opt.Warn = func(err error) {
			mu.Lock()
			defer mu.Unlock()
			warned = append(warned, err)
		}
		trainings, _ := onRanks(t, ranks, c, opt, 2)
		if len(warned) != 1 || !strings.Contains(warned[0].Error(), "checkpoint-000004.bin was written with solver embedded; this training continues with clp ") {
			t.Errorf("%d ranks: warned of %v", ranks, warned)
		}
		got := trainings[ranks-1]
		if got.Resumed != 4 || got.Solver.Kind != lp.CLP || !reflect.DeepEqual(plain(got.Iterations[:4]), plain(first.Iterations)) {
			t.Errorf("%d ranks: %d iterations from the checkpoint, solver %v", ranks, got.Resumed, got.Solver)
		}
		if want == nil {
			want = got
		}
		if err := sameTraining(got, want); err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

func TestResumeRejectsOtherInflows(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 3, Passes: 2, Openings: 3, Seed: 5, Checkpoint: t.TempDir()}
	trained(t, c, opt)
	opt.Resume, opt.Iterations = opt.Checkpoint, 4
	name := filepath.Join(opt.Checkpoint, checkpointName(3))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	other := NewNoise(c, opt.Seed, opt.Openings)
	was := other.sum(0)
	last := &other.inflow[len(other.inflow)-1]
	*last = math.Nextafter(*last, 0)
	changed := bytes.Replace(data, []byte(was), []byte(other.sum(0)), 1)
	if bytes.Equal(changed, data) {
		t.Fatal("the checkpoint has no hash of the inflows")
	}
	if err := os.WriteFile(name, signed(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	err = cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		_, err := Train(context.Background(), world, c, opt)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), name+": inflows_sha256: got ") {
		t.Errorf("got %v", err)
	}
}

// When one rank is asked to stop, all ranks stop at once, and a resumed training has the same bits. The
// rank may have passes or none.
func TestStopOnOneRankSavesAndEndsAll(t *testing.T) {
	c := readShipped(t, "brazil4")
	opt := Options{Iterations: 7, Passes: 3, Openings: 2, Seed: 2}
	want := trained(t, c, opt)
	stops := []struct{ ranks, stops int }{{3, 2}, {4, 0}, {1, 0}, {3, 0}}
	if testing.Short() {
		stops = stops[:2]
	}
	for _, k := range stops {
		opt := opt
		opt.Checkpoint = t.TempDir()
		var mu sync.Mutex
		var got []*CheckpointError
		err := cohort.Run(context.Background(), k.ranks, func(world *cohort.Comm) error {
			opt, stop := opt, make(chan struct{})
			opt.Stop = stop
			if world.Rank() == k.stops {
				opt.Progress = func(it Iteration) {
					if it.Number == 3 {
						close(stop)
					}
				}
			}
			_, err := Train(context.Background(), world, c, opt)
			var at *CheckpointError
			if !errors.Is(err, ErrStopped) || !errors.As(err, &at) {
				return fmt.Errorf("got %w", err)
			}
			mu.Lock()
			got = append(got, at)
			mu.Unlock()
			return world.Barrier() // the communicator still works
		})
		if err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
		for _, at := range got {
			if *at != (CheckpointError{Dir: opt.Checkpoint, Iterations: got[0].Iterations, Err: at.Err}) || at.Iterations < 3 || at.Iterations > 4 {
				t.Errorf("%+v: got %+v, want 3 iterations or 4", k, at)
			}
		}
		opt.Resume = opt.Checkpoint
		again, _ := onRanks(t, 2, c, opt, 2)
		if err := sameTraining(again[0], want); err != nil || again[0].Resumed != got[0].Iterations {
			t.Errorf("%+v: after %d iterations: %v", k, again[0].Resumed, err)
		}
	}
}

func TestCheckpointIsSavedWhateverEndsTraining(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 100000, Passes: 3, Openings: 3, CheckpointEvery: 100000, Checkpoint: t.TempDir()}
	var at *CheckpointError
	gone := errors.New("gone")
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		opt := opt
		if world.Rank() == 2 {
			opt.Progress = func(it Iteration) {
				if it.Number == 4 {
					cancel(gone)
				}
			}
		}
		_, err := Train(ctx, world, c, opt)
		if world.Rank() == 0 {
			errors.As(err, &at)
		}
		return err
	})
	if !errors.Is(err, gone) || at == nil || at.Iterations < 3 || at.Iterations > 5 || at.Unsaved != nil {
		t.Fatalf("got %v and %+v, want 3 to 5 iterations", err, at)
	}
	opt.Resume, opt.Iterations = opt.Checkpoint, at.Iterations+2
	got := trained(t, c, opt)
	opt.Resume, opt.Checkpoint = "", ""
	if err := sameTraining(got, trained(t, c, opt)); err != nil || got.Resumed != at.Iterations {
		t.Errorf("after %d iterations: %v", got.Resumed, err)
	}
}

// A checkpoint that cannot be written is reported on all ranks at the end.
func TestUnwritableCheckpointDoesNotEndTraining(t *testing.T) {
	c := readShipped(t, "toy")
	opt := Options{Iterations: 5, Passes: 2, Openings: 3, CheckpointEvery: 2}
	want := trained(t, c, opt)
	for _, back := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "checkpoints")
		var warned []error
		var got [2]*Training
		err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) (err error) {
			opt := opt
			opt.Checkpoint = dir
			if world.Rank() == 0 {
				opt.Warn = func(err error) { warned = append(warned, err) }
				opt.Progress = func(it Iteration) {
					switch {
					case it.Number == 1:
						err = os.Remove(dir)
					case it.Number == 5 && back:
						err = os.Mkdir(dir, 0o777)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}
			got[world.Rank()], err = Train(context.Background(), world, c, opt)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, tr := range got {
			if err := sameTraining(tr, want); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if back && tr.Unsaved != nil || !back && (tr.Unsaved == nil || !strings.Contains(tr.Unsaved.Error(), filepath.Join(dir, checkpointName(5)))) {
				t.Errorf("rank %d, the folder is back %v: got %v", r, back, tr.Unsaved)
			}
		}
		if len(warned) == 0 || !strings.Contains(warned[0].Error(), filepath.Join(dir, checkpointName(2))) {
			t.Errorf("warned of %v", warned)
		}
	}
}
