package direct

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// order returns the order of the reduction of vectors of Count elements, those of all blocks for ReduceScatterBlock.
func (t *task) order() coll.Order {
	count := t.Count
	if t.Coll == backend.ReduceScatterBlock {
		count *= t.size
	}
	return coll.NewOrder(t.size, count, t.elem, t.Op.Commutative)
}

// reduce sets dst to elements lo to hi-1 of the reduction.
func (t *task) reduce(lo, hi int, dst []byte) error { return t.eval(t.order(), lo, hi, dst) }

// chunk returns the elements that rank combines for all.
func (t *task) chunk(rank int) (lo, hi int) {
	q, r := t.Count/t.size, t.Count%t.size
	lo = rank*q + min(rank, r)
	hi = lo + q
	if rank < r {
		hi++
	}
	return lo, hi
}

// allreduce: every rank combines its chunk into its own Recv; when all have,
// it takes the other chunks from theirs.
func (t *task) allreduce() error {
	if t.inSlots {
		return t.reduce(0, t.Count, t.Recv)
	}
	lo, hi := t.chunk(t.rank)
	err := t.reduce(lo, hi, t.Recv[lo*t.elem:hi*t.elem])
	if err = t.after(err); err != nil {
		return err
	}
	for i := 1; i < t.size && err == nil; i++ {
		r := (t.rank + i) % t.size
		lo, hi := t.chunk(r)
		err = t.copy(t.Recv[lo*t.elem:hi*t.elem], r, Out, lo*t.elem)
	}
	return t.after(err)
}

// reduceRoot: every rank combines its chunk piece by piece, the root into its Recv. When all have combined a piece, the
// root takes the others', while they combine the next one.
func (t *task) reduceRoot() error {
	if t.inSlots {
		if t.rank != t.Root {
			return nil
		}
		return t.reduce(0, t.Count, t.Recv)
	}
	step := t.elems()
	_, longest := t.chunk(0)
	for at := 0; at < longest; at += step {
		piece := func(rank int) (lo, hi int) {
			lo, hi = t.chunk(rank)
			lo = min(lo+at, hi)
			return lo, min(lo+step, hi)
		}
		lo, hi := piece(t.rank)
		var dst []byte
		if t.rank == t.Root {
			dst = t.Recv[lo*t.elem : hi*t.elem]
		} else {
			t.aside = at / step & 1
			dst = t.keep(0, (hi-lo)*t.elem)
			t.work = dst
		}
		if err := t.after(t.reduce(lo, hi, dst)); err != nil {
			return err
		}
		for i := 1; i < t.size && t.rank == t.Root; i++ {
			r := (t.rank + i) % t.size
			lo, hi := piece(r)
			if err := t.copy(t.Recv[lo*t.elem:hi*t.elem], r, Work, 0); err != nil {
				return err
			}
		}
	}
	return t.sync(nil)
}

// reduceScatter: every rank combines its own block. In place the block's place
// is at the beginning, where rank 0 may be reading.
func (t *task) reduceScatter() error {
	lo, hi := t.rank*t.Count, (t.rank+1)*t.Count
	if t.Coll == backend.ReduceScatter {
		lo = 0
		for _, n := range t.RecvCounts[:t.rank] {
			lo += n
		}
		hi = lo + t.RecvCounts[t.rank]
	}
	return t.store(t.order(), lo, hi)
}

// scan: every rank combines the vectors of the ranks below it. In place its own
// vector is one that the ranks above are reading.
func (t *task) scan() error {
	exclusive := t.Coll == backend.Exscan
	if exclusive && t.rank == 0 {
		return t.sync(nil)
	}
	return t.store(coll.ScanOrder(t.rank, t.elem, exclusive), 0, t.Count)
}

// store puts elements lo to hi-1 of a result at the beginning of Recv: directly, or after all ranks have read what is
// there.
func (t *task) store(o coll.Order, lo, hi int) error {
	aside := t.InPlace && !t.inSlots
	for a, step := lo, t.elems(); a < hi; a += step {
		off, n := (a-lo)*t.elem, min(step, hi-a)
		dst := t.Recv[off : off+n*t.elem]
		if aside {
			dst = t.keep(off, len(dst))
		}
		if err := t.eval(o, a, a+n, dst); err != nil {
			return err
		}
	}
	if err := t.after(nil); err != nil {
		return err
	}
	return t.place()
}

// after synchronizes all ranks once this one's step is done. A step that failed
// ends the collective, without another synchronization.
func (t *task) after(err error) error {
	if err != nil {
		return err
	}
	return t.sync(nil)
}
