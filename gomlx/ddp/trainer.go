package ddp

import (
	"errors"
	"fmt"
	"math"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/metrics"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
	"github.com/cohort-hpc/cohort/tensor"
)

// Config says how a [Trainer] shares out the work. The zero value works.
type Config struct {
	// MicroBatch is the number of rows of a train step. A rank whose share of a batch has more rows takes several
	// steps and adds their gradients up, and only the last of them updates the parameters. 0: one step takes all.
	MicroBatch int

	// Exact adds gradients and metrics up without rounding errors, with package exact. Training with the same MicroBatch
	// then gives the same bits on any number of ranks.
	Exact bool

	// BucketBytes is the most gradients that are averaged together; a larger gradient has a bucket for itself. 0: 1 MiB.
	BucketBytes int
}

// bucketDefault is below tensor.Reducer's, because GoMLX hands over all gradients at once: a bucket is on its way while
// the next one is copied, which takes less time than computing it.
const bucketDefault = 1 << 20

// Trainer is a [train.Trainer] that trains one model on all ranks of a communicator. Each rank computes the gradients
// of its rows of a batch. They are averaged, and every rank's optimizer makes the same step with the average.
//
// A Trainer is for one goroutine.
type Trainer struct {
	*train.Trainer
	world     *cohort.Comm
	cfg       Config
	backend   backends.Backend
	optimizer optimizers.Interface // the program's
	version   string               // of GoMLX

	comm    *cohort.Comm // nil: not connected
	tcomm   *tensor.Comm
	rng     [3]uint64                    // random state of the current batch, the same on all ranks
	shared  map[*context.Variable]bool   // variables whose values rank 0 has given to all
	entries map[*context.Variable]*entry // what is averaged; nil: begin has not run
	sums    []summer                     // of float32 and shorter, and of float64
	number  *context.Variable            // the number of the graph that has run last
	graphs  []*trainGraph                // by their numbers
	steps   map[string]*context.Exec     // the optimizer's, by the entries used

	piece   piece                       // the dataset has yielded last
	used    []float64                   // by entry: how many ranks have used it in this batch
	values  []float64                   // of metrics, summed over the rows of this batch
	exact   *exact.Accumulator[float64] // the same, without rounding errors
	rows    int                         // of this batch on this rank
	bad     *entry                      // of this batch on this rank, not finite
	updated bool                        // by the last step
}

// NewTrainer returns a Trainer. The arguments after cfg are those of [train.NewTrainer]. The
// optimizer must implement [train.OptimizeWithGradients], as SGD, Adam and
// their variants do. cfg may be nil.
//
// Not collective.
func NewTrainer(world *cohort.Comm, cfg *Config, backend backends.Backend, ctx *context.Context, modelFn train.ModelFn,
	lossFn train.LossFn, optimizer optimizers.Interface, trainMetrics, evalMetrics []metrics.Interface) *Trainer {
	t := &Trainer{
		world: world, backend: backend, optimizer: optimizer, version: gomlxVersion(),
		shared: make(map[*context.Variable]bool), steps: make(map[string]*context.Exec),
	}
	if cfg != nil {
		t.cfg = *cfg
	}
	t.Trainer = train.NewTrainer(backend, ctx, modelFn, lossFn, (*capture)(t), trainMetrics, evalMetrics)
	return t
}

// NewLoop returns a [train.Loop] whose steps train on all ranks. It compares what the ranks are about to train: the
// release of GoMLX, the backend, the optimizer, hyperparameters, metrics and Config. Rank 0 gives all ranks its global
// step and its random state. When the model is first built, rank 0 gives all ranks its parameters too.
//
// Metrics that hooks of the loop see are averages over the rows of all ranks, where [Trainer.Updated].
//
// Collective.
//
// Errors: on every rank, [cohort.ErrMismatch] that names what differs.
func (t *Trainer) NewLoop() (*train.Loop, error) {
	if err := t.connect(); err != nil {
		return nil, err
	}
	if err := t.bcast(optimizers.GetGlobalStepVar(t.Context())); err != nil {
		return nil, err
	}
	if t.GlobalStep() != 0 { // rank 0 has loaded a checkpoint: where it could be loaded, variables exist
		t.SetContext(t.Context().Checked(false))
	}
	loop := train.NewLoop(t.Trainer)
	loop.OnStart("ddp", math.MinInt, func(_ *train.Loop, ds train.Dataset) error {
		if s, ok := ds.(*dataset); !ok || s.t != t {
			return fmt.Errorf("ddp: dataset %q is not shared out to the ranks: use trainer.Shard, Scatter or Local", ds.Name())
		}
		return nil
	})
	loop.OnStep("ddp", math.MinInt, func(_ *train.Loop, metrics []*tensors.Tensor) error { return t.step(metrics) })
	loop.OnEnd("ddp", math.MinInt, func(*train.Loop, []*tensors.Tensor) error { return t.end() })
	return loop, nil
}

// TrainStep is the step of a program that has no [train.Loop]: spec, inputs and labels are those that a dataset of Shard or
// Local has yielded last.
//
// Collective, if it is the last step of a batch.
func (t *Trainer) TrainStep(spec any, inputs, labels []*tensors.Tensor) ([]*tensors.Tensor, error) {
	m, err := t.Trainer.TrainStep(spec, inputs, labels)
	if err == nil {
		err = t.step(m)
	}
	return m, err
}

// Updated reports whether the last step has updated the parameters. With Config.MicroBatch others only add up gradients.
func (t *Trainer) Updated() bool { return t.updated }

// Eval evaluates the model on a dataset that is the same on every rank: each rank takes its rows of every batch. The
// loss and the metrics that it returns are averages over all rows, the same on every rank.
//
// Collective.
//
// Errors: on every rank, those of any rank's dataset or model.
func (t *Trainer) Eval(ds train.Dataset) ([]*tensors.Tensor, error) {
	if err := t.connect(); err != nil {
		return nil, err
	}
	part := &evaluation{Dataset: ds, rank: t.comm.Rank(), size: t.comm.Size()}
	m, err := t.Trainer.Eval(part)
	if part.ended && part.total > 0 && part.rows == 0 {
		m, err = nil, nil // others have rows, and GoMLX complains that this rank has none
	}
	if err := cohort.JoinErrors(t.comm, err); err != nil {
		return nil, err
	}
	sums := make([]float64, 1+len(t.EvalMetrics()))
	sums[0] = float64(part.rows)
	for i, x := range m {
		sums[1+i] = float64(part.rows) * scalar(x)
	}
	if err := cohort.Allreduce(t.comm, sums, sums, cohort.Sum); err != nil {
		return nil, err
	}
	if m == nil {
		for range t.EvalMetrics() {
			m = append(m, tensors.FromScalar(float32(0)))
		}
	}
	for i, x := range m {
		setScalar(x, sums[1+i]/sums[0])
	}
	return m, nil
}

// Close frees what the Trainer has made. Closing the world does so too.
//
// Collective.
func (t *Trainer) Close() error {
	if t.comm == nil {
		return nil
	}
	var errs []error
	for _, s := range t.sums {
		errs = append(errs, s.close())
	}
	errs = append(errs, t.tcomm.Close(), t.comm.Close())
	t.comm, t.sums = nil, nil
	return errors.Join(errs...)
}
