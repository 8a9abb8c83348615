package board

import (
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Collective makes the collectives of a communicator: the blocking ones, one at a time, and short nonblocking
// ones (Op), of which several may be under way. A persistent one has its own Collective.
//
// A rank arrives at a call by writing its fingerprint, and its data if they are few, into its slot. It then
// waits for the ranks whose data it needs, and compares their fingerprints with its own. A rank that needs no
// data does not wait. It compares the others' fingerprints when it arrives at a later call (see ahead). Until
// then Verify does so, once they have arrived. A rank arrives at a call when it has completed the one before.
type Collective struct {
	c     Comm
	b     *Board
	id    uint64      // the communicator's + 1, and in the upper half which of its persistent operations, from 1
	home  *Collective // of the communicator; of a persistent operation that of its communicator
	ranks []int       // of the members, on the node
	mu    word.Mutex  // guards everything while there are operations

	ownSlots
	slots  []atomic.Pointer[slots] // of all ranks, by rank; nil until found
	areas  areas
	looked atomic.Uint32 // the head.news for which no other rank had published why it has ended

	progress
	operations
	side peers // access to the other ranks' buffers
}

// progress is where this rank is in the calls of the communicator.
type progress struct {
	seq, syncSeq uint32
	call         *backend.Call
	awaited                  // what this rank waits for
	compared     comparison  // of the other ranks' calls with this rank's
	behind       bool        // this rank did not wait for all ranks in its last call
	fresh        bool        // this rank has arrived, and not looked since who sleeps
	exchange     word.Uint32 // see wake

	// The last calls, if this rank did not wait in them: number<<32 | Call.Seq, 0 for the others; see Verify.
	returned aligned
}

// aligned is aligned for atomic operations on 64 bits where pointers have 32, too.
type aligned struct {
	_    [0]word.Uint64
	call [returnedDeep]uint64
}

// keyOf is the key of a call, or of a synchronization.
func (s *Collective) keyOf(seq uint32) uint64 { return s.id<<32 | uint64(seq) }

// slot returns a rank's slot of this call.
func (s *Collective) slot(o *slots) *callSlot { return &o.calls[s.seq%slotsDeep] }

// data returns where a rank's data of this call are if they do not fit into the slot.
func (s *Collective) data(o *slots) []byte { return o.data[s.seq%dataDeep][:] }

// of returns a rank's slots of this communicator; nil if there are none yet.
func (s *Collective) of(r int) *slots {
	o := s.slots[r].Load()
	if o == nil {
		o = s.find(r)
	}
	return o
}

func (s *Collective) find(r int) *slots {
	n := slotsFirst + min(s.b.head(s.ranks[r]).more.Load(), slotsMost-slotsFirst)
	for i := range int(n) {
		if o := s.b.at(s.ranks[r], i); o.id.Load() == s.id {
			s.slots[r].Store(o)
			return o
		}
	}
	return nil
}

// stands reports whether a rank's arrival at this call still stands: what was read of it before is of this call.
func (s *Collective) stands(r int) bool {
	s.settle()
	return word.LoadUint64(&s.slot(s.slots[r].Load()).key) == s.keyOf(s.seq)
}

// settle keeps what was loaded and stored before from what is after. amd64 keeps loads in order, and stores.
func (s *Collective) settle() {
	if runtime.GOARCH != "amd64" {
		s.exchange.Store(0)
		s.exchange.Load()
	}
}

// retract takes back this rank's arrival at a call that has failed. The caller may reuse its buffers, so a rank that
// still reads them must not find this one arrived and complete. It finds the reason, which is published by now.
func (s *Collective) retract() {
	word.CompareAndSwapUint64(&s.slot(s.mine).key, s.keyOf(s.seq), 0)
	if s.phase == synchronizing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	}
}

// ErrEnded is the error of a call that does not begin, because the communicator has ended on another rank. It has now
// on this one too.
var ErrEnded error = &backend.Fault{Sentinel: backend.ErrBroken, Text: "the communicator has ended on another rank"}

// Run makes a call, as backend.Collectives says.
func (s *Collective) Run(b *backend.Bound, call *backend.Call) (bool, error) {
	if !s.enter() {
		return true, errClosed
	}
	done, err := s.run(b, call)
	s.leave()
	return done, err
}

