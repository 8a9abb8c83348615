package tensor

import (
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// collective is a collective in pieces, without type parameters. Its life:
//
//  1. When the collective is called, mark records events in the tensors' streams.
//  2. Shortly before its turn, prepare starts copies of the first pieces to the host.
//  3. For each piece it starts copies of later pieces, waits for this piece's, calls the root
//     package, and starts the copy to the device.
//  4. It ends its turn, and waits for the last copies.
//
// The messages between ranks depend only on form.
type collective struct {
	c  *Comm
	on cohort.Comm // c's communicator for collectives, for the pieces
	form
	op     Op
	caller caller
	wide   call[float32] // the caller for widened numbers

	in, out side
	same    bool // in and out are the same memory
	shared  bool // in and out share pinned memory

	load, save accel.Stream // for copies to the host and to the device
	slots      [slotsMost]slot
	loads      int   // pieces whose copies to the host have started
	called     int   // pieces that the root package has done
	stopped    bool  // it failed, and the other ranks know
	inUse      bool  // the library may still be using the memory of a call that failed
	early      error // failure before the turn
	scratch    *[]byte
	parts      parts
}

// form is what must be the same on all ranks of a collective.
type form struct {
	coll   backend.Coll
	kind   backend.Kind
	widen  bool // numbers travel as float32
	elem   int  // bytes of a number in the tensor
	blocks int  // each piece takes a part of each block
	n      int  // numbers in a block
	m      int  // numbers of a block in a piece
	pieces int
}

// caller calls the root package for one piece.
type caller interface {
	perform(c *cohort.Comm, send, recv []byte, parts *parts) error
	clear() // forgets the tensors
}

// side is the memory that a collective reads or writes.
type side struct {
	blocks int    // parts of a piece; 0 if nothing is read or written
	host   []byte // passed to the root package; nil if pinned memory is used instead
	dev    *Device
	at     accel.Address
	stream accel.Stream
	ready  accel.Event // nil: no work to wait for
}

// staged reports whether the memory is copied through pinned memory.
func (s *side) staged() bool { return s.dev != nil && s.blocks > 0 && s.host == nil }

const wideSize = 4 // bytes of a float32

var collectives = sync.Pool{New: func() any { return new(collective) }}

// collective returns the collective of a call.
func (x call[T]) collective(c *Comm) *collective {
	co := collectives.Get().(*collective)
	co.c, co.op = c, x.op
	blocks, n := x.blocks(c.Size())
	co.form = form{coll: x.coll, kind: kindOf[T](), widen: x.widened(), elem: view.Size[T](), blocks: blocks, n: n}
	co.cut(c.cfg.Chunk)
	co.on = co.handle()
	if co.widen {
		co.wide = call[float32]{coll: x.coll, op: x.op, root: x.root}
		co.caller = &co.wide
	} else {
		own, kept := co.caller.(*call[T])
		if !kept {
			own = new(call[T])
		}
		*own, co.caller = x, own
	}
	co.same = x.reads(c) && x.writes(c) && x.inPlace()
	direct := co.direct()
	if x.reads(c) {
		co.in = sideOf(x.send, c.core, direct)
		if co.in.blocks = 1; x.coll == backend.ReduceScatterBlock || x.coll == backend.Alltoall {
			co.in.blocks = blocks
		}
	}
	if x.writes(c) {
		co.out = sideOf(x.recv, c.core, direct)
		if co.out.blocks = 1; x.coll == backend.Allgather || x.coll == backend.Alltoall {
			co.out.blocks = blocks
		}
	}
	if co.same && x.coll == backend.Allgather { // this rank's block is in position already
		co.in.at += accel.Address(c.Rank() * n * co.elem)
	}
	co.shared = co.in.staged() && co.out.staged() && co.in.dev == co.out.dev
	return co
}

func sideOf[T cohort.Number](t *Tensor[T], k *core, direct bool) side {
	switch {
	case t.dev == nil || t.n == 0:
		return side{host: view.Bytes(t.data)}
	case direct:
		return side{dev: t.dev, stream: t.stream, host: k.view(t.dev, t.at, t.size())}
	}
	return side{dev: t.dev, stream: t.stream, at: t.at}
}

// cut sets the length of pieces.
func (f *form) cut(chunk int) {
	wire := f.elem
	if f.widen {
		wire = wideSize
	}
	f.m, f.pieces = f.n, 1
	if most := max(chunk/(f.blocks*wire), 1); f.n > most {
		const line = 64 // numbers, so that copies begin at cache lines
		if most > line {
			most &^= line - 1
		}
		f.m, f.pieces = most, (f.n+most-1)/most
	}
}

// handle returns a handle whose calls show the ranks, besides the piece, the operation that it is part of.
func (co *collective) handle() cohort.Comm {
	total := 0
	if co.pieces > 1 {
		if total = co.n; co.coll == backend.Allgather {
			total *= co.blocks // as the counts of its Allgatherv
		}
	}
	return cohort.Comm((*comm.Comm)(co.c.coll).Part(variants[variant{co.kind, co.widen, co.op.average}], total))
}

// apart reports whether the parts of a piece are not adjacent in all tensors.
func (f *form) apart() bool {
	return f.pieces > 1 && (f.coll == backend.Allgather || f.coll == backend.Alltoall)
}

// piece returns the start of a piece's part in each block, and its length.
func (f *form) piece(i int) (lo, k int) { return i * f.m, min(f.m, f.n-i*f.m) }

// do runs the collective in its turn and frees it.
func (co *collective) do(ticket uint64) error {
	c, q := co.c, &co.c.core.queue
	turn := q.await(c.ctx, ticket, lookahead)
	if turn {
		if co.early == nil {
			co.early = co.prepare()
		}
		turn = q.await(c.ctx, ticket, 0)
	}
	if !turn {
		return co.free(c.abandon(ticket))
	}
	err := c.core.ended()
	if err == nil {
		if err = co.early; err == nil {
			err = co.run()
		}
		if err != nil && !co.stopped && co.called < co.pieces {
			c.breakWith(err)
		}
	}
	q.done()
	if err == nil && co.save != nil {
		err = co.save.Sync()
	}
	return co.free(err)
}

// run runs a collective during its turn.
func (co *collective) run() error {
	for i := range co.pieces {
		if err := co.read(i + ahead); err != nil {
			return err
		}
		s, err := co.slot(i)
		if err == nil && co.in.staged() {
			err = s.loaded.Sync()
		}
		if err == nil {
			err = co.reduce(s, i)
		}
		if err == nil && co.out.staged() {
			err = co.write(s, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduce calls the root package for a piece in host memory, and leaves the result there.
func (co *collective) reduce(s *slot, i int) error {
	lo, k := co.piece(i)
	if co.widen {
		return co.reduceWide(s, lo, k)
	}
	src, dst := co.operands(s, lo, k)
	if err := co.call(src, dst, lo, k); err != nil {
		return err
	}
	if co.op.average && dst != nil {
		divide(co.kind, dst[:k*co.elem], co.c.Size())
	}
	return nil
}

func (co *collective) call(src, dst []byte, lo, k int) error {
	var p *parts
	if co.apart() {
		p = co.place(lo, k)
	}
	c := co.c.core
	broken := c.collBroken.known.Load()
	err := co.caller.perform(&co.on, src, dst, p)
	if co.stopped = err != nil; err == nil {
		co.called++
	} else {
		co.inUse = !broken && c.collBroken.keeps(c.coll)
	}
	return err
}

// operands returns the memory of a piece. In pinned memory its parts are adjacent; of a tensor
// whose parts are not adjacent, it returns all.
func (co *collective) operands(s *slot, lo, k int) (src, dst []byte) {
	e := co.elem
	if co.shared { // the call is in place
		both := s.in[:max(co.in.blocks, co.out.blocks)*k*e]
		return both, both
	}
	part := func(s *side) []byte {
		if co.pieces == 1 {
			return s.host
		}
		return s.host[lo*e : (lo+k)*e]
	}
	switch out := &co.out; {
	case out.staged():
		dst = s.out[:out.blocks*k*e]
	case out.blocks > 0 && !co.apart():
		dst = part(out)
	case out.blocks > 0:
		dst = out.host
	}
	switch in := &co.in; {
	case in.staged():
		src = s.in[:in.blocks*k*e]
	case co.same && co.coll == backend.Allgather:
		src = dst
	case co.pieces > 1 && co.coll == backend.ReduceScatterBlock:
		src = co.room(in.blocks * k * e)
		for b := range in.blocks {
			copy(src[b*k*e:(b+1)*k*e], in.host[(b*co.n+lo)*e:])
		}
	case in.blocks > 0 && co.coll != backend.Alltoall:
		src = part(in)
	case in.blocks > 0:
		src = in.host
	}
	return src, dst
}

// place returns where the blocks of a piece are: adjacent in pinned memory, otherwise at their
// positions in the tensor.
func (co *collective) place(lo, k int) *parts {
	p := &co.parts
	p.counts, p.send, p.recv = p.counts[:0], p.send[:0], p.recv[:0]
	for b := range co.blocks {
		at := [...]int{b * k, b*co.n + lo}
		from, to := at[1], at[1]
		if co.in.staged() {
			from = at[0]
		}
		if co.out.staged() {
			to = at[0]
		}
		p.counts, p.send, p.recv = append(p.counts, k), append(p.send, from), append(p.recv, to)
	}
	return p
}

// reduceWide is reduce for half-precision numbers: it computes as float32 and rounds once.
func (co *collective) reduceWide(s *slot, lo, k int) error {
	bf, in, out := co.kind == backend.BFloat16, &co.in, &co.out
	const e = 2
	all := co.room(in.blocks * k * wideSize)
	floats := view.Of[float32](all)
	for b := range in.blocks {
		var half []byte
		if in.staged() {
			half = s.in[b*k*e : (b+1)*k*e]
		} else {
			half = in.host[(b*co.n+lo)*e : (b*co.n+lo+k)*e]
		}
		kernel.Widen(floats[b*k:(b+1)*k], view.Of[uint16](half), bf)
	}
	dst := all
	if out.blocks == 0 {
		dst = nil
	}
	if err := co.call(all, dst, lo, k); err != nil || dst == nil {
		return err
	}
	if co.op.average {
		divide(backend.Float32, all[:k*wideSize], co.c.Size())
	}
	half := s.out
	if !out.staged() {
		half = out.host[lo*e:]
	}
	kernel.Narrow(view.Of[uint16](half[:k*e]), floats[:k], bf)
	return nil
}

// scratches pools memory for widened and gathered pieces.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// room returns n bytes, valid until the next call.
func (co *collective) room(n int) []byte {
	if co.scratch == nil {
		co.scratch = scratches.Get().(*[]byte)
	}
	if cap(*co.scratch) < n {
		*co.scratch = make([]byte, n)
	}
	return (*co.scratch)[:n]
}
