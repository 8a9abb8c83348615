package main

import (
	"github.com/gomlx/gomlx/pkg/core/graph"
	mlctx "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/layers"
	"github.com/gomlx/gomlx/pkg/ml/layers/activations"
)

// model returns the logits of the ten digits.
func model(ctx *mlctx.Context, _ any, inputs []*graph.Node) []*graph.Node {
	x := activations.Relu(layers.Dense(ctx.In("hidden"), inputs[0], true, 128))
	return []*graph.Node{layers.Dense(ctx.In("digits"), x, true, 10)}
}
