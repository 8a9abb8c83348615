package ddp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlctx "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/metrics"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/cohort-hpc/cohort"
)

// A wrong input of one rank, or of all, is an error on all three, which says what is wrong.
func TestWrongInputIsAnErrorOnEveryRank(t *testing.T) {
	shard := func(rows, batch int) func(*Trainer, backends.Backend) train.Dataset {
		return func(t *Trainer, b backends.Backend) train.Dataset { return t.Shard(points(b, rows, batch)) }
	}
	other := func(rank int, a, b training) training {
		if rank == 1 {
			return b
		}
		return a
	}
	model := func(units int) train.ModelFn {
		return func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
			return []*graph.Node{layers.Dense(ctx.In("out"), graph.Tanh(layers.Dense(ctx, inputs[0], true, units)), true, 1)}
		}
	}
	for _, c := range []struct {
		name  string
		train func(rank int) training
		wants []string // each is in the error of every rank
		is    error
	}{
		{"batch that does not divide", func(int) training { return training{dataset: shard(96, 32)} },
			[]string{"32 rows", "3 ranks", "multiple of 3"}, nil},
		{"micro-batches that do not divide", func(int) training { return training{cfg: Config{MicroBatch: 5}} },
			[]string{"24 rows", "3 ranks", "micro-batches of 5", "multiple of 15"}, nil},
		{"scattered batch that does not divide", func(int) training {
			return training{dataset: func(t *Trainer, b backends.Backend) train.Dataset { return t.Scatter(points(b, 96, 32)) }}
		}, []string{"32 rows", "multiple of 3"}, nil},
		{"other model", func(r int) training { return other(r, training{model: model(4)}, training{model: model(5)}) },
			[]string{"rank 1", "/dense/biases", "[5]", "[4]"}, cohort.ErrMismatch},
		{"other hyperparameter", func(r int) training {
			ctx := newContext()
			ctx.SetParam("activation", fmt.Sprint("of rank ", min(r, 1)))
			return training{ctx: ctx}
		}, []string{"rank 1", "/activation = of rank 1", "/activation = of rank 0"}, cohort.ErrMismatch},
		{"other optimizer", func(r int) training {
			return other(r, training{}, training{optimizer: func() optimizers.Interface { return optimizers.StochasticGradientDescent().Done() }})
		}, []string{"rank 1", "SGD"}, cohort.ErrMismatch},
		{"other Config", func(r int) training { return other(r, training{}, training{cfg: Config{MicroBatch: 4}}) },
			[]string{"rank 1", "MicroBatch:4"}, cohort.ErrMismatch},
		{"other data", func(r int) training {
			return training{dataset: func(t *Trainer, b backends.Backend) train.Dataset { return t.Shard(points(b, 96+3*r, 24+3*r)) }}
		},
			[]string{"different batches", "Scatter"}, cohort.ErrMismatch},
		{"another order of the same data", func(int) training {
			return training{dataset: func(t *Trainer, b backends.Backend) train.Dataset { return t.Shard(points(b, 96, 24).Shuffle()) }}
		}, []string{"different batches", "Scatter"}, cohort.ErrMismatch},
		{"fewer epochs", func(r int) training { return other(r, training{epochs: 3}, training{epochs: 2}) },
			[]string{"rank 1", "ended after step 8", "same number of steps"}, cohort.ErrMismatch},
		{"dataset that is not shared out", func(int) training {
			return training{dataset: func(_ *Trainer, b backends.Backend) train.Dataset { return points(b, 96, 24) }}
		}, []string{"not shared out", "trainer.Shard"}, nil},
		{"dataset that fails", func(r int) training {
			return training{dataset: func(t *Trainer, _ backends.Backend) train.Dataset { return t.Local(&failing{fails: r == 1}) }}
		}, []string{"rank 1", "the disk is full"}, nil},
		{"no data on one rank", func(r int) training {
			b := &batches{bounds: [][2]int{{0, 6}}}
			if r == 1 {
				b.bounds = nil
			}
			return training{dataset: func(t *Trainer, _ backends.Backend) train.Dataset { return t.Local(b) }}
		}, []string{"rank 1", "without batches"}, nil},
		{"optimizer that takes no gradients", func(int) training { return training{optimizer: func() optimizers.Interface { return lossOnly{} }} },
			[]string{"lossOnly", "OptimizeWithGradients"}, nil},
		{"model that fails on one rank", func(r int) training {
			return other(r, training{}, training{model: func(*mlctx.Context, any, []*graph.Node) []*graph.Node { panic(errors.New("no such layer")) }})
		}, []string{"no such layer"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			testFailure(t, c.wants, c.is, func(world *cohort.Comm) error {
				_, _, err := c.train(world.Rank()).run(world)
				return err
			})
		})
	}
}

