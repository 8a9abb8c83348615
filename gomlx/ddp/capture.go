package ddp

import (
	"fmt"
	"strings"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/context/checkpoints"
	"github.com/gomlx/gomlx/pkg/ml/context/initializers"
	"github.com/gomlx/gomlx/pkg/ml/train"
)

// scope has the variables of this package: gradients, and the number of the graph that ran last.
const scope = context.ScopeSeparator + "ddp"

// capture is the optimizer of the trainer's graph. It changes no parameters: it stores the gradients in variables, where
// they can be averaged outside of any graph. A second graph then makes the step of the program's optimizer. capture does
// not implement [train.OptimizeWithGradients], so that GoMLX's own gradient accumulation is refused.
type capture Trainer

// trainGraph is what is known of one graph of train steps. There is one for each shape and spec of a batch.
type trainGraph struct {
	uses      []float64 // by entry: 1 if the graph computes it
	lossDType dtypes.DType
	after     []perStep // run after the optimizer's step
}

// perStep is a function of [train.AddPerStepUpdateGraphFn].
type perStep struct {
	scope string
	fn    train.ContextGraphFn
}

// Clear implements [optimizers.Interface].
func (c *capture) Clear(ctx *context.Context) error { return c.optimizer.Clear(ctx) }

// UpdateGraph implements [optimizers.Interface]. The first graph that a rank builds is also where the ranks agree on what
// they train, since all variables of the model exist then, and none has been used.
func (c *capture) UpdateGraph(ctx *context.Context, g *graph.Graph, loss *graph.Node) {
	t := (*Trainer)(c)
	var trained, changed []*context.Variable
	for v := range ctx.IterVariables() {
		switch {
		case v.Trainable && v.InUseByGraph(g):
			trained = append(trained, v)
		case !v.Trainable && v.ChangedInGraph(g) && v.DType().IsFloat(): // such as running means of batch normalization
			changed = append(changed, v)
		}
	}
	gradients := ctx.BuildTrainableVariablesGradientsGraph(loss)
	if t.entries == nil {
		if err := t.begin(ctx, changed); err != nil {
			panic(err)
		}
	}
	built := &trainGraph{uses: make([]float64, len(t.entries)), lossDType: loss.DType(), after: takePerStep(ctx, g)}
	for i, v := range append(trained, changed...) {
		e := t.entries[v]
		if e == nil {
			panic(fmt.Errorf("ddp: %s is new or changed only after the first step; build all parameters in every graph: one that the graph does not use costs nothing", v.ScopeAndName()))
		}
		built.uses[e.index] = 1
		if i < len(trained) {
			e.gradient.SetValueGraph(gradients[i])
		}
	}
	t.number.SetValueGraph(graph.Const(g, int64(len(t.graphs))))
	t.graphs = append(t.graphs, built)
}

// takePerStep removes the functions that a graph runs after its optimizer, and returns them.
func takePerStep(ctx *context.Context, g *graph.Graph) (fns []perStep) {
	ctx.EnumerateGraphParams(g, func(scope, key string, value any) {
		if fn, ok := value.(train.ContextGraphFn); ok && key == train.TrainerPerStepUpdateGraphFnParamKey {
			fns = append(fns, perStep{scope, fn})
		}
	})
	for _, f := range fns {
		ctx.InAbsPath(f.scope).SetGraphParam(g, train.TrainerPerStepUpdateGraphFnParamKey, nil)
	}
	return fns
}

// optimize makes the optimizer's step with the gradients of the entries that are used.
func (t *Trainer) optimize(last *trainGraph) error {
	key := make([]byte, len(t.used))
	for i := range key {
		key[i] = '0' + byte(min(t.used[i], 1))
	}
	step := t.steps[string(key)]
	if step == nil {
		with, ok := t.optimizer.(train.OptimizeWithGradients)
		if !ok {
			return fmt.Errorf("ddp: %T cannot take gradients: use an optimizer that implements train.OptimizeWithGradients, such as SGD or Adam", t.optimizer)
		}
		var err error
		step, err = context.NewExec(t.backend, t.Context().Checked(false), func(ctx *context.Context, g *graph.Graph) *graph.Node {
			var gradients []*graph.Node
			for v := range ctx.IterVariables() { // the order in which optimizers expect gradients
				if e := t.entries[v]; e != nil && e.gradient != nil && v.Trainable && key[e.index] == '1' {
					v.ValueGraph(g)
					gradients = append(gradients, e.gradient.ValueGraph(g))
				}
			}
			with.UpdateGraphWithGradients(ctx, gradients, last.lossDType)
			for _, f := range last.after {
				f.fn(ctx.InAbsPath(f.scope), g)
			}
			if err := t.share(ctx); err != nil { // the optimizer's own variables, which may be from a checkpoint
				panic(err)
			}
			return graph.Const(g, int32(0))
		})
		if err != nil {
			return err
		}
		t.steps[string(key)] = step.WithName("ddp: optimizer")
	}
	out, err := step.Exec()
	if err != nil {
		return err
	}
	return out[0].FinalizeAll()
}

// hold makes the variable of a parameter's gradient.
func hold(ctx *context.Context, v *context.Variable) *context.Variable {
	return ctx.InAbsPath(scope+context.ScopeSeparator+"gradients"+v.Scope()).Checked(false).
		WithInitializer(initializers.Zero).VariableWithShape(v.Name(), v.Shape().Clone()).SetTrainable(false)
}

// isOwn reports whether a variable belongs to this package.
func isOwn(v *context.Variable) bool {
	return v.Scope() == scope || strings.HasPrefix(v.Scope(), scope+context.ScopeSeparator)
}

// exclude keeps this package's variables out of checkpoints.
func exclude(ctx *context.Context) {
	loader := ctx.Loader()
	if r, ok := loader.(*resumed); ok {
		loader = r.next
	}
	h, ok := loader.(*checkpoints.Handler)
	if !ok {
		return
	}
	for v := range ctx.IterVariables() {
		if isOwn(v) {
			h.ExcludeVarsFromSaving(v)
		}
	}
}
