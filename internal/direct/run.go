package direct

import (
	"cmp"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
)

// pieceBytes is how much is read between two looks at whether the collective
// is over: less than a millisecond's worth.
const pieceBytes = 4 << 20

// Scratch is the memory a rank's collectives use. It grows to what they need and
// serves one at a time.
type Scratch struct {
	// Block is how many bytes of each operand a reduction works on at a time, 0
	// for coll.BlockBytes: more where fetching costs a system call.
	Block int

	task   task
	blocks []byte // for coll.Order.Eval
	temp   []byte // for results that cannot go to their place yet
}

// task is one collective of one rank.
type task struct {
	*backend.Call
	rank, size int
	p          Peers
	s          *Scratch
	inSlots    bool // the inputs are copies: no meetings
	elem       int  // bytes of an element
	block      int  // bytes of Count elements
	since      int  // bytes read since the last look at whether it is over
}

// Run does rank's part of a collective whose calls have been compared, and
// returns when no other rank reads this one's buffers any more. An error of
// ErrMismatch is the same on all ranks.
func Run(c *backend.Call, rank, size int, p Peers, s *Scratch) error {
	return s.begin(c, rank, size, p, false).run()
}

// RunPosted is Run for a collective whose inputs are copies that stay as they
// are: it does not call Meet.
func RunSlots(c *backend.Call, rank, size int, p Peers, s *Scratch) error {
	return s.begin(c, rank, size, p, true).run()
}

// Combine sets dst to the whole result of a reduction to all or one rank: a
// backend may let one rank do it for the others.
func Combine(c *backend.Call, rank, size int, p Peers, s *Scratch, dst []byte) error {
	t := s.begin(c, rank, size, p, true)
	err := t.reduce(0, c.Count, dst)
	t.end()
	return err
}

func (s *Scratch) begin(c *backend.Call, rank, size int, p Peers, inSlots bool) *task {
	t := &s.task
	*t = task{Call: c, rank: rank, size: size, p: p, s: s, inSlots: inSlots}
	if c.Type != nil {
		t.elem = c.Type.Size
		t.block = c.Count * t.elem
	}
	return t
}

// end lets go of what belongs to the caller.
func (t *task) end() { *t = task{} }

func (t *task) run() error {
	err := t.steps()
	t.end()
	return err
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
		return t.allgather()
	case backend.Scatter, backend.Scatterv:
		return t.scatter()
	case backend.Alltoall, backend.Alltoallv:
		return t.alltoall()
	}
	return fault(backend.ErrInternal, "unknown collective %v", t.Coll)
}

// meet waits for all ranks, unless nothing needs to be waited for.
func (t *task) sync(bad error) error {
	if t.inSlots {
		return bad
	}
	return t.p.Sync(bad)
}

// copy sets dst to bytes of a rank's buffer.
func (t *task) copy(dst []byte, rank int, from Space, off int) error {
	for len(dst) > 0 {
		n := min(len(dst), pieceBytes)
		if v := t.p.View(rank, from, off, n); v != nil {
			copy(dst[:n], v)
		} else if err := t.p.Fetch(rank, from, off, dst[:n]); err != nil {
			return err
		}
		dst, off = dst[n:], off+n
		if err := t.read(n); err != nil {
			return err
		}
	}
	return nil
}

// read counts bytes that have been read, and looks now and then whether the collective is over.
func (t *task) read(n int) error {
	if t.since += n; t.since < pieceBytes {
		return nil
	}
	t.since = 0
	return t.p.Over()
}

// temp returns n bytes of scratch.
func (t *task) temp(n int) []byte {
	if cap(t.s.temp) < n {
		t.s.temp = make([]byte, n)
	}
	return t.s.temp[:n]
}

// Load implements coll.Loader.
func (t *task) Load(rank, lo, hi int, scratch []byte) ([]byte, error) {
	off, n := lo*t.elem, (hi-lo)*t.elem
	if err := t.read(n); err != nil {
		return nil, err
	}
	if v := t.p.View(rank, In, off, n); v != nil {
		return v, nil
	}
	return scratch, t.p.Fetch(rank, In, off, scratch)
}

// eval combines elements lo to hi-1 of the ranks' vectors into dst.
func (t *task) eval(o coll.Order, lo, hi int, dst []byte) error {
	n := o.ScratchBlocks() * max(cmp.Or(t.s.Block, coll.BlockBytes), t.elem)
	if cap(t.s.blocks) < n {
		t.s.blocks = make([]byte, n)
	}
	return o.Eval(t.Op, lo, hi, dst, t, t.s.blocks[:n])
}