// testFailure runs body on three ranks, and checks that each ends soon with an error that has all wants.
func testFailure(t *testing.T, wants []string, is error, body func(world *cohort.Comm) error) {
	t.Helper()
	begin := time.Now()
	errs := make([]error, 3)
	if err := ranks(t, 3, func(world *cohort.Comm) error {
		err := body(world)
		errs[world.Rank()] = err
		return err
	}); err == nil {
		t.Fatal("no error")
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the ranks ended after %v", took)
	}
	for rank, err := range errs {
		if err == nil {
			t.Errorf("rank %d has no error", rank)
			continue
		}
		if is != nil && !errors.Is(err, is) {
			t.Errorf("rank %d: %v is not %v", rank, err, is)
		}
		for _, w := range wants {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("rank %d: %v; want something of %q", rank, err, w)
			}
		}
	}
}

// failing is a dataset whose second batch cannot be read.
type failing struct {
	batches
	fails bool
	took  int
}

func (f *failing) Yield() (any, []*tensors.Tensor, []*tensors.Tensor, error) {
	if f.took++; f.fails && f.took > 1 {
		return nil, nil, nil, errors.New("the disk is full")
	}
	f.batches = batches{bounds: [][2]int{{0, 6}}}
	return f.batches.Yield()
}

// lossOnly is an optimizer that does not implement train.OptimizeWithGradients.
type lossOnly struct{}

func (lossOnly) UpdateGraph(*mlctx.Context, *graph.Graph, *graph.Node) {}
func (lossOnly) Clear(*mlctx.Context) error                            { return nil }

func TestAnotherReleaseOfGoMLXIsAnError(t *testing.T) {
	testFailure(t, []string{"rank 2", "GoMLX v0.99.0", "rank 0", "GoMLX v0.26.0"}, cohort.ErrMismatch, func(world *cohort.Comm) error {
		trainer := NewTrainer(world, nil, newBackend(), newContext(), dense, losses.MeanSquaredError, adam(), nil, nil)
		trainer.version = []string{"v0.26.0", "v0.26.0", "v0.99.0"}[world.Rank()]
		_, err := trainer.NewLoop()
		return err
	})
}

func TestOtherMetricsAreAnError(t *testing.T) {
	testFailure(t, []string{"rank 1", "eval metric mine"}, cohort.ErrMismatch, func(world *cohort.Comm) error {
		var m []metrics.Interface
		if world.Rank() == 1 {
			m = []metrics.Interface{metrics.NewMeanBinaryAccuracy("mine", "m")}
		}
		trainer := NewTrainer(world, nil, newBackend(), newContext(), dense, losses.MeanSquaredError, adam(), nil, m)
		_, err := trainer.Eval(points(newBackend(), 96, 24))
		return err
	})
}

// spoiled has a parameter w, at first 0, and predicts w x + 10. The loss is finite then, and its derivative grows with x.
func spoiled(x float64) train.ModelFn {
	return func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		w := ctx.VariableWithValue("w", float32(0)).ValueGraph(inputs[0].Graph())
		ones := graph.OnesLike(graph.Slice(inputs[0], graph.AxisRange(), graph.AxisRange(0, 1)))
		return []*graph.Node{graph.Mul(ones, graph.AddScalar(graph.MulScalar(w, x), 10))}
	}
}