func (s *Collective) run(b *backend.Bound, call *backend.Call) (bool, error) {
	if s.count.Load() > 0 {
		if err := s.drain(b, call); err != nil {
			return true, err
		}
	}
	if s.news() != nil {
		_ = s.stopped()
		return true, ErrEnded
	}
	s.call = call
	if s.behind {
		s.awaitAll(catchingUp, s.seq+1-ahead)
		if err := s.wait(b); err != nil {
			return true, err
		}
	}
	if s.compared.differs {
		return true, s.mismatch(b)
	}
	if call.Type != nil && call.Count*call.Type.Size*len(s.ranks) > slotData {
		if err := s.allocate(call); err != nil {
			if over := s.c.Over(); over != nil { // nothing is allocated any more once this rank has left
				return true, over
			}
			s.c.Break(err)
			return true, err
		}
	}
	s.arrive(call)
	done, err := s.meet(b, call)
	if err != nil && err != call.Err { // with which the communicator has ended
		s.retract()
		if call.Err != nil && errors.Is(err, backend.ErrMismatch) { // the others' error, which this call is the reason for
			err = call.Err
		}
	}
	return done, err
}

// meet makes a call at which this rank has arrived.
func (s *Collective) meet(b *backend.Bound, call *backend.Call) (bool, error) {
	if err := s.wait(b); err != nil {
		return true, err
	}
	if s.compared.differs {
		return true, s.mismatch(b)
	}
	if call.Err != nil {
		return true, call.Err
	}
	done, err := s.side.complete(b, call)
	switch {
	case err == errUnsound:
		return true, s.why(max(s.unsound(), 0))
	case err == nil && s.b.lost(): // the others do not wait for this rank
		return true, s.stopped()
	}
	return done, err
}

// demoteMost is how many bytes of data are demoted, and ownMost the longest data whose next place is asked for. Longer ones
// took no less time, or more.
const (
	demoteMost = 1 << 10
	ownMost    = 16 << 10
)

// arrive writes this rank's arrival at its next call, and begins to wait for those it needs. If it waits for all, they wait
// too: their processors get the slot from the cache that all share, and this one the lines of the next data.
func (s *Collective) arrive(call *backend.Call) {
	if s.b.vain.Load() {
		s.b.vain.Store(false)
	}
	s.seq++
	p := s.slot(s.mine)
	s.side.publish(p, call)
	s.compared.upTo[s.c.Rank()] = s.seq
	lo, hi := s.needs(call)
	next := calling
	if !s.b.cfg.Spare && s.side.common() {
		next = asking
	}
	s.await(next, lo, hi, s.seq)
	deferred := uint64(0)
	if s.behind = hi-lo < len(s.ranks); s.behind {
		deferred = uint64(s.seq)<<32 | uint64(call.Seq)
	}
	if was := &s.returned.call[s.seq%returnedDeep]; deferred != 0 || word.LoadUint64(was) != 0 {
		release(was, deferred)
	}
	release(&p.key, s.keyOf(s.seq))
	if !s.behind { // the next slot's line comes meanwhile; while no rank waits for it, it stays
		if s.b.cfg.Spare {
			shmem.Demote(p.small[:1]) // and the key
			shmem.Demote(s.side.filled[:min(len(s.side.filled), demoteMost)])
			shmem.OwnAll(s.side.next)
		}
		release(&s.mine.calls[(s.seq+1)%slotsDeep].key, 0)
	}
	s.fresh = true
	s.side.place(call)
}

// sync is a barrier inside a collective. It also publishes where this rank's shared work is, and an
// error if this rank found one.
func (s *Collective) sync(b *backend.Bound, bad error, work []byte) error {
	s.syncSeq++
	s.parity, s.key = s.syncSeq&1, s.keyOf(s.syncSeq)
	m := &s.mine.syncs[s.parity]
	m.work, m.workLen = shmem.Addr(work), uint64(len(work))
	if m.reason.bytes = 0; bad != nil {
		m.reason.set(backend.AsFault(bad))
	}
	m.key.Store(s.key)
	s.fresh = true
	s.awaitAll(synchronizing, s.seq)
	if err := s.wait(b); err != nil {
		return err
	}
	for r := range s.slots {
		m := &s.slots[r].Load().syncs[s.parity]
		var f *backend.Fault
		if m.reason.bytes != 0 {
			f = m.reason.get()
		}
		if s.settle(); m.key.Load() != s.key {
			return s.why(r)
		}
		if f != nil {
			s.c.BreakHere(f)
			return f
		}
	}
	return nil
}

// errClosed is the error of an operation that was in progress when this rank closed the communicator.
var errClosed error = &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
