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

// job is a collective in pieces, without type parameters. Its life:
//
//  1. When the collective is called, mark records events in the tensors' streams.
//  2. Shortly before its turn, prepare starts copies of the first pieces to the host.
//  3. For each piece it starts copies of later pieces, waits for this piece's, calls the root
//     package, and starts the copy to the device.
//  4. It ends its turn, and waits for the last copies.
//
// The messages between ranks depend only on form.
type job struct {
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

// form is what must be the same on all ranks of a job.
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

// side is the memory that a job reads or writes.
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

var jobs = sync.Pool{New: func() any { return new(job) }}

// job returns the job of a call.
func (x call[T]) job(c *Comm) *job {
	j := jobs.Get().(*job)
	j.c, j.op = c, x.op
	blocks, n := x.blocks(c.Size())
	j.form = form{coll: x.coll, kind: kindOf[T](), widen: x.widened(), elem: view.Size[T](), blocks: blocks, n: n}
	j.cut(c.cfg.Chunk)
	j.on = j.handle()
	if j.widen {
		j.wide = call[float32]{coll: x.coll, op: x.op, root: x.root}
		j.caller = &j.wide
	} else {
		own, kept := j.caller.(*call[T])
		if !kept {
			own = new(call[T])
		}
		*own, j.caller = x, own
	}
	direct := j.direct()
	if x.reads(c) {
		j.in = sideOf(x.send, c.core, direct)
		if j.in.blocks = 1; x.coll == backend.ReduceScatterBlock || x.coll == backend.Alltoall {
			j.in.blocks = blocks
		}
	}
	if x.writes(c) {
		j.out = sideOf(x.recv, c.core, direct)
		if j.out.blocks = 1; x.coll == backend.Allgather || x.coll == backend.Alltoall {
			j.out.blocks = blocks
		}
	}
	j.same = x.reads(c) && x.writes(c) && x.inPlace()
	if j.same && x.coll == backend.Allgather { // this rank's block is in position already
		j.in.at += accel.Address(c.Rank() * n * j.elem)
	}
	j.shared = j.in.staged() && j.out.staged() && j.in.dev == j.out.dev
	return j
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
func (j *job) handle() cohort.Comm {
	whole, note := 0, backend.Note(0)
	if j.pieces > 1 {
		if whole = j.n; j.coll == backend.Allgather {
			whole *= j.blocks // as the counts of its Allgatherv
		}
	}
	if j.op.average {
		note = backend.Average
	}
	switch {
	case !j.widen:
	case j.kind == backend.Float16:
		note |= backend.OfFloat16
	default:
		note |= backend.OfBFloat16
	}
	return cohort.Comm((*comm.Comm)(j.c.coll).Piece(whole, note))
}

// apart reports whether the parts of a piece are not adjacent in all tensors.
func (f *form) apart() bool {
	return f.pieces > 1 && (f.coll == backend.Allgather || f.coll == backend.Alltoall)
}

// piece returns the start of a piece's part in each block, and its length.
func (f *form) piece(i int) (lo, k int) { return i * f.m, min(f.m, f.n-i*f.m) }

// do runs the job in its turn and frees it.
func (j *job) do(ticket uint64) error {
	c, q := j.c, &j.c.core.queue
	turn := q.await(c.ctx, ticket, lookahead)
	if turn {
		if j.early == nil {
			j.early = j.prepare()
		}
		turn = q.await(c.ctx, ticket, 0)
	}
	if !turn {
		return j.free(c.abandon(ticket))
	}
	err := c.core.ended()
	if err == nil {
		if err = j.early; err == nil {
			err = j.run()
		}
		if err != nil && !j.stopped && j.called < j.pieces {
			c.breakWith(err)
		}
	}
	q.done()
	if err == nil && j.save != nil {
		err = j.save.Sync()
	}
	return j.free(err)
}

// run runs a job during its turn.
func (j *job) run() error {
	for i := range j.pieces {
		if err := j.read(i + ahead); err != nil {
			return err
		}
		s, err := j.slot(i)
		if err == nil && j.in.staged() {
			err = s.loaded.Sync()
		}
		if err == nil {
			err = j.reduce(s, i)
		}
		if err == nil && j.out.staged() {
			err = j.write(s, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reduce calls the root package for a piece in host memory, and leaves the result there.
func (j *job) reduce(s *slot, i int) error {
	lo, k := j.piece(i)
	if j.widen {
		return j.reduceWide(s, lo, k)
	}
	src, dst := j.operands(s, lo, k)
	if err := j.call(src, dst, lo, k); err != nil {
		return err
	}
	if j.op.average && dst != nil {
		divide(j.kind, dst[:k*j.elem], j.c.Size())
	}
	return nil
}

func (j *job) call(src, dst []byte, lo, k int) error {
	var p *parts
	if j.apart() {
		p = j.place(lo, k)
	}
	c := j.c.core
	broken := c.collBroken.known.Load()
	err := j.caller.perform(&j.on, src, dst, p)
	if j.stopped = err != nil; err == nil {
		j.called++
	} else {
		j.inUse = !broken && c.collBroken.keeps(c.coll)
	}
	return err
}

// operands returns the memory of a piece. In pinned memory its parts are adjacent; of a tensor
// whose parts are not adjacent, it returns all.
func (j *job) operands(s *slot, lo, k int) (src, dst []byte) {
	e := j.elem
	if j.shared { // the call is in place
		both := s.in[:max(j.in.blocks, j.out.blocks)*k*e]
		return both, both
	}
	part := func(s *side) []byte {
		if j.pieces == 1 {
			return s.host
		}
		return s.host[lo*e : (lo+k)*e]
	}
	switch out := &j.out; {
	case out.staged():
		dst = s.out[:out.blocks*k*e]
	case out.blocks > 0 && !j.apart():
		dst = part(out)
	case out.blocks > 0:
		dst = out.host
	}
	switch in := &j.in; {
	case in.staged():
		src = s.in[:in.blocks*k*e]
	case j.same && j.coll == backend.Allgather:
		src = dst
	case j.pieces > 1 && j.coll == backend.ReduceScatterBlock:
		src = j.room(in.blocks * k * e)
		for b := range in.blocks {
			copy(src[b*k*e:(b+1)*k*e], in.host[(b*j.n+lo)*e:])
		}
	case in.blocks > 0 && j.coll != backend.Alltoall:
		src = part(in)
	case in.blocks > 0:
		src = in.host
	}
	return src, dst
}

// place returns where the blocks of a piece are: adjacent in pinned memory, otherwise at their
// positions in the tensor.
func (j *job) place(lo, k int) *parts {
	p := &j.parts
	p.counts, p.send, p.recv = p.counts[:0], p.send[:0], p.recv[:0]
	for b := range j.blocks {
		at := [...]int{b * k, b*j.n + lo}
		from, to := at[1], at[1]
		if j.in.staged() {
			from = at[0]
		}
		if j.out.staged() {
			to = at[0]
		}
		p.counts, p.send, p.recv = append(p.counts, k), append(p.send, from), append(p.recv, to)
	}
	return p
}

// reduceWide is reduce for half-precision numbers: it computes as float32 and rounds once.
func (j *job) reduceWide(s *slot, lo, k int) error {
	bf, in, out := j.kind == backend.BFloat16, &j.in, &j.out
	const e = 2
	all := j.room(in.blocks * k * wideSize)
	floats := view.Of[float32](all)
	for b := range in.blocks {
		var half []byte
		if in.staged() {
			half = s.in[b*k*e : (b+1)*k*e]
		} else {
			half = in.host[(b*j.n+lo)*e : (b*j.n+lo+k)*e]
		}
		kernel.Widen(floats[b*k:(b+1)*k], view.Of[uint16](half), bf)
	}
	dst := all
	if out.blocks == 0 {
		dst = nil
	}
	if err := j.call(all, dst, lo, k); err != nil || dst == nil {
		return err
	}
	if j.op.average {
		divide(backend.Float32, all[:k*wideSize], j.c.Size())
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
func (j *job) room(n int) []byte {
	if j.scratch == nil {
		j.scratch = scratches.Get().(*[]byte)
	}
	if cap(*j.scratch) < n {
		*j.scratch = make([]byte, n)
	}
	return (*j.scratch)[:n]
}
