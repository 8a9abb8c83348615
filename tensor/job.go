package tensor

import (
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// job is a collective in pieces, with the types erased. Its life:
//
//  1. When it is called, mark notes in the tensors' streams what work is before it.
//  2. Shortly before its turn, prepare starts the copies of the first pieces to the host.
//  3. When its turn has come, the ranks of a job of several pieces tell each other how long it is.
//  4. Piece by piece: copies of the next ones are started, this one's is waited for, the root
//     package is called, and the copy to the device started.
//  5. The turn is over, and the last copies are waited for.
//
// What the ranks say to each other depends on form, and nothing else.
type job struct {
	c *Comm
	form
	op     Op
	caller caller
	wide   call[float32] // the caller of what is widened

	in, out side
	same    bool // they are the same memory
	shared  bool // their pinned memory is

	load, save accel.Stream // for copies to the host and to the device
	slots      [slotsMost]slot
	loads      int   // pieces of which copies to the host are started
	called     int   // pieces that the root package is done with
	stopped    bool  // it has failed, and the other ranks know
	lent       bool  // the library may still be using the memory of a call that failed
	early      error // what failed before the turn
	scratch    *[]byte
	parts      parts
}

// form is what must be the same on all ranks of a job.
type form struct {
	coll   backend.Coll
	kind   backend.Kind
	widen  bool // the numbers go as float32
	elem   int  // bytes of a number, where the tensor is
	blocks int  // each piece has a part of each
	n      int  // numbers of a block
	m      int  // of them in a piece
	pieces int
}

// caller calls the root package with a piece.
type caller interface {
	perform(c *cohort.Comm, send, recv []byte, parts *parts) error
}

// side is the memory that a job reads, or that it writes.
type side struct {
	blocks int    // parts of a piece, 0 if there is nothing to read or write
	host   []byte // what the root package is given; nil if it goes through pinned memory
	dev    *Device
	at     accel.Address
	stream accel.Stream
	ready  accel.Event // nil: there is no work to wait for
}

// staged reports whether the memory goes through pinned memory.
func (s *side) staged() bool { return s.dev != nil && s.blocks > 0 && s.host == nil }

const wideSize = 4 // bytes of a float32

var jobs = sync.Pool{New: func() any { return new(job) }}

// staged returns the job of a call.
func (x call[T]) staged(c *Comm) *job {
	j := jobs.Get().(*job)
	j.c, j.op = c, x.op
	blocks, n := x.blocks(c.Size())
	j.form = form{coll: x.coll, kind: kindOf[T](), widen: x.widened(), elem: view.Size[T](), blocks: blocks, n: n}
	j.cut(c.cfg.Chunk)
	if j.widen {
		j.wide = call[float32]{coll: x.coll, op: x.op, root: x.root}
		j.caller = &j.wide
	} else {
		own := x
		j.caller = &own
	}
	direct := j.direct()
	if x.reads(c) {
		j.in = sideOf(x.send, direct)
		if j.in.blocks = 1; x.coll == backend.ReduceScatterBlock || x.coll == backend.Alltoall {
			j.in.blocks = blocks
		}
	}
	if x.writes(c) {
		j.out = sideOf(x.recv, direct)
		if j.out.blocks = 1; x.coll == backend.Allgather || x.coll == backend.Alltoall {
			j.out.blocks = blocks
		}
	}
	j.same = x.reads(c) && x.writes(c) && x.inPlace()
	if j.same && x.coll == backend.Allgather { // this rank's block is where it has to be
		j.in.at += accel.Address(c.Rank() * n * j.elem)
	}
	j.shared = j.in.staged() && j.out.staged() && j.in.dev == j.out.dev
	return j
}

func sideOf[T cohort.Number](t *Tensor[T], direct bool) side {
	switch {
	case t.dev == nil || t.n == 0:
		return side{host: view.Bytes(t.data)}
	case direct:
		return side{dev: t.dev, stream: t.stream, host: t.dev.acc.View(t.at, t.size())}
	}
	return side{dev: t.dev, stream: t.stream, at: t.at}
}

// cut says how long pieces are.
func (f *form) cut(chunk int) {
	wire := f.elem
	if f.widen {
		wire = wideSize
	}
	f.m, f.pieces = f.n, 1
	if most := max(chunk/(f.blocks*wire), 1); f.n > most {
		const line = 64 // numbers, so that copies begin where lines of a cache do
		if most > line {
			most &^= line - 1
		}
		f.m, f.pieces = most, (f.n+most-1)/most
	}
}

// apart reports whether the parts of a piece do not stand one after the other in all tensors.
func (f *form) apart() bool {
	return f.pieces > 1 && (f.coll == backend.Allgather || f.coll == backend.Alltoall)
}

// piece returns where a piece's part of each block begins, and how long it is.
func (f *form) piece(i int) (lo, k int) { return i * f.m, min(f.m, f.n-i*f.m) }

// do does the job when its turn has come, and frees it.
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
		err := c.late()
		c.spoil(err)
		q.leave(ticket)
		return j.free(err)
	}
	err := c.core.ended()
	if err == nil {
		if err = j.early; err == nil {
			err = j.run()
		}
		if err != nil && !j.stopped && j.called < j.pieces {
			c.spoil(err)
		}
	}
	q.done()
	if err == nil && j.save != nil {
		err = j.save.Sync()
	}
	return j.free(err)
}

