package board

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// peers implements direct.Peers: access to the other ranks' buffers during a collective. Short
// inputs are in the arrival slots (direct.FitsSlot), and the ranks need not synchronize again.
// Otherwise the slots hold the addresses from which the inputs are copied out of the other
// processes.
type peers struct {
	s       *Collective
	bound   *backend.Bound
	began   time.Time // when the data began to move, if that is measured
	call    *backend.Call
	inSlots bool
	from    *found // the result, if another rank has published it
	in      []byte // this rank's input
	filled  []byte // where it was copied, beside the slot
	next    []byte // where the next call's input goes, if it is as long
	out     []byte // the table of blocks, if the slot has no room for it
	tmp     []byte
	mem     direct.Scratch

	took  uint32  // by the last call, if it was measured
	ended func()  // p.end
	moved func()  // s.moved
	ways  chooser // of rank 0
}

// The indices of callSlot.facts.
const (
	factIn = iota
	factInLen
	factOut
	factOutLen
	factBlocks // address of the table of blocks, if data has no room for it

	factArea   = factIn    // of data in an area: the number of the rank's slots
	factOffset = factInLen // and where the area begins
)

const blockBytes = 16 // offset and length, in the table of blocks

// publish writes what the others need into this rank's call slot.
func (p *peers) publish(to *callSlot, call *backend.Call) {
	print := call.Fingerprint()
	release(&to.key, 0) // before the rest
	p.s.settle()
	writes(&to.touch)
	p.s.compared.prints[p.s.seq%slotsDeep], to.print = print, print
	n := len(p.s.ranks)
	p.call, p.inSlots, p.from, p.filled, p.next = call, true, nil, nil, nil
	if call.Err != nil || call.Coll == backend.Barrier || call.Coll.Neighbor() {
		return
	}
	p.in = direct.Input(call, p.s.c.Rank())
	if direct.FitsSlot(call, n, p.s.b.area) {
		switch k := p.length(); { // not by the own input: slotOf decides in the same way
		case k <= smallData:
			copy(to.small[:], p.in)
		case k <= slotData:
			p.filled, p.next = p.s.data(p.s.mine)[:k], p.s.mine.data[(p.s.seq+1)%dataDeep][:k]
			copy(p.filled, p.in)
		case len(p.in) > 0:
			to.facts[factArea], to.facts[factOffset] = uint64(p.s.index), p.s.reserve(k)
			shmem.Move(p.s.area(p.s.c.Rank(), k), p.in)
			if k <= ownMost {
				p.next = p.s.areas.of[p.s.c.Rank()].mem[p.s.following(k):][:k]
			}
		}
		return
	}
	p.inSlots = false
	p.plan(to, max(len(p.in), len(call.Recv), 1))
	to.facts = [5]uint64{factIn: shmem.Addr(p.in), factInLen: uint64(len(p.in)),
		factOut: shmem.Addr(call.Recv), factOutLen: uint64(len(call.Recv))}
	switch call.Coll {
	case backend.Alltoallv:
	case backend.Scatterv:
		if call.Root != p.s.c.Rank() {
			return
		}
	default:
		return
	}
	table := p.s.data(p.s.mine)
	if n*blockBytes > slotData {
		if len(p.out) < n*blockBytes {
			p.out = make([]byte, n*blockBytes)
		}
		table = p.out
		to.facts[factBlocks] = shmem.Addr(table)
	}
	for r := range n {
		off, k := direct.Outgoing(call, p.s.c.Rank(), r)
		binary.LittleEndian.PutUint64(table[r*blockBytes:], uint64(off))
		binary.LittleEndian.PutUint64(table[r*blockBytes+8:], uint64(k))
	}
}

// gathers reports whether a call puts the blocks of all ranks beside each other on every rank.
func gathers(c *backend.Call) bool {
	return c.Coll == backend.Allgather || c.Coll == backend.Allgatherv
}

// place puts this rank's own block into the result, while those of the others come.
func (p *peers) place(call *backend.Call) {
	if !p.inSlots || call.Err != nil || call.InPlace || !gathers(call) {
		return
	}
	if off, n := direct.Incoming(call, p.s.c.Rank()); n > 0 {
		shmem.Move(call.Recv[off:off+n], p.in)
	}
}

