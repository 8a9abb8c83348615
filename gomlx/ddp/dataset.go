package ddp

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/train"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// piece is a part of a batch: what one train step works on.
type piece struct {
	yielded     bool
	lo, hi      int    // rows of the batch
	index       int    // among the pieces of all ranks
	rows        int    // that count: 0 if the step only keeps this rank in step with the others
	first, last bool   // of this rank's pieces of the batch
	digest      uint32 // of the batch, 20 bits: the sum over 8000 ranks of its square is exact in a float64
}

// cut cuts a batch into the pieces of all ranks and returns those of one, which follow each other. Without micro there
// is one piece for each rank, and they are as even as possible. Otherwise they have micro rows, but for the last. Every
// rank gets the same number of pieces: where there are not enough, one again, which does not count.
func cut(rows, micro, rank, size int) (own []piece) {
	n := size
	if micro > 0 {
		n = (rows + micro - 1) / micro
	}
	bound := func(i int) int {
		if micro > 0 {
			return min(i*micro, rows)
		}
		return i * rows / n
	}
	steps := (n + size - 1) / size
	for i := rank * steps; i < (rank+1)*steps; i++ {
		p := piece{yielded: true, index: i}
		if i < n {
			p.lo, p.hi = bound(i), bound(i+1)
			p.rows = p.hi - p.lo
		}
		switch {
		case p.rows > 0:
		case len(own) > 0:
			p.lo, p.hi = own[0].lo, own[0].hi
		default:
			p.lo, p.hi = 0, max(1, bound(1))
		}
		own = append(own, p)
	}
	own[0].first, own[steps-1].last = true, true
	return own
}

// way is how a dataset shares out batches.
type way int

const (
	shard way = iota
	scatter
	local
)

// batch is what a train step works on.
type batch struct {
	piece          piece
	spec           any
	inputs, labels []*tensors.Tensor
}

// dataset shares out batches.
type dataset struct {
	train.Dataset
	t     *Trainer
	way   way
	queue []batch // of this rank, still to come
	full  int     // rows of the largest batch so far
	ended bool    // local: this rank's dataset has ended
	kept  batch   // local: the last batch
	rows  int     // of kept
}

// Shard returns a dataset for the trainer's loop, of a dataset that yields the same batches on every rank. Each rank's
// train steps get its rows of every batch: the leading axis of all inputs and labels that are not scalars. The number of
// rows must be a multiple of the number of ranks, and of MicroBatch times that. Only batches that are smaller than those
// before, at the end of an epoch, are shared out unevenly.
//
// GoMLX's InMemoryDataset shuffles in another order in each process, whatever its WithRand says: use [Trainer.Scatter].
//
// Not collective.
func (t *Trainer) Shard(ds train.Dataset) train.Dataset { return &dataset{Dataset: ds, t: t} }

// Scatter is like [Trainer.Shard], but only rank 0 reads its dataset, and sends the other ranks their rows. Specs must be
// nil.
//
// Not collective; the dataset's Yield is.
func (t *Trainer) Scatter(ds train.Dataset) train.Dataset {
	return &dataset{Dataset: ds, t: t, way: scatter}
}

// Local returns a dataset for the trainer's loop, of a dataset that is the rank's own, such as a file for each rank. A
// step takes a batch of each rank, which may have any numbers of rows: the average is over all rows. A rank whose
// dataset has ended repeats a batch, which does not count, until those of all ranks have. MicroBatch has no effect.
//
// Not collective; the dataset's Yield is.
func (t *Trainer) Local(ds train.Dataset) train.Dataset {
	return &dataset{Dataset: ds, t: t, way: local}
}

// IsOwnershipTransferred implements [train.DatasetCustomOwnership]: the loop frees what it gets.
func (d *dataset) IsOwnershipTransferred() bool { return true }

// Reset implements [train.Dataset].
func (d *dataset) Reset() {
	d.Dataset.Reset()
	d.queue, d.ended = nil, false
}

