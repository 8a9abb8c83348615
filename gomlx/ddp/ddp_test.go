package ddp

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlctx "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/context/checkpoints"
	"github.com/gomlx/gomlx/pkg/ml/datasets"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/layers/batchnorm"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/cohort-hpc/cohort"
)

const features = 3

// points returns a dataset of points with a known function, in batches. All ranks get the same.
func points(backend backends.Backend, rows, batch int) *datasets.InMemoryDataset {
	rng := rand.New(rand.NewSource(7))
	inputs, labels := make([][]float32, rows), make([][]float32, rows)
	for i := range inputs {
		var y float64
		for k := range features {
			x := rng.NormFloat64()
			inputs[i] = append(inputs[i], float32(x))
			y += math.Sin(x) * float64(k+1)
		}
		labels[i] = []float32{float32(y)}
	}
	ds, err := datasets.InMemoryFromData(backend, "points", []any{inputs}, []any{labels})
	if err != nil {
		panic(err)
	}
	return ds.BatchSize(batch, false)
}

// dense is a network with a hidden layer.
func dense(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
	x := graph.Tanh(layers.Dense(ctx.In("hidden"), inputs[0], true, 8))
	return []*graph.Node{layers.Dense(ctx.In("out"), x, true, 1)}
}

func newBackend() backends.Backend {
	b, err := simplego.New("ops_sequential")
	if err != nil {
		panic(err)
	}
	return b
}

func newContext() *mlctx.Context {
	ctx := mlctx.New()
	ctx.SetParam(mlctx.ParamInitialSeed, int64(42))
	return ctx
}

func adam() optimizers.Interface { return optimizers.Adam().LearningRate(0.01).Done() }

// training is a small training. Fields that are not set have defaults.
type training struct {
	cfg       Config
	rows      int
	batch     int
	epochs    int
	model     train.ModelFn
	optimizer func() optimizers.Interface
	ctx       *mlctx.Context
	dataset   func(*Trainer, backends.Backend) train.Dataset
	prepare   func(*Trainer, *train.Loop)
}

// run trains on one rank, and returns the trained variables by name.
func (tr training) run(world *cohort.Comm) (map[string][]float32, *Trainer, error) {
	backend := newBackend()
	if tr.rows == 0 {
		tr.rows = 96
	}
	if tr.batch == 0 {
		tr.batch = 24
	}
	if tr.epochs == 0 {
		tr.epochs = 3
	}
	if tr.model == nil {
		tr.model = dense
	}
	if tr.optimizer == nil {
		tr.optimizer = adam
	}
	if tr.ctx == nil {
		tr.ctx = newContext()
	}
	trainer := NewTrainer(world, &tr.cfg, backend, tr.ctx, tr.model, losses.MeanSquaredError, tr.optimizer(), nil, nil)
	if tr.dataset == nil {
		tr.dataset = func(t *Trainer, b backends.Backend) train.Dataset { return t.Shard(points(b, tr.rows, tr.batch)) }
	}
	loop, err := trainer.NewLoop()
	if err != nil {
		return nil, nil, err
	}
	if tr.prepare != nil {
		tr.prepare(trainer, loop)
	}
	if _, err := loop.RunEpochs(tr.dataset(trainer, backend), tr.epochs); err != nil {
		return nil, trainer, err
	}
	return trained(tr.ctx), trainer, nil
}

// trained returns the values of the trainable variables.
func trained(ctx *mlctx.Context) map[string][]float32 {
	values := make(map[string][]float32)
	for v := range ctx.IterVariables() {
		if v.Trainable {
			values[v.ScopeAndName()] = tensors.MustCopyFlatData[float32](v.MustValue())
		}
	}
	return values
}

// alone trains without this package.
func alone(t testing.TB, rows, batch, epochs int, model train.ModelFn) map[string][]float32 {
	t.Helper()
	backend, ctx := newBackend(), newContext()
	loop := train.NewLoop(train.NewTrainer(backend, ctx, model, losses.MeanSquaredError, adam(), nil, nil))
	if _, err := loop.RunEpochs(points(backend, rows, batch), epochs); err != nil {
		t.Fatal(err)
	}
	return trained(ctx)
}