// run does a job whose turn it is.
func (j *job) run() error {
	if j.pieces > 1 {
		if err := j.agree(); err != nil {
			return err
		}
	}
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

// length is what the ranks tell each other of a job of several pieces: the number of calls depends on
// it; and whether the sums are divided, which the calls do not show. What it is called stands in errors.
type length struct{ Coll, Kind, Count, Average int64 }

// agree has all ranks find out whether their jobs are of the same length.
func (j *job) agree() error {
	mine := []length{{Coll: int64(j.coll), Kind: int64(j.kind), Count: int64(j.n)}}
	if j.op.average {
		mine[0].Average = 1
	}
	all := make([]length, j.c.Size())
	err := cohort.Allgather(j.c.coll, mine, all)
	if err != nil {
		j.c.core.collBroken.keeps(j.c.core.coll) // no memory of the job, but jobs behind it are to know
	}
	for r := 1; r < len(all) && err == nil; r++ {
		if a, b := all[0], all[r]; a != b {
			err = fault(cohort.ErrMismatch, "rank 0 called %v, rank %d called %v", a, r, b)
		}
	}
	j.stopped = err != nil
	return err
}

// String describes a call as mismatches of the root package do.
func (l length) String() string {
	text := fmt.Sprintf("%v(type %v, count %d", backend.Coll(l.Coll), backend.Kind(l.Kind), l.Count)
	if l.Average != 0 {
		text += ", average"
	}
	return text + ")"
}

// reduce calls the root package with a piece, which is on the host, and leaves the result there.
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
	err := j.caller.perform(j.c.coll, src, dst, p)
	if j.stopped = err != nil; err == nil {
		j.called++
	} else {
		j.lent = !broken && c.collBroken.keeps(c.coll)
	}
	return err
}

// operands returns the memory of a piece: of pinned memory its parts one after the other, of tensors
// that have parts apart all of it.
func (j *job) operands(s *slot, lo, k int) (src, dst []byte) {
	e := j.elem
	if j.shared { // the root package's call is in place
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

// place says where the blocks of a piece are: in pinned memory one after the other, else where they are
// in the tensor.
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

// reduceWide is reduce of half-precision numbers: as float32, and rounded once.
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

// scratches has memory for what is widened, or put together.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// room returns memory of n bytes, until it is called again.
func (j *job) room(n int) []byte {
	if j.scratch == nil {
		j.scratch = scratches.Get().(*[]byte)
	}
	if cap(*j.scratch) < n {
		*j.scratch = make([]byte, n)
	}
	return (*j.scratch)[:n]
}
