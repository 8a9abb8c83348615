package direct

import "github.com/cohort-hpc/cohort/backend"

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
		if err := t.checkLengths(); err != nil {
			return err
		}
	}
	return t.after(t.collect(false))
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
			return t.sync(backend.WrongLength(t.elem, t.Root, n, t.rank, len(t.Recv)))
		}
	}
	return t.after(t.copy(t.Recv[:n], t.Root, In, off))
}

// alltoall: every rank copies its block from every rank. In place the others are
// reading where the blocks go, so they are collected first.
func (t *task) alltoall() error {
	if t.Coll == backend.Alltoallv {
		if err := t.checkLengths(); err != nil {
			return err
		}
	}
	if !t.InPlace || t.inSlots {
		return t.after(t.collect(false))
	}
	if err := t.after(t.collect(true)); err != nil {
		return err
	}
	return t.place()
}

// checkLengths ends the collective with a mismatch if a rank sends this one more or less than it
// expects.
func (t *task) checkLengths() error {
	for r := range t.size {
		_, got, err := t.p.Block(r, t.rank)
		if err != nil {
			return err
		}
		if want := t.RecvCounts[r] * t.elem; got != want {
			return t.sync(backend.WrongLength(t.elem, r, got, t.rank, want))
		}
	}
	return nil
}

// collect copies the block for this rank from every rank, to its place in Recv, or aside. It begins with this rank so
// that not all ranks read from the same one.
func (t *task) collect(aside bool) error {
	for i := range t.size {
		r := (t.rank + i) % t.size
		off, n := Incoming(t.Call, r)
		if n == 0 || r == t.rank && t.InPlace {
			continue
		}
		from := 0
		switch t.Coll {
		case backend.Alltoall:
			from = t.rank * t.block
		case backend.Alltoallv:
			var err error
			if from, _, err = t.p.Block(r, t.rank); err != nil {
				return err
			}
		}
		for k := n; n > 0; off, from, n = off+k, from+k, n-k {
			dst := t.Recv[off : off+n]
			if aside {
				k = min(n, pieceBytes)
				dst = t.keep(off, k)
			}
			if err := t.copy(dst, r, In, from); err != nil {
				return err
			}
		}
	}
	return nil
}