// complete does this rank's part once all ranks make the same call.
func (p *peers) complete(b *backend.Bound, call *backend.Call) (bool, error) {
	switch {
	case call.Coll == backend.Barrier:
		if p.s.phase == asking {
			p.s.tell(nil)
		}
		return true, nil
	case call.Coll.Neighbor():
		call.Ended = p.moved
		return false, nil
	}
	c := p.s.c
	var w way
	if !p.inSlots {
		if w = p.agreed(); w&measured != 0 {
			p.began = time.Now()
		}
		if !p.s.stands(0) {
			return true, errUnsound
		}
		if w&copies == 0 {
			if w&measured != 0 {
				call.Ended = p.ended
			}
			return false, nil
		}
	}
	p.bound = b
	var err error
	switch {
	case p.from != nil:
		reads(&p.from.touch)
		copy(call.Recv, p.from.result[:])
	case p.inSlots && call.Coll == backend.Bcast:
		if c.Rank() != call.Root {
			shmem.Move(call.Recv[:p.length()], p.slotOf(call.Root))
		}
	case p.inSlots && gathers(call):
		for i := 1; i < len(p.s.ranks); i++ { // not all ranks read from the same one
			r := (c.Rank() + i) % len(p.s.ranks)
			if off, n := direct.Incoming(call, r); n > 0 {
				shmem.Move(call.Recv[off:off+n], p.slotOf(r))
			}
		}
	case p.inSlots && call.Coll == backend.Allreduce && len(p.s.ranks) == 2 && call.Op.Code != backend.OpUser:
		p.pair(call)
	default:
		err = direct.Run(call, c.Rank(), len(p.s.ranks), p, &p.mem, p.inSlots)
	}
	p.call, p.in = nil, nil
	if err == nil && p.inSlots && p.s.unsound() >= 0 {
		err = errUnsound
	}
	if p.s.phase == asking && err == nil {
		p.s.tell(call.Recv)
	}
	if w&measured != 0 {
		p.end()
	}
	return true, err
}

// errUnsound says that what was read may not be of the call.
var errUnsound = errors.New("an arrival was taken back")

// common reports whether a call has one short result for all ranks.
func (p *peers) common() bool {
	c := p.call
	return c.Err == nil && (c.Coll == backend.Barrier ||
		c.Coll == backend.Allreduce && p.inSlots && p.length() <= smallData && c.Op.Code != backend.OpUser)
}

// pair is Allreduce of two ranks: two operands have one order. The other's operand is first copied to where the result goes,
// unless this rank's own is there: one sweep over the lines of another core's cache is faster than arithmetic between the loads.
func (p *peers) pair(call *backend.Call) {
	n, theirs := len(p.in), call.Recv
	if call.InPlace {
		if cap(p.tmp) < n {
			p.tmp = make([]byte, n)
		}
		theirs = p.tmp[:n]
	}
	shmem.Move(theirs, p.slotOf(1-p.s.c.Rank()))
	if p.s.c.Rank() == 0 {
		call.Op.Apply(call.Recv, p.in, theirs)
	} else {
		call.Op.Apply(call.Recv, theirs, p.in)
	}
}

// slotOf returns the input of a rank in its slot. It is as long as this rank's: only what all have
// in common is there, except the root's of rooted calls.
func (p *peers) slotOf(r int) []byte {
	o := p.s.slots[r].Load()
	reads(&p.s.slot(o).touch)
	switch n := p.length(); {
	case n <= smallData:
		return p.s.slot(o).small[:]
	case n <= slotData:
		return p.s.data(o)
	}
	return p.s.area(r, p.length())
}

// length is the length of the inputs in the slots for this call, in bytes.
func (p *peers) length() int {
	c := p.call
	switch c.Coll {
	case backend.Scatter, backend.Alltoall, backend.ReduceScatterBlock:
		return len(p.s.ranks) * c.Count * c.Type.Size
	}
	return c.Count * c.Type.Size
}

