package main

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/cohort-hpc/cohort/tensor"
)

// layer is y = tanh(x·w + b), the last one without tanh. Each of its matrices and the tensor beside it
// are the same memory.
type layer struct {
	w, dw, vw *mat.Dense // weights, their gradient, their velocity: inputs × units
	b, db, vb *mat.Dense // 1 × units
	tensors   [4]*tensor.Tensor[float64]

	x, y, dy mat.Dense // of the last batch: a row for each point
}

// The tensors of a layer.
const (
	weight = iota
	bias
	weightGradient
	biasGradient
)

type network struct{ layers []*layer }

func newNetwork() *network {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := new(network)
	units := []int{2, hidden, hidden, classes}
	for i, out := range units[1:] {
		in := units[i]
		l := new(layer)
		l.w, l.tensors[weight] = both(in, out)
		l.b, l.tensors[bias] = both(1, out)
		l.dw, l.tensors[weightGradient] = both(in, out)
		l.db, l.tensors[biasGradient] = both(1, out)
		l.vw, l.vb = mat.NewDense(in, out, nil), mat.NewDense(1, out, nil)
		spread := math.Sqrt(6 / float64(in+out)) // Glorot and Bengio 2010
		l.w.Apply(func(_, _ int, _ float64) float64 { return spread * (2*rng.Float64() - 1) }, l.w)
		n.layers = append(n.layers, l)
	}
	return n
}

// both returns a matrix and a tensor over the same memory.
func both(rows, cols int) (*mat.Dense, *tensor.Tensor[float64]) {
	data := make([]float64, rows*cols)
	t, err := tensor.Of(data, rows, cols)
	if err != nil {
		panic(err) // data is as long as rows and cols say
	}
	return mat.NewDense(rows, cols, data), t
}

// weights returns all weights, first layer first.
func (n *network) weights() (all []*tensor.Tensor[float64]) {
	for _, l := range n.layers {
		all = append(all, l.tensors[weight], l.tensors[bias])
	}
	return all
}

// gradients returns the gradients in the order in which learn computes them: last layer first.
func (n *network) gradients() (all []*tensor.Tensor[float64]) {
	for i := len(n.layers) - 1; i >= 0; i-- {
		all = append(all, n.layers[i].tensors[weightGradient], n.layers[i].tensors[biasGradient])
	}
	return all
}

func (n *network) size() (size int) {
	for _, t := range n.weights() {
		size += t.Len()
	}
	return size
}

// forward returns, for each point, a row of how likely each class is.
func (n *network) forward(points []point) *mat.Dense {
	x := mat.NewDense(len(points), 2, nil)
	for i, p := range points {
		x.SetRow(i, p.at[:])
	}
	for k, l := range n.layers {
		l.x.CloneFrom(x)
		l.y.Reset()
		l.y.Mul(x, l.w)
		last := k == len(n.layers)-1
		l.y.Apply(func(_, j int, v float64) float64 {
			if v += l.b.At(0, j); last {
				return v
			}
			return math.Tanh(v)
		}, &l.y)
		x = &l.y
	}
	likely := mat.DenseCopyOf(x)
	for i := range points {
		row := likely.RawRowView(i)
		top, sum := mat.Max(likely.RowView(i)), 0.0
		for j, v := range row {
			row[j] = math.Exp(v - top)
			sum += row[j]
		}
		for j := range row {
			row[j] /= sum
		}
	}
	return likely
}

// learn computes the mean loss of some points (cross entropy), and its gradients. It calls ready with the index of each
// gradient as soon as the gradient is computed.
func (n *network) learn(points []point, ready func(i int) error) (loss float64, err error) {
	likely := n.forward(points)
	share := 1 / float64(len(points))
	for i, p := range points {
		row := likely.RawRowView(i)
		loss -= math.Log(math.Max(row[p.class], math.SmallestNonzeroFloat64)) * share
		row[p.class]--
		for j := range row {
			row[j] *= share
		}
	}
	delta := likely // of the loss by what goes into tanh
	for k := len(n.layers) - 1; k >= 0; k-- {
		l := n.layers[k]
		l.dw.Mul(l.x.T(), delta)
		for j := range l.db.RawRowView(0) {
			l.db.Set(0, j, mat.Sum(delta.ColView(j)))
		}
		for i := range 2 {
			if err := ready(2*(len(n.layers)-1-k) + i); err != nil {
				return 0, err
			}
		}
		if k > 0 {
			l.dy.Reset()
			l.dy.Mul(delta, l.w.T())
			l.dy.Apply(func(i, j int, v float64) float64 { y := l.x.At(i, j); return v * (1 - y*y) }, &l.dy)
			delta = &l.dy
		}
	}
	return loss, nil
}

// step changes the weights by the gradients.
func (n *network) step() {
	change := func(w, dw, v *mat.Dense) {
		v.Apply(func(i, j int, old float64) float64 { return momentum*old - rate*dw.At(i, j) }, v)
		w.Add(w, v)
	}
	for _, l := range n.layers {
		change(l.w, l.dw, l.vw)
		change(l.b, l.db, l.vb)
	}
}

// right returns the fraction of the points that is classified correctly.
func (n *network) right(points []point) float64 {
	likely := n.forward(points)
	count := 0
	for i, p := range points {
		best := 0
		for j, v := range likely.RawRowView(i) {
			if v > likely.At(i, best) {
				best = j
			}
		}
		if best == p.class {
			count++
		}
	}
	return float64(count) / float64(len(points))
}