// ranks runs body on n ranks of this process, each under a watchdog.
func ranks(t *testing.T, n int, body func(world *cohort.Comm) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return cohort.Run(ctx, n, body)
}

// each trains on n ranks and returns the variables of each.
func (tr training) each(t *testing.T, n int) ([]map[string][]float32, error) {
	t.Helper()
	all := make([]map[string][]float32, n)
	err := ranks(t, n, func(world *cohort.Comm) (err error) {
		tr := tr
		all[world.Rank()], _, err = tr.run(world)
		return err
	})
	return all, err
}

func near(a, b map[string][]float32, tolerance float64) error {
	if len(a) != len(b) || len(a) == 0 {
		return fmt.Errorf("%d and %d variables", len(a), len(b))
	}
	for name, x := range a {
		for i := range x {
			if d := math.Abs(float64(x[i] - b[name][i])); !(d <= tolerance) {
				return fmt.Errorf("%s[%d]: %v and %v", name, i, x[i], b[name][i])
			}
		}
	}
	return nil
}

// start gives the variables the same values at any place: GoMLX's initializers depend on what has been drawn before.
func start(model train.ModelFn) train.ModelFn {
	return func(ctx *mlctx.Context, spec any, inputs []*graph.Node) []*graph.Node {
		return model(ctx.WithInitializer(func(g *graph.Graph, shape shapes.Shape) *graph.Node {
			n := shape.Size()
			x := graph.ConvertDType(graph.IotaFull(g, shape), shape.DType)
			return graph.MulScalar(graph.Sin(graph.AddScalar(x, float64(n))), 0.5)
		}), spec, inputs)
	}
}

func TestRanksTrainAsOneProcessDoes(t *testing.T) {
	for _, rows := range []int{96, 91} { // 91: the last batch has 19 rows, uneven on 2 and 3 ranks
		want := alone(t, rows, 24, 3, start(dense))
		for _, n := range []int{1, 2, 3} {
			for _, micro := range []int{0, 4} {
				t.Run(fmt.Sprintf("%drows/%dranks/micro%d", rows, n, micro), func(t *testing.T) {
					cfg := Config{MicroBatch: micro, BucketBytes: 8 * micro} // with micro-batches several buckets
					got, err := training{cfg: cfg, rows: rows, model: start(dense)}.each(t, n)
					if err != nil {
						t.Fatal(err)
					}
					for rank := range got {
						if err := near(got[rank], want, 2e-5); err != nil {
							t.Errorf("rank %d and one process: %v", rank, err)
						}
						if err := near(got[rank], got[0], 0); err != nil {
							t.Errorf("ranks %d and 0: %v", rank, err)
						}
					}
				})
			}
		}
	}
}

// Micro-batches draw the same random numbers on any number of ranks.
func TestDropoutDoesNotDependOnTheNumberOfRanks(t *testing.T) {
	model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		x := graph.Tanh(layers.Dense(ctx.In("hidden"), inputs[0], true, 8))
		return []*graph.Node{layers.Dense(ctx.In("out"), layers.DropoutStatic(ctx, x, 0.4), true, 1)}
	}
	var one map[string][]float32
	for _, n := range []int{1, 2, 3} {
		got, err := training{cfg: Config{MicroBatch: 4}, model: model}.each(t, n)
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			one = got[0]
		} else if err := near(got[n-1], one, 2e-5); err != nil {
			t.Errorf("%d ranks and one: %v", n, err)
		}
	}
	undropped, err := training{cfg: Config{MicroBatch: 4}}.each(t, 1)
	if err != nil {
		t.Fatal(err)
	}
	if near(undropped[0], one, 1e-3) == nil {
		t.Error("the model does not draw random numbers")
	}
}

// branches has the parameters a, b and c. The spec says which of a and b is used; c never is.
func branches(ctx *mlctx.Context, spec any, inputs []*graph.Node) []*graph.Node {
	w := make(map[any]*mlctx.Variable)
	for _, name := range []string{"a", "b", "c"} {
		w[name] = ctx.VariableWithValue(name, float32(0.5))
	}
	x := graph.Slice(inputs[0], graph.AxisRange(), graph.AxisRange(0, 1))
	return []*graph.Node{graph.Mul(x, w[spec].ValueGraph(x.Graph()))}
}

