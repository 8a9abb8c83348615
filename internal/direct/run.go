package direct

import (
	"cmp"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// pieceBytes is how much is read, or copied, between two calls of Peers.Over: less than a millisecond's worth.
const pieceBytes = 4 << 20

// Scratch is the memory of a rank's collectives. It grows as needed and serves one collective at a
// time.
type Scratch struct {
	// Block is how many bytes of each operand a reduction works on at a time, 0
	// for coll.BlockBytes: more where fetching costs a system call.
	Block int

	task   task
	blocks []byte // for coll.Order.Eval
	pieces []piece
}

// piece is a part of a result that cannot go to its place in Recv yet, or that the root of a Reduce takes. The memory is
// made piece by piece too: making all of it at once would take longer than a deadline may wait.
type piece struct {
	mem []byte
	at  int
}

// task is one collective of one rank.
type task struct {
	*backend.Call
	rank, size int
	p          Peers
	s          *Scratch
	inSlots    bool   // the inputs are copies in the arrival slots: no synchronization
	elem       int    // bytes of an element
	block      int    // bytes of Count elements
	since      int    // bytes read since the last call of Over
	aside      int    // how many of the pieces are in use
	work       []byte // to be passed to the next Sync
	returned   bool   // the operation's function has not panicked, nor ended the goroutine
}

// Run does rank's part of a collective whose calls have been compared. It returns when no other
// rank reads this one's buffers any more. An ErrMismatch is the same on all ranks.
//
// inSlots says that the inputs are copies that do not change. Run does not call Sync then.
//
// A panic of the operation's function is an error.
func Run(c *backend.Call, rank, size int, p Peers, s *Scratch, inSlots bool) (err error) {
	t := s.begin(c, rank, size, p, inSlots)
	defer t.end(&err)
	err = t.steps()
	t.returned = true
	return err
}

// Combine sets dst to the whole result of a reduction to all ranks or to one, for a backend in
// which one rank computes it for the others.
func Combine(c *backend.Call, rank, size int, p Peers, s *Scratch, dst []byte) (err error) {
	t := s.begin(c, rank, size, p, true)
	defer t.end(&err)
	err = t.reduce(0, c.Count, dst)
	t.returned = true
	return err
}

func (s *Scratch) begin(c *backend.Call, rank, size int, p Peers, inSlots bool) *task {
	t := &s.task
	t.Call, t.rank, t.size, t.p, t.s, t.inSlots = c, rank, size, p, s, inSlots
	if c.Type != nil {
		t.elem = c.Type.Size
		t.block = c.Count * t.elem
	}
	return t
}

// end drops the references to what belongs to the caller, also if the operation's function has not returned.
func (t *task) end(err *error) {
	p, user := t.p, !t.returned && t.Op != nil && t.Op.Code == backend.OpUser
	*t = task{}
	if user {
		v := recover()
		*err = backend.UserFault(v)
		p.Fails(*err, v == nil)
	}
}

func (t *task) steps() error {
	switch t.Coll {
	case backend.Barrier:
		return nil
	case backend.Bcast:
		return t.bcast()
	case backend.Reduce:
		return t.reduceRoot()
	case backend.Allreduce:
		return t.allreduce()
	case backend.ReduceScatterBlock, backend.ReduceScatter:
		return t.reduceScatter()
	case backend.Scan, backend.Exscan:
		return t.scan()
	case backend.Gather, backend.Gatherv:
		return t.gather()
	case backend.Allgather, backend.Allgatherv:
		return t.after(t.collect(false))
	case backend.Scatter, backend.Scatterv:
		return t.scatter()
	case backend.Alltoall, backend.Alltoallv:
		return t.alltoall()
	}
	return backend.Faultf(backend.ErrInternal, "unknown collective %v", t.Coll)
}

// sync waits for all ranks, unless the inputs are in the slots.
func (t *task) sync(bad error) error {
	if t.inSlots {
		return bad
	}
	work := t.work
	t.work = nil
	return t.p.Sync(work, bad)
}

// copy sets dst to bytes of a rank's buffer.
func (t *task) copy(dst []byte, rank int, from Space, off int) error {
	for len(dst) > 0 {
		n := min(len(dst), pieceBytes)
		v, err := t.p.Read(rank, from, off, dst[:n])
		if err != nil {
			return err
		}
		if &v[0] != &dst[0] {
			shmem.Move(dst, v)
		}
		dst, off = dst[n:], off+n
		if err := t.read(n); err != nil {
			return err
		}
	}
	return nil
}

// read counts bytes that have been read, and calls Over now and then.
func (t *task) read(n int) error {
	if t.since += n; t.since < pieceBytes {
		return nil
	}
	t.since = 0
	return t.p.Over()
}

// keep returns a piece of scratch for n bytes of the result, at most pieceBytes or one element, that go to off in Recv.
func (t *task) keep(off, n int) []byte {
	if t.aside == len(t.s.pieces) {
		t.s.pieces = append(t.s.pieces, piece{})
	}
	p := &t.s.pieces[t.aside]
	t.aside++
	if cap(p.mem) < n {
		p.mem = make([]byte, n)
	}
	p.mem, p.at = p.mem[:n], off
	return p.mem
}

// place copies the pieces to their places, when no other rank reads there any more.
func (t *task) place() error {
	for _, p := range t.s.pieces[:t.aside] {
		copy(t.Recv[p.at:], p.mem)
		if err := t.read(len(p.mem)); err != nil {
			return err
		}
	}
	return nil
}

// elems returns how many elements are combined between two calls of Peers.Over.
func (t *task) elems() int { return max(1, pieceBytes/t.elem) }

// Load implements coll.Loader.
func (t *task) Load(rank, lo, hi int, scratch []byte) ([]byte, error) {
	if err := t.read(len(scratch)); err != nil {
		return nil, err
	}
	return t.p.Read(rank, In, lo*t.elem, scratch)
}

// eval combines elements lo to hi-1 of the ranks' vectors into dst.
func (t *task) eval(o coll.Order, lo, hi int, dst []byte) error {
	n := o.ScratchBlocks() * max(cmp.Or(t.s.Block, coll.BlockBytes), t.elem)
	if cap(t.s.blocks) < n {
		t.s.blocks = make([]byte, n)
	}
	if t.Op.Code != backend.OpUser {
		return o.Eval(t.Op, lo, hi, dst, t, t.s.blocks[:n])
	}
	var over error // a user's function may take long for a few elements
	timed := *t.Op
	timed.Apply = func(dst, a, b []byte) {
		if over = cmp.Or(over, t.p.Over()); over == nil {
			t.Op.Apply(dst, a, b)
		}
	}
	err := o.Eval(&timed, lo, hi, dst, t, t.s.blocks[:n])
	return cmp.Or(over, err)
}
