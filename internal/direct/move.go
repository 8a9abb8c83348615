package direct

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

func fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, args...)}
}

// bcast: every rank copies from the root.
func (t *task) bcast() error {
	if t.rank == t.Root {
		return t.sync(nil)
	}
	return t.after(t.copy(t.Recv[:t.block], t.Root, In, 0))
}

// gather: the root copies every rank's block.
func (t *task) gather() error {
	if t.rank != t.Root {
		return t.sync(nil)
	}
	if t.Coll == backend.Gatherv {
		for r := range t.size {
			if got, want := t.p.Len(r, In), t.RecvCounts[r]*t.elem; got != want {
				return t.sync(fault(backend.ErrMismatch, "gatherv: rank %d sends %d bytes, the root, rank %d, expects %d",
					r, got, t.rank, want))
			}
		}
	}
	return t.after(t.collect())
}

// allgather: every rank copies every rank's block.
func (t *task) allgather() error { return t.after(t.collect()) }

// collect copies the blocks of all ranks, beginning with the next one so that
// not all read from the same.
func (t *task) collect() error {
	varying := t.Coll == backend.Gatherv || t.Coll == backend.Allgatherv
	for i := range t.size {
		r := (t.rank + i) % t.size
		if r == t.rank && t.InPlace {
			continue
		}
		off, n := r*t.block, t.block
		if varying {
			off, n = t.RecvDispls[r]*t.elem, t.RecvCounts[r]*t.elem
		}
		if n == 0 {
			continue
		}
		if err := t.copy(t.Recv[off:off+n], r, In, 0); err != nil {
			return err
		}
	}
	return nil
}

// scatter: every rank copies its block from the root.
func (t *task) scatter() error {
	if t.rank == t.Root && t.InPlace {
		return t.sync(nil)
	}
	off, n := t.rank*t.block, t.block
	if t.Coll == backend.Scatterv {
		var err error
		if off, n, err = t.p.Block(t.Root, t.rank); err != nil {
			return err
		}
		if n != len(t.Recv) {
			return t.sync(fault(backend.ErrMismatch, "scatterv: the root, rank %d, sends rank %d %d bytes, which expects %d",
				t.Root, t.rank, n, len(t.Recv)))
		}
	}
	return t.after(t.copy(t.Recv[:n], t.Root, In, off))
}

// alltoall: every rank copies its block from every rank. In place the others are
// reading where the blocks go, so they are collected first.
func (t *task) alltoall() error {
	if t.Coll == backend.Alltoallv {
		if bad, err := t.differing(); bad != nil || err != nil {
			if err != nil {
				return err
			}
			return t.sync(bad)
		}
	}
	if !t.InPlace || t.inSlots {
		return t.after(t.exchange(func(off, n, _ int) []byte { return t.Recv[off : off+n] }))
	}
	total := 0
	for r := range t.size {
		_, n := t.incoming(r)
		total += n
	}
	temp := t.temp(total)
	err := t.exchange(func(_, n, at int) []byte { return temp[at : at+n] })
	if err = t.after(err); err != nil {
		return err
	}
	at := 0
	for i := 1; i < t.size; i++ {
		off, n := t.incoming((t.rank + i) % t.size)
		if n == 0 {
			continue
		}
		copy(t.Recv[off:off+n], temp[at:at+n])
		at += n
	}
	return nil
}

// exchange copies the block for this rank from every rank. place returns the block's offset in
// Recv, its length and the length of those before it.
func (t *task) exchange(place func(off, n, at int) []byte) error {
	at := 0
	for i := range t.size {
		r := (t.rank + i) % t.size
		if r == t.rank && t.InPlace {
			continue
		}
		off, n := t.incoming(r)
		if n == 0 {
			continue
		}
		from := t.rank * t.block
		if t.Coll == backend.Alltoallv {
			var err error
			if from, _, err = t.p.Block(r, t.rank); err != nil {
				return err
			}
		}
		if err := t.copy(place(off, n, at), r, In, from); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// incoming returns where in Recv the block from a rank goes.
func (t *task) incoming(rank int) (off, n int) {
	if t.Coll == backend.Alltoall {
		return rank * t.block, t.block
	}
	return t.RecvDispls[rank] * t.elem, t.RecvCounts[rank] * t.elem
}

// differing returns the mismatch of the first rank that sends this one more or
// less than it expects.
func (t *task) differing() (bad, err error) {
	for r := range t.size {
		_, got, err := t.p.Block(r, t.rank)
		if err != nil {
			return nil, err
		}
		if want := t.RecvCounts[r] * t.elem; got != want {
			return fault(backend.ErrMismatch, "alltoallv: rank %d sends rank %d %d bytes, which expects %d", r, t.rank, got, want), nil
		}
	}
	return nil, nil
}
