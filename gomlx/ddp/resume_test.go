package ddp

import (
	"errors"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlctx "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/train"

	"github.com/cohort-hpc/cohort"
)

// A rank ends in the middle of the training, rank 0 or another, and then one before the next step. Those that take their places
// get the state of a survivor, and the parameters have the bits of an undisturbed training, with dropout and Adam.
func TestTrainingContinuesAfterLoss(t *testing.T) {
	const n, steps = 3, 10
	model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		x := layers.DropoutStatic(ctx, graph.Tanh(layers.Dense(ctx.In("hidden"), inputs[0], true, 8)), 0.2)
		return []*graph.Node{layers.Dense(ctx.In("out"), x, true, 1)}
	}
	whole, err := training{model: model, rows: 24, epochs: steps}.each(t, n) // an epoch is a step
	if err != nil {
		t.Fatal(err)
	}
	errDies := errors.New("dies")
	for lost := range 2 {
		got, from, last := make([]map[string][]float32, n), make([]int64, n), make([]int, n)
		err := cohort.RunWith(t.Context(), n, cohort.RunOptions{Restarts: 2}, func(world *cohort.Comm) error {
			var trainer *Trainer
			for {
				ctx := newContext()
				made, err := Resume(world, trainer, ctx)
				if err == nil {
					rank := world.Rank()
					from[rank], last[rank] = made, world.Generation()
					tr := training{model: model, rows: 24, epochs: steps - int(made), ctx: ctx, prepare: func(_ *Trainer, loop *train.Loop) {
						loop.OnStep("die", 0, func(loop *train.Loop, _ []*tensors.Tensor) error {
							if rank == lost && world.Generation() == 0 && loop.LoopStep == steps/2 {
								return errDies
							}
							return nil
						})
						loop.OnStart("die", 0, func(*train.Loop, train.Dataset) error {
							if rank == 2 && world.Generation() == 1 {
								return errDies
							}
							return nil
						})
					}}
					values, now, e := tr.run(world)
					if got[rank], err = values, e; now != nil {
						trainer = now
					}
				}
				if errors.Is(err, errDies) {
					return err
				}
				done := 1
				if err != nil {
					done = 0
				}
				switch all, agreed := world.Agree(done); {
				case agreed != nil || all == 1:
					return agreed
				case err != nil && !errors.Is(err, cohort.ErrPeerLost):
					return err
				}
				if world, err = cohort.Rejoin(t.Context(), world); err != nil {
					return err
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range n {
			if err := near(got[rank], whole[0], 0); err != nil {
				t.Errorf("rank %d lost, rank %d: %v", lost, rank, err)
			}
			if last[rank] != 2 || from[rank] < steps/2 || from[rank] > steps/2+1 {
				t.Errorf("rank %d lost: rank %d continues after %d steps in generation %d, want about %d and 2", lost, rank, from[rank], last[rank], steps/2)
			}
		}
	}
}