// Yield implements [train.Dataset].
func (d *dataset) Yield() (spec any, inputs, labels []*tensors.Tensor, err error) {
	d.t.piece = piece{}
	if d.t.comm == nil {
		return nil, nil, nil, errors.New("ddp: a batch is taken before NewLoop")
	}
	if len(d.queue) == 0 {
		switch d.way {
		case shard:
			err = d.fillShard()
		case scatter:
			err = d.fillScatter()
		case local:
			err = d.fillLocal()
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	b := d.queue[0]
	d.queue = d.queue[1:]
	d.t.piece = b.piece
	return b.spec, b.inputs, b.labels, d.t.setRandomState(derive(d.t.rng, uint64(b.piece.index)))
}

// cut takes a batch from the dataset and returns the pieces of ranks from to to-1.
func (d *dataset) cut(from, to int) (all [][]batch, err error) {
	spec, inputs, labels, err := d.Dataset.Yield()
	if err != nil {
		return nil, err
	}
	rows, err := batchRows(inputs, labels)
	if err != nil {
		return nil, fmt.Errorf("ddp: dataset %q: %w", d.Name(), err)
	}
	size, micro := d.t.comm.Size(), d.t.cfg.MicroBatch
	d.full = max(d.full, rows)
	if unit := size * max(1, micro); rows == d.full && rows%unit != 0 {
		what := ""
		if micro > 0 {
			what = fmt.Sprintf(" in micro-batches of %d rows", micro)
		}
		return nil, fmt.Errorf("ddp: a batch of %d rows cannot be shared out to %d ranks%s; use a multiple of %d rows", rows, size, what, unit)
	}
	var h uint32
	if d.way == shard {
		if h, err = digest(inputs, labels); err != nil {
			return nil, err
		}
	}
	for rank := from; rank < to; rank++ {
		var own []batch
		for _, p := range cut(rows, micro, rank, size) {
			p.digest = h
			b := batch{piece: p, spec: spec}
			if b.inputs, b.labels, err = copyRows(inputs, labels, p.lo, p.hi); err != nil {
				return nil, err
			}
			own = append(own, b)
		}
		all = append(all, own)
	}
	return all, release(d.Dataset, inputs, labels)
}

func (d *dataset) fillShard() error {
	rank := d.t.comm.Rank()
	all, err := d.cut(rank, rank+1)
	if err == nil {
		d.queue = all[0]
	}
	return err
}

// fillScatter takes a batch from rank 0's dataset. Collective.
func (d *dataset) fillScatter() error {
	c := d.t.comm
	var all [][]batch
	var err error
	if c.Rank() == 0 {
		if all, err = d.cut(0, c.Size()); err == io.EOF {
			all, err = make([][]batch, c.Size()), nil // nothing for anyone: the end
		}
	}
	shares := make([][]share, len(all))
	for rank, own := range all {
		for _, b := range own {
			if b.spec != nil {
				err = fmt.Errorf("ddp: dataset %q has a spec, %v, which Scatter cannot send; use Shard", d.Name(), b.spec)
			}
			shares[rank] = append(shares[rank], share{b.piece.index, b.piece.rows, encode(b.inputs), encode(b.labels)})
		}
	}
	if err := cohort.JoinErrors(c, err); err != nil {
		return err
	}
	own, err := values.Scatter(c, shares, 0)
	if err != nil {
		return err
	}
	if len(own) == 0 {
		return io.EOF
	}
	for i, s := range own {
		p := piece{yielded: true, index: s.Index, rows: s.Rows, first: i == 0, last: i == len(own)-1}
		d.queue = append(d.queue, batch{piece: p, inputs: decode(s.Inputs), labels: decode(s.Labels)})
	}
	for _, own := range all {
		for _, b := range own {
			if err := free(b.inputs, b.labels); err != nil {
				return err
			}
		}
	}
	return nil
}

// share is a batch as it is sent.
type share struct {
	Index, Rows    int
	Inputs, Labels []flat
}

// flat is a tensor as it is sent.
type flat struct {
	DType      dtypes.DType
	Dimensions []int
	Data       []byte
}

func encode(ts []*tensors.Tensor) (fs []flat) {
	for _, x := range ts {
		f := flat{DType: x.DType(), Dimensions: x.Shape().Dimensions}
		x.ConstBytes(func(data []byte) { f.Data = slices.Clone(data) })
		fs = append(fs, f)
	}
	return fs
}

func decode(fs []flat) (ts []*tensors.Tensor) {
	for _, f := range fs {
		x := tensors.FromShape(shapes.Make(f.DType, f.Dimensions...))
		x.MutableBytes(func(data []byte) { copy(data, f.Data) })
		ts = append(ts, x)
	}
	return ts
}

// fillLocal takes this rank's next batch, or the last one again if only other ranks have more. Collective.
func (d *dataset) fillLocal() error {
	p := piece{yielded: true, index: d.t.comm.Rank(), first: true, last: true}
	var err error
	if !d.ended {
		var next batch
		next.spec, next.inputs, next.labels, err = d.Dataset.Yield()
		if d.ended = err == io.EOF; d.ended {
			err = nil
		} else if err == nil {
			err = release(d.Dataset, d.kept.inputs, d.kept.labels)
			d.kept, d.rows = next, 0
		}
		if err == nil && !d.ended {
			d.rows, err = batchRows(next.inputs, next.labels)
			p.rows = d.rows
		}
		if err == nil && d.rows == 0 {
			err = errors.New("a dataset without batches")
		}
		if err != nil {
			err = fmt.Errorf("ddp: dataset %q of this rank: %w", d.Name(), err)
		}
	}
	if err := cohort.JoinErrors(d.t.comm, err); err != nil {
		return err
	}
	all, err := cohort.AllreduceOne(d.t.comm, p.rows, cohort.Sum)
	if err != nil {
		return err
	}
	if all == 0 {
		return io.EOF
	}
	b := batch{piece: p, spec: d.kept.spec}
	b.inputs, b.labels, err = copyRows(d.kept.inputs, d.kept.labels, 0, d.rows)
	d.queue = []batch{b}
	return err
}

// evaluation yields a rank's rows of each batch, and skips batches of which it has none.
type evaluation struct {
	train.Dataset
	rank, size  int
	rows, total int  // yielded so far on this rank, and on all
	ended       bool // all batches have been yielded
}

// IsOwnershipTransferred implements [train.DatasetCustomOwnership].
func (e *evaluation) IsOwnershipTransferred() bool { return true }

// Yield implements [train.Dataset].
func (e *evaluation) Yield() (spec any, inputs, labels []*tensors.Tensor, err error) {
	for {
		spec, all, allLabels, err := e.Dataset.Yield()
		if err != nil {
			e.ended = err == io.EOF
			return nil, nil, nil, err
		}
		rows, err := batchRows(all, allLabels)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("ddp: dataset %q: %w", e.Name(), err)
		}
		e.total += rows
		p := cut(rows, 0, e.rank, e.size)[0]
		if p.rows > 0 {
			e.rows += p.rows
			inputs, labels, err = copyRows(all, allLabels, p.lo, p.hi)
		}
		err = errors.Join(err, release(e.Dataset, all, allLabels))
		if err != nil || p.rows > 0 {
			return spec, inputs, labels, err
		}
	}
}

// batchRows returns the number of rows of a batch.
func batchRows(inputs, labels []*tensors.Tensor) (int, error) {
	rows := -1
	for _, x := range slices.Concat(inputs, labels) {
		switch {
		case x.IsScalar():
		case rows < 0:
			rows = x.Shape().Dimensions[0]
		case rows != x.Shape().Dimensions[0]:
			return 0, fmt.Errorf("a batch with leading axes of %d and %d rows", rows, x.Shape().Dimensions[0])
		}
	}
	if rows <= 0 {
		return 0, errors.New("a batch without rows")
	}
	return rows, nil
}

// copyRows returns copies of rows lo to hi-1 of a batch.
func copyRows(inputs, labels []*tensors.Tensor, lo, hi int) (in, out []*tensors.Tensor, err error) {
	if in, err = rowsOf(inputs, lo, hi); err == nil {
		out, err = rowsOf(labels, lo, hi)
	}
	return in, out, err
}

// rowsOf returns copies of rows lo to hi-1 of tensors. Scalars are copied whole.
func rowsOf(from []*tensors.Tensor, lo, hi int) ([]*tensors.Tensor, error) {
	to := make([]*tensors.Tensor, len(from))
	for i, x := range from {
		shape, size := x.Shape().Clone(), 0
		if !x.IsScalar() {
			size = int(x.Memory()) / shape.Dimensions[0]
			shape.Dimensions[0] = hi - lo
		}
		to[i] = tensors.FromShape(shape)
		if to[i].Size() == 0 {
			continue
		}
		var failed error
		err := x.ConstBytes(func(src []byte) {
			failed = to[i].MutableBytes(func(dst []byte) { copy(dst, src[lo*size:]) })
		})
		if err = errors.Join(err, failed); err != nil {
			return nil, err
		}
	}
	return to, nil
}

// digest returns 20 bits that depend on all elements of a batch.
func digest(inputs, labels []*tensors.Tensor) (uint32, error) {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	for _, x := range slices.Concat(inputs, labels) {
		io.WriteString(h, x.Shape().String())
		if x.Size() == 0 {
			continue
		}
		if err := x.ConstBytes(func(data []byte) { h.Write(data) }); err != nil {
			return 0, err
		}
	}
	return h.Sum32() >> 12, nil
}

// release frees a batch of ds, unless ds keeps it.
func release(ds train.Dataset, inputs, labels []*tensors.Tensor) error {
	if c, ok := ds.(train.DatasetCustomOwnership); ok && !c.IsOwnershipTransferred() {
		return nil
	}
	return free(inputs, labels)
}

func free(inputs, labels []*tensors.Tensor) error {
	for _, x := range slices.Concat(inputs, labels) {
		if err := x.FinalizeAll(); err != nil {
			return err
		}
	}
	return nil
}