// Read implements direct.Peers. Only this rank's own buffers are addressable here. No rank reads its own
// Work.
func (p *peers) Read(rank int, from direct.Space, off int, dst []byte) ([]byte, error) {
	c := p.s.c
	switch {
	case len(dst) == 0:
		return dst, nil
	case rank == c.Rank():
		own := p.in
		if from == direct.Out {
			own = p.call.Recv
		}
		return own[off : off+len(dst)], nil
	case p.inSlots:
		shmem.Move(dst, p.slotOf(rank)[off:])
		return dst, nil
	}
	o := p.s.slots[rank].Load()
	facts := &p.s.slot(o).facts
	var addr, length uint64
	switch from {
	case direct.In:
		addr, length = facts[factIn], facts[factInLen]
	case direct.Out:
		addr, length = facts[factOut], facts[factOutLen]
	default:
		m := &o.syncs[p.s.parity]
		addr, length = m.work, m.workLen
	}
	if uint64(off)+uint64(len(dst)) > length {
		return nil, p.corrupt(rank, "rank %d reads bytes %d to %d of rank %d's buffer of %d bytes", c.Rank(), off, off+len(dst), rank, length)
	}
	return dst, p.read(rank, addr+uint64(off), dst)
}

// read copies out of another rank's process. What it has read is good if the rank's arrival still stands: a rank takes it
// back before its buffers are the caller's.
func (p *peers) read(rank int, addr uint64, dst []byte) error {
	c := p.s.c
	err := p.s.b.cfg.Ranks[p.s.ranks[rank]].Read(addr, dst)
	stands := p.s.stands(rank)
	if stands && err == nil {
		return nil
	}
	if stands && p.s.stopped() == nil {
		if !shmem.Gone(err) {
			return p.corrupt(rank, "rank %d copies a buffer of rank %d: %v", c.Rank(), rank, err)
		}
		c.Suspect(rank, err)
	}
	return p.s.why(rank)
}

// corrupt ends the communicator because a peer has published values that are out of range.
func (p *peers) corrupt(rank int, format string, args ...any) error {
	if !p.s.stands(rank) {
		return p.s.why(rank)
	}
	err := backend.Faultf(backend.ErrInternal, format, args...)
	p.s.c.Break(err)
	return err
}

// Block implements direct.Peers.
func (p *peers) Block(rank, to int) (off, n int, err error) {
	if rank == p.s.c.Rank() {
		off, n = direct.Outgoing(p.call, rank, to)
		return off, n, nil
	}
	o := p.s.slots[rank].Load()
	facts := &p.s.slot(o).facts
	var entry [blockBytes]byte
	switch {
	case p.call.Coll == backend.Gatherv:
		binary.LittleEndian.PutUint64(entry[8:], facts[factInLen])
	case len(p.s.ranks)*blockBytes <= slotData:
		copy(entry[:], p.s.data(o)[to*blockBytes:])
	default:
		addr := facts[factBlocks]
		if len(p.tmp) < blockBytes {
			p.tmp = make([]byte, blockBytes)
		}
		if err := p.read(rank, addr+uint64(to*blockBytes), p.tmp[:blockBytes]); err != nil {
			return 0, 0, err
		}
		copy(entry[:], p.tmp)
	}
	if !p.s.stands(rank) {
		return 0, 0, p.s.why(rank)
	}
	a, b := binary.LittleEndian.Uint64(entry[:]), binary.LittleEndian.Uint64(entry[8:])
	if a > 1<<62 || b > 1<<62 {
		return 0, 0, p.corrupt(rank, "rank %d announces for rank %d %d bytes at offset %d", rank, to, b, a)
	}
	return int(a), int(b), nil
}

// Over implements direct.Peers.
func (p *peers) Over() error {
	if err := p.s.c.Over(); err != nil {
		return err
	}
	if err := p.bound.Err(time.Time{}); err != nil {
		return p.s.timedOut(err, p.call, "was in the middle of %v")
	}
	return nil
}

// Sync implements direct.Peers.
func (p *peers) Sync(work []byte, bad error) error { return p.s.sync(p.bound, bad, work) }

// Fails implements direct.Peers.
func (p *peers) Fails(err error, exits bool) {
	if p.s.c.Break(err); exits {
		p.s.retract()
		p.s.leave()
	}
}

// fetchBlock is how many bytes of a long vector are fetched at a time for a reduction: enough for a
// system call, and few enough for a core's own cache.
const fetchBlock = 64 << 10