func TestGradientThatIsNotFiniteNamesItsRank(t *testing.T) {
	for _, c := range []struct {
		x     []float64 // of each rank
		wants []string
	}{
		{[]float64{1, 1, math.MaxFloat32}, []string{"rank 2", "gradient of /w", "step 1", "infinite or not a number"}},
		{[]float64{1.3e36, 1.3e36, 1.3e36}, []string{"gradient of /w", "finite on every rank", "sum is not"}}, // 8 rows times about 2.6e37 are
	} {
		testFailure(t, c.wants, nil, func(world *cohort.Comm) error {
			ctx := newContext()
			_, _, err := training{ctx: ctx, model: spoiled(c.x[world.Rank()])}.run(world)
			if w := tensors.ToScalar[float32](ctx.GetVariableByScopeAndName("/", "w").MustValue()); w != 0 {
				return fmt.Errorf("w has become %v", w)
			}
			return err
		})
	}
}

// A rank's error in mid-training reaches the ranks that wait for it.
func TestErrorOfAHookEndsTheOthers(t *testing.T) {
	testFailure(t, []string{"no space left"}, nil, func(world *cohort.Comm) error {
		_, _, err := training{epochs: 1000, prepare: func(_ *Trainer, loop *train.Loop) {
			loop.OnStep("save", 1, func(loop *train.Loop, _ []*tensors.Tensor) error {
				if world.Rank() == 1 && loop.LoopStep == 3 {
					return errors.New("no space left")
				}
				return nil
			})
		}}.run(world)
		return err
	})
}

// Without this package's datasets, or before NewLoop, there is no batch to train on.
func TestCallsInTheWrongOrder(t *testing.T) {
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
		b := newBackend()
		trainer := NewTrainer(world, nil, b, newContext(), dense, losses.MeanSquaredError, adam(), nil, nil)
		if _, _, _, err := trainer.Shard(points(b, 96, 24)).Yield(); err == nil || err == io.EOF {
			return fmt.Errorf("Yield before NewLoop: %v", err)
		}
		if _, err := trainer.NewLoop(); err != nil {
			return err
		}
		_, inputs, labels, err := points(b, 96, 24).Yield()
		if err != nil {
			return err
		}
		if _, err := trainer.TrainStep(nil, inputs, labels); err == nil || !strings.Contains(err.Error(), "Shard") {
			return fmt.Errorf("TrainStep with a batch of another dataset: %v", err)
		}
		if err := trainer.AccumulateGradients(2); err == nil || !strings.Contains(err.Error(), "OptimizeWithGradients") {
			return fmt.Errorf("AccumulateGradients: %v", err)
		}
		return trainer.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Parameters of 64 and of 16 bits are averaged too.
func TestParametersOfOtherWidthsAreAveraged(t *testing.T) {
	for _, d := range []dtypes.DType{dtypes.Float64, dtypes.BFloat16} {
		model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
			w := ctx.VariableWithShape("w", shapes.Make(d, features, 1))
			x := graph.Dot(graph.ConvertDType(inputs[0], d), w.ValueGraph(inputs[0].Graph()))
			return []*graph.Node{graph.ConvertDType(x, dtypes.Float32)}
		}
		weights := make([][]float64, 3)
		for _, n := range []int{1, 2} {
			err := ranks(t, n, func(world *cohort.Comm) error {
				backend, ctx := newBackend(), newContext()
				trainer := NewTrainer(world, nil, backend, ctx, start(model), losses.MeanSquaredError, adam(), nil, nil)
				loop, err := trainer.NewLoop()
				if err != nil {
					return err
				}
				if _, err := loop.RunEpochs(trainer.Shard(points(backend, 96, 24)), 2); err != nil {
					return err
				}
				flat := make([]float64, features)
				w := ctx.GetVariableByScopeAndName("/", "w").MustValue()
				w.MustConstFlatData(func(values any) { addTimes(flat, values, 1) })
				weights[n-1+world.Rank()] = flat
				return nil
			})
			if err != nil {
				t.Fatalf("%v: %v", d, err)
			}
		}
		for i := range features {
			if w := weights[0][i]; w == 0 || math.Abs(w-weights[1][i]) > 0.01*math.Abs(w) || weights[1][i] != weights[2][i] {
				t.Errorf("%v: weight %d is %v on one rank, and %v and %v on two", d, i, w, weights[1][i], weights[2][i])
			}
		}
	}
}
