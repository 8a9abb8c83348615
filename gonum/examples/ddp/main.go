// Command ddp trains a small network on several ranks at once, data-parallel: every rank has all
// weights and a part of each batch; the gradients are averaged over the ranks, bucket by bucket,
// while those of earlier layers are still being computed.
//
//	go run ./cmd/cohort run -n 4 ./gonum/examples/ddp
//	go run ./cmd/cohort run -n 2 ./gonum/examples/ddp --plot loss.svg
//
// The points of spirals.csv lie on three spirals, and the network learns which. For a given number of ranks the weights
// have the same bits on every backend and from run to run (on MPI with cohort.Config.Deterministic, as here); another
// number of ranks adds the gradients up in another order, and differs by rounding.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tensor"
)

const (
	hidden   = 32   // units of each of the two layers in the middle
	batch    = 120  // points in a step, of all ranks together
	rate     = 0.05 // of learning
	momentum = 0.9
	seed     = 7       // of weights at the start, and of the order of points
	bucket   = 8 << 10 // bytes of gradients that are averaged together
)

func main() {
	log.SetFlags(0)
	data := flag.String("data", "gonum/examples/ddp/spirals.csv", "points and their classes: x, y, class")
	steps := flag.Int("steps", 400, "how many steps to train")
	plot := flag.String("plot", "", "draw the loss over the steps to this SVG file")
	flag.Parse()
	if flag.NArg() > 0 || *steps < 1 {
		log.Fatal("ddp: want no arguments, and at least one step; see ddp --help")
	}
	world, err := cohort.Init(context.Background(), &cohort.Config{Deterministic: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := world.CloseWith(run(world, *data, *steps, *plot)); err != nil {
		log.Fatal(err)
	}
}

func run(world *cohort.Comm, data string, steps int, plot string) error {
	points, err := read(data)
	if err != nil {
		return err
	}
	net, losses, err := train(world, points, steps)
	if err != nil || world.Rank() != 0 {
		return err
	}
	fmt.Printf("%d points, %d weights, %d ranks: loss %.4f at first, %.4f after %d steps\n",
		len(points), net.size(), world.Size(), losses[0], losses[steps-1], steps)
	fmt.Printf("%.1f %% of the points are classified correctly; the weights' digest is %.16s\n", 100*net.right(points), net.digest())
	if plot != "" {
		return os.WriteFile(plot, draw(losses), 0o666)
	}
	return nil
}

// train returns the network after some steps, and the mean loss of all points in each.
func train(world *cohort.Comm, points []point, steps int) (net *network, losses []float64, err error) {
	if batch%world.Size() != 0 {
		return nil, nil, fmt.Errorf("ddp: a batch of %d points cannot be dealt out to %d ranks", batch, world.Size())
	}
	comm, err := tensor.NewComm(world, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	net = newNetwork()
	// A network of the same seed is the same everywhere; a program that reads it from a file would broadcast it.
	for _, t := range net.weights() {
		if err := tensor.Bcast(comm, t, 0); err != nil {
			return nil, nil, err
		}
	}
	grads, err := tensor.NewReducer(comm, net.gradients(), tensor.Average, bucket)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, grads.Close()) }()
	share := batch / world.Size()
	order := newOrder(len(points))
	mine := make([]point, share)
	for range steps {
		for i, at := range order.next(batch)[world.Rank()*share:][:share] {
			mine[i] = points[at]
		}
		loss, err := net.learn(mine, grads.Ready)
		if err == nil {
			loss, err = cohort.AllreduceOne(world, loss/float64(world.Size()), cohort.Sum)
		}
		if err == nil {
			err = grads.Wait()
		}
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, loss)
		net.step()
	}
	return net, losses, nil
}

// digest returns a digest of the bits of all weights.
func (n *network) digest() string {
	h := sha256.New()
	for _, t := range n.weights() {
		for _, x := range t.Data() {
			_ = binary.Write(h, binary.LittleEndian, math.Float64bits(x)) // to a hash nothing fails
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
