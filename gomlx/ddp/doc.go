// Package ddp trains GoMLX models data-parallel: every rank has the whole model and a part of each batch, and gradients
// are averaged over the ranks. A [Trainer] wraps GoMLX's trainer, and the loop with its hooks stays GoMLX's own.
//
//	trainer := ddp.NewTrainer(world, nil, backend, ctx, modelFn, lossFn, optimizer, trainMetrics, evalMetrics)
//	loop, err := trainer.NewLoop()
//	metrics, err := loop.RunEpochs(trainer.Shard(dataset), 5)
//
// docs/gomlx.md has a program, and docs/adr/0038-gomlx-gradients.md the reasons for the design.
package ddp