// Rank 0 uses a and rank 1 uses b, in the first step, and both use b in the second. The expected values are from the
// formula of the gradient.
func TestParametersThatARankDoesNotUse(t *testing.T) {
	const rate, decay = 0.1, 0.01
	specs := [][]any{{"a", "b"}, {"b", "b"}}
	bounds := [][][2]int{{{0, 6}, {6, 8}}, {{8, 12}, {12, 20}}}
	_, inputs, labels, err := points(newBackend(), 96, 96).Yield()
	if err != nil {
		t.Fatal(err)
	}
	x, y := tensors.MustCopyFlatData[float32](inputs[0]), tensors.MustCopyFlatData[float32](labels[0])
	want := map[any]float64{"a": 0.5, "b": 0.5, "c": 0.5}
	for step := range 2 {
		sum, rows := make(map[any]float64), 0.0
		for rank := range 2 {
			spec, at := specs[rank][step], bounds[rank][step]
			for i := at[0]; i < at[1]; i++ {
				x, y := float64(x[i*features]), float64(y[i])
				sum[spec] += 2 * (want[spec]*x - y) * x
				rows++
			}
		}
		for name, s := range sum {
			want[name] -= rate * s / rows
		}
	}
	got := make([]map[string][]float32, 2)
	err = ranks(t, 2, func(world *cohort.Comm) (err error) {
		r := world.Rank()
		got[r], _, err = training{model: branches, epochs: 1,
			optimizer: func() optimizers.Interface {
				return optimizers.StochasticGradientDescent().WithDecay(false).WithLearningRate(rate).Done()
			},
			dataset: func(t *Trainer, _ backends.Backend) train.Dataset {
				return t.Local(&batches{bounds: bounds[r], specs: specs[r]})
			}}.run(world)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank := range got {
		for name, w := range want {
			if g := got[rank]["/"+name.(string)]; len(g) != 1 || math.Abs(float64(g[0])-w) > 1e-6 {
				t.Errorf("rank %d: %s is %v, want %v", rank, name, g, w)
			}
		}
	}
	// An optimizer that changes a parameter without a gradient does not touch one that no rank uses.
	adamw := func() optimizers.Interface { return optimizers.Adam().LearningRate(rate).WeightDecay(decay).Done() }
	all, err := training{model: branches, epochs: 1, optimizer: adamw, dataset: func(t *Trainer, _ backends.Backend) train.Dataset {
		return t.Local(&batches{bounds: bounds[0], specs: []any{"a", "a"}})
	}}.each(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	if c, a := all[1]["/c"][0], all[1]["/a"][0]; c != 0.5 || a == 0.5 {
		t.Errorf("c is %v, which no rank uses, and a is %v", c, a)
	}
}

// Training in two parts, with a checkpoint between them, gives the same bits as in one. Only rank 0 sees the checkpoint.
func TestTrainingGoesOnFromACheckpoint(t *testing.T) {
	model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		x := layers.DropoutStatic(ctx, graph.Tanh(layers.Dense(ctx.In("hidden"), inputs[0], true, 8)), 0.2)
		return []*graph.Node{layers.Dense(ctx.In("out"), x, true, 1)}
	}
	whole, err := training{model: model, epochs: 3}.each(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	elsewhere := t.TempDir()
	part := func(epochs int) map[string][]float32 {
		var got map[string][]float32
		err := ranks(t, 2, func(world *cohort.Comm) error {
			ctx, dir := newContext(), folder
			if world.Rank() != 0 {
				dir = elsewhere
			}
			h, err := Checkpoint(world, checkpoints.Build(ctx).Dir(dir))
			if err != nil {
				return err
			}
			values, trainer, err := training{model: model, epochs: epochs, ctx: ctx}.run(world)
			if err != nil {
				return err
			}
			if world.Rank() == 1 {
				got = values
				if n := trainer.GlobalStep(); n%4 != 0 || n < int64(4*epochs) {
					return fmt.Errorf("rank 1 is at step %d", n)
				}
			}
			return h.Save()
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	part(1)
	got := part(2)
	if err := near(got, whole[0], 0); err != nil {
		t.Errorf("in two parts and in one: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(elsewhere, "*")); len(left) > 0 {
		t.Errorf("rank 1 has written %v", left)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	if len(files) != 1 {
		t.Fatalf("checkpoints %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "weights") || strings.Contains(string(text), "/ddp") {
		t.Errorf("the checkpoint lacks weights or has gradients: %v\n%s", err, text)
	}
}

// The running means of batch normalization are those of all ranks, and the loss that hooks see is.
func TestWhatTheModelChangesIsAveraged(t *testing.T) {
	model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		x := batchnorm.New(ctx, inputs[0], -1).Momentum(0.5).UseBackendInference(false).Done()
		return []*graph.Node{layers.Dense(ctx.In("out"), x, true, 1)}
	}
	means, loss := make([][]float32, 2), make([]float64, 2)
	err := ranks(t, 2, func(world *cohort.Comm) error {
		ctx, r := newContext(), world.Rank()
		_, _, err := training{model: model, ctx: ctx, epochs: 1, prepare: func(_ *Trainer, loop *train.Loop) {
			loop.OnStep("loss", 0, func(_ *train.Loop, m []*tensors.Tensor) error { loss[r] += scalar(m[0]); return nil })
		}}.run(world)
		if err != nil {
			return err
		}
		for v := range ctx.IterVariables() {
			if strings.Contains(v.Name(), "mean") && strings.Contains(v.Scope(), "batch_normalization") {
				means[r] = tensors.MustCopyFlatData[float32](v.MustValue())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(means[0]) != features || means[0][0] == 0 || !slices.Equal(means[0], means[1]) {
		t.Errorf("the running means are %v and %v", means[0], means[1])
	}
	if loss[0] == 0 || loss[0] != loss[1] {
		t.Errorf("the sums of the loss are %v and %v", loss[0], loss[1])
	}
}

// What a model wants done after the optimizer's step is done then: here it makes a parameter positive.
func TestPerStepFunctionsRunAfterTheStep(t *testing.T) {
	model := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		w := ctx.VariableWithValue("w", float32(0.01))
		g := inputs[0].Graph()
		train.AddPerStepUpdateGraphFn(ctx, g, func(ctx *mlctx.Context, g *graph.Graph) {
			w.SetValueGraph(graph.Max(w.ValueGraph(g), graph.Const(g, float32(0))))
		})
		x := graph.Slice(inputs[0], graph.AxisRange(), graph.AxisRange(0, 1))
		return []*graph.Node{graph.Neg(graph.Mul(x, w.ValueGraph(g)))} // the best w is below 0
	}
	got, err := training{model: model}.each(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	if w := got[1]["/w"][0]; w != 0 {
		t.Errorf("w is %v, want 0", w)
	}
}

// With Exact, the losses and the parameters have the same bits on 1, 2, 3 and 4 ranks, also after a last batch of 19
// rows, and they are those of GoMLX alone but for rounding.
func TestExactSumsGiveTheSameBitsOnAnyNumberOfRanks(t *testing.T) {
	dropout := func(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
		x := graph.Tanh(layers.Dense(ctx.In("hidden"), inputs[0], true, 8))
		return []*graph.Node{layers.Dense(ctx.In("out"), layers.DropoutStatic(ctx, x, 0.4), true, 1)}
	}
	for name, model := range map[string]train.ModelFn{"dropout": dropout, "plain": start(dense)} {
		var one string
		for _, n := range []int{1, 2, 3, 4} {
			digests := make([]string, n)
			err := ranks(t, n, func(world *cohort.Comm) error {
				h := sha256.New()
				values, _, err := training{cfg: Config{MicroBatch: 2, Exact: true}, rows: 91, model: model, prepare: func(t *Trainer, loop *train.Loop) {
					loop.OnStep("loss", 0, func(_ *train.Loop, m []*tensors.Tensor) error {
						if t.Updated() {
							fmt.Fprintf(h, "%x\n", math.Float64bits(scalar(m[0])))
						}
						return nil
					})
				}}.run(world)
				if name == "plain" && err == nil {
					err = near(values, alone(t, 91, 24, 3, model), 2e-5)
				}
				fmt.Fprint(h, values)
				digests[world.Rank()] = fmt.Sprintf("%x", h.Sum(nil))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				one = digests[0]
			}
			for rank, d := range digests {
				if d != one {
					t.Errorf("%s: rank %d of %d has the digest %s, and one rank %s", name, rank, n, d, one)
				}
			}
		}
	}
}
