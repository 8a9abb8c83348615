package ddp

import (
	"github.com/gomlx/gomlx/pkg/ml/context/checkpoints"

	"github.com/cohort-hpc/cohort"
)

// Checkpoint builds the handler that cfg describes. Every rank loads the newest checkpoint, if it can see one: what
// counts are rank 0's variables, since [Trainer] gives them to all ranks. Only rank 0 gets a handler that saves. The
// others get nil, whose Save and OnStepFn do nothing.
//
// Collective.
//
// Errors: on every rank, those of any rank's [checkpoints.Config.Done].
func Checkpoint(world *cohort.Comm, cfg *checkpoints.Config) (*checkpoints.Handler, error) {
	h, err := cfg.Done()
	if err := cohort.JoinErrors(world, err); err != nil {
		return nil, err
	}
	if world.Rank() != 0 {
		return nil, nil
	}
	return h, nil
}
