// Command ddp trains a small network on several ranks at once, data-parallel: every rank has all
// weights and a part of each batch; the gradients are averaged over the ranks, bucket by bucket,
// while those of earlier layers are still being computed.
//
//	go run ./cmd/cohort run -n 4 ./gonum/examples/ddp
//	go run ./cmd/cohort run -n 2 ./gonum/examples/ddp --plot loss.svg
//	go run ./cmd/cohort run -n 4 --restarts 10 ./gonum/examples/ddp
//
// With --restarts, other processes take the places of ranks that are lost, and get weights and velocities from a survivor.
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

	"gonum.org/v1/gonum/mat"

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
	ctx := context.Background()
	world, err := cohort.Init(ctx, &cohort.Config{Deterministic: true})
	if err != nil {
		log.Fatal(err)
	}
	world, err = run(ctx, world, *data, *steps, *plot)
	if err := world.CloseWith(err); err != nil {
		log.Fatal(err)
	}
}

// run returns the world in which the training has ended.
func run(ctx context.Context, world *cohort.Comm, data string, steps int, plot string) (*cohort.Comm, error) {
	points, err := read(data)
	if err != nil {
		return world, err
	}
	t := &training{net: newNetwork()}
	world, err = t.train(ctx, world, points, steps)
	if err != nil || world.Rank() != 0 {
		return world, err
	}
	fmt.Printf("%d points, %d weights, %d ranks: loss %.4f at first, %.4f after %d steps\n",
		len(points), t.net.size(), world.Size(), t.losses[0], t.losses[steps-1], steps)
	fmt.Printf("%.1f %% of the points are classified correctly; the weights' digest is %.16s\n", 100*t.net.right(points), t.net.digest())
	if plot != "" {
		return world, os.WriteFile(plot, draw(t.losses), 0o666)
	}
	return world, nil
}

// training is the state of a training, which every rank has whole.
type training struct {
	net    *network
	losses []float64 // the mean loss of all points in each step so far
}

// train trains until some steps have been made. If ranks are lost, it continues in the next world, and returns the last one.
func (t *training) train(ctx context.Context, world *cohort.Comm, points []point, steps int) (*cohort.Comm, error) {
	for {
		err := t.handOver(world)
		if err == nil {
			err = t.learn(world, points, steps)
		}
		if err == nil {
			err = world.Barrier() // fails if a rank has been lost since its last step
		}
		done := 1
		if err != nil {
			done = 0
		}
		switch all, agreed := world.Agree(done); {
		case errors.Is(agreed, cohort.ErrNotSupported): // on mpi, where a loss ends the job
			return world, err
		case agreed != nil:
			return world, agreed
		case all == 1: // on every rank: none finishes while another needs it
			return world, nil
		case err != nil && !errors.Is(err, cohort.ErrPeerLost):
			return world, err
		}
		next, err := cohort.Rejoin(ctx, world)
		if err != nil {
			return world, err
		}
		world = next
	}
}

// handOver gives every rank the state of the one that has made the most steps: others may lack one, and new ranks all.
func (t *training) handOver(world *cohort.Comm) error {
	latest, err := cohort.AllreduceOne(world, cohort.Loc[int]{Val: len(t.losses), Idx: int64(world.Rank())}, cohort.MaxLoc)
	if err != nil {
		return err
	}
	var all []float64
	for _, part := range t.parts() {
		all = append(all, part...)
	}
	root := int(latest.Idx)
	if world.Rank() != root {
		all = make([]float64, len(all)-len(t.losses)+latest.Val)
	}
	if err := cohort.Bcast(world, all, root); err != nil {
		return err // the state is as it was
	}
	t.losses = make([]float64, latest.Val)
	for _, part := range t.parts() {
		all = all[copy(part, all):]
	}
	return nil
}

// parts returns all numbers of the state.
func (t *training) parts() [][]float64 {
	all := [][]float64{t.losses}
	for _, l := range t.net.layers {
		for _, m := range []*mat.Dense{l.w, l.b, l.vw, l.vb} {
			all = append(all, m.RawMatrix().Data)
		}
	}
	return all
}

// learn makes the steps that are left.
func (t *training) learn(world *cohort.Comm, points []point, steps int) (err error) {
	if batch%world.Size() != 0 {
		return fmt.Errorf("ddp: a batch of %d points cannot be dealt out to %d ranks", batch, world.Size())
	}
	comm, err := tensor.NewComm(world, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	grads, err := tensor.NewReducer(comm, t.net.gradients(), tensor.Average, bucket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, grads.Close()) }()
	share := batch / world.Size()
	order := newOrder(len(points))
	for range t.losses {
		order.next(batch)
	}
	mine := make([]point, share)
	for len(t.losses) < steps {
		for i, at := range order.next(batch)[world.Rank()*share:][:share] {
			mine[i] = points[at]
		}
		loss, err := t.net.learn(mine, grads.Ready)
		if err == nil {
			loss, err = cohort.AllreduceOne(world, loss/float64(world.Size()), cohort.Sum)
		}
		if err == nil {
			err = grads.Wait()
		}
		if err != nil {
			return err
		}
		t.losses = append(t.losses, loss)
		t.net.step()
	}
	return nil
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
