package board

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Collective makes the collectives of a communicator: the blocking ones, one at a time, and short nonblocking
// ones (Op), of which several may be under way.
//
// A rank arrives at a call by writing its fingerprint, and its data if they are few, into its slot.
// It completes the call when all ranks have arrived, and arrives at the next one after that. So a rank
// arrives at call s+2 only after all have arrived at s+1, and they do so only when they are done with s. Two
// alternating slots are therefore enough, and a call whose data were all in the slots needs no second
// synchronisation.
type Collective struct {
	c     Comm
	b     *Board
	id    uint32
	mu    sync.Mutex // guards index and used, and everything while there are operations
	index int        // of the own slots; -1: given back
	used  bool       // this rank has arrived at a collective
	ranks []int      // of the members, on the node
	mine  *slots     // own
	slots []*slots   // by rank; nil until found

	seq, syncSeq uint32
	key          uint64
	syncing      bool // in sync: wait for the sync slots, not the call slots
	parity       uint32
	print        backend.Fingerprint
	seen         int // ranks below have arrived
	call         *backend.Call
	side         peers         // access to the other ranks' buffers
	exchange     atomic.Uint32 // see wake

	operations
}

// Ready implements backend.Pending: all ranks have arrived, or one never will, or this rank has
// closed the communicator.
func (s *Collective) Ready() bool {
	return s.arrived() || s.c.Over() != nil || s.c.Gone(s.seen) && !s.here(s.seen)
}

// arrived reports whether all ranks have arrived.
func (s *Collective) arrived() bool {
	for s.seen < len(s.ranks) {
		if !s.here(s.seen) {
			return false
		}
		s.seen++
	}
	return true
}

// here reports whether a rank has arrived.
func (s *Collective) here(r int) bool {
	b := s.slots[r]
	if b == nil {
		if b = s.find(r); b == nil {
			return false
		}
		s.slots[r] = b
	}
	if s.syncing {
		return b.syncs[s.parity].key.Load() == s.key
	}
	return atomic.LoadUint64(&s.slot(b).key) == s.key
}

// slot returns a rank's slot of this call.
func (s *Collective) slot(o *slots) *callSlot { return &o.calls[s.seq&1] }

// find looks for another rank's slots of this communicator; nil if there are none yet.
func (s *Collective) find(r int) *slots {
	n := slotsFirst + min(s.b.at(s.ranks[r], 0).more.Load(), slotsMost-slotsFirst)
	for i := range int(n) {
		if b := s.b.at(s.ranks[r], i); b.id.Load() == s.id+1 {
			return b
		}
	}
	return nil
}

// wake wakes the other ranks that sleep. The rank that arrives last does this, for the others need not run before.
//
// To arrive is a plain store, and the exchange makes it visible before this rank looks who sleeps. A rank that is
// about to sleep announces that, also by an exchange, before it looks who has arrived. So of two ranks at least one
// sees the other.
func (s *Collective) wake() {
	s.exchange.Store(0)
	for r, w := range s.ranks {
		if r != s.c.Rank() {
			s.b.cfg.Wake(w)
		}
	}
}

// wait waits for the other ranks, after this one has arrived.
func (s *Collective) wait(b *backend.Bound) error {
	c := s.c
	s.seen = 0
	if s.b.cfg.Spare {
		for range directSpin {
			if s.arrived() {
				break
			}
		}
	}
	if s.seen < len(s.ranks) {
		if !s.syncing {
			c.Waits(s.call)
		}
		err := c.Await(b, s)
		if !s.syncing {
			c.Waits(nil)
		}
		if err != nil {
			err = s.late(err, s.call)
			s.retract()
			return err
		}
	}
	if s.seen == len(s.ranks) {
		s.wake()
		return nil
	}
	defer s.retract()
	return s.gone(s.seen)
}

// gone returns why a call ends for which a rank is gone. That rank may have published the reason before, or may
// have left because of a loss that is not known here yet.
func (s *Collective) gone(rank int) error {
	s.c.Refresh()
	err := s.c.Over()
	if err == nil {
		err = s.c.GoneFault(rank)
		s.c.Break(err)
	}
	return err
}

// retract takes back this rank's arrival at a call that has failed. The caller may reuse its
// buffers, so a rank that still reads them must not find this one arrived and complete. The others
// know the reason or will receive the notice of the closing. Once all have closed the communicator,
// the slots and their keys may belong to another one.
func (s *Collective) retract() {
	if s.syncing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	} else {
		atomic.CompareAndSwapUint64(&s.slot(s.mine).key, s.key, 0)
	}
}

// late ends a call whose time is up: it names the missing ranks and breaks the communicator.
func (s *Collective) late(cause error, call *backend.Call) error {
	c := s.c
	c.Refresh()
	if err := c.Over(); err != nil { // another rank was first, for instance
		return err
	}
	var missing []string
	s.mu.Lock()
	for r := range s.ranks {
		if !s.here(r) {
			missing = append(missing, fmt.Sprint(r))
		}
	}
	s.mu.Unlock()
	return s.timedOut(cause, call, "waited in %v for ranks that had not arrived: "+strings.Join(missing, ", "))
}

// timedOut breaks the communicator because of the error of a Bound, and adds what this rank did in the call.
func (s *Collective) timedOut(cause error, call *backend.Call, did string) error {
	err := backend.While(cause, fmt.Sprintf("rank %d "+did, s.c.Rank(), call.Fingerprint()))
	s.c.Break(err)
	return err
}

// text is a fault's text without its sentinel.
func text(err error) string {
	if f, ok := err.(*backend.Fault); ok {
		return f.Text
	}
	return err.Error()
}

// Run makes a call, as backend.Collectives says.
func (s *Collective) Run(b *backend.Bound, call *backend.Call) (bool, error) {
	c := s.c
	if s.count.Load() > 0 {
		if err := s.drain(b, call); err != nil {
			return true, err
		}
	}
	if s.seq == 0 {
		s.mu.Lock()
		s.used = true
		open := s.index >= 0
		s.mu.Unlock()
		if !open {
			return true, errClosed
		}
	}
	s.call = call
	s.arrive(call)
	if err := s.wait(b); err != nil {
		return true, err
	}
	if s.differs() {
		return true, s.mismatch(call.Err, c.BreakHere)
	}
	if call.Err != nil {
		return true, call.Err
	}
	done, err := s.side.complete(b, call)
	// The others do not wait for a rank that was declared lost. If this rank was, it may have read
	// the data of later calls.
	lost := s.b.lost()
	if lost {
		c.Refresh()
	}
	// If another goroutine has closed the communicator, the others' slots may have belonged to later ones.
	if over := c.Over(); lost || errors.Is(over, backend.ErrClosed) {
		return true, over
	}
	return done, err
}

// arrive writes this rank's arrival at its next call.
func (s *Collective) arrive(call *backend.Call) {
	s.seq++
	s.syncing, s.key, s.seen = false, s.keyOf(s.seq), 0
	p := s.slot(s.mine)
	s.side.publish(p, call)
	shmem.ReleaseUint64(&p.key, s.key)
}

// keyOf is the key of a call, or of a synchronisation.
func (s *Collective) keyOf(seq uint32) uint64 { return uint64(s.id+1)<<32 | uint64(seq) }

// differs reports whether a rank makes another call than this one.
func (s *Collective) differs() bool {
	for _, o := range s.slots {
		if o != s.mine && s.slot(o).print != s.print {
			return true
		}
	}
	return false
}

// mismatch reports which ranks called what. The report is the same on every rank, because every
// rank sees all slots. A rank returns its own argument error instead.
func (s *Collective) mismatch(own error, breakWith func(*backend.Fault)) error {
	c := s.c
	c.Refresh()
	if err := c.Over(); err != nil && !errors.Is(err, backend.ErrMismatch) {
		return err // the slots compared may be of later calls, or of later communicators
	}
	first := s.slot(s.slots[0]).print
	for r, o := range s.slots {
		if fp := s.slot(o).print; fp != first {
			f := backend.Mismatch(0, first, r, fp).(*backend.Fault)
			breakWith(f)
			if own != nil {
				return own
			}
			return f
		}
	}
	return &backend.Fault{Sentinel: backend.ErrInternal, Text: "the arrival slots changed while they were compared"}
}

// sync is a barrier inside a collective. It also publishes where this rank's shared work is, and an
// error if this rank found one.
func (s *Collective) sync(b *backend.Bound, bad error, work []byte) error {
	c := s.c
	s.syncSeq++
	s.syncing, s.parity, s.key = true, s.syncSeq&1, s.keyOf(s.syncSeq)
	s.mu.Lock()
	if s.index < 0 { // all have closed the communicator; the slots may belong to another one
		s.mu.Unlock()
		return errClosed
	}
	m := &s.mine.syncs[s.parity]
	m.work, m.workLen = shmem.Addr(work), uint64(len(work))
	m.code, m.bytes = uint32(backend.Code(bad)), 0
	if bad != nil {
		m.bytes = uint32(copy(m.text[:], text(bad)))
	}
	m.key.Store(s.key)
	s.mu.Unlock()
	if err := s.wait(b); err != nil {
		return err
	}
	for _, o := range s.slots {
		m := &o.syncs[s.parity]
		if code := m.code; code != 0 {
			f := &backend.Fault{Sentinel: sentinel(code), Text: string(m.text[:min(int(m.bytes), len(m.text))])}
			c.BreakHere(f)
			return f
		}
	}
	return nil
}

// errClosed is the error of an operation that was in progress when this rank closed the communicator.
var errClosed error = &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}

// sentinel returns the sentinel of a code that another rank wrote. It is never nil, whatever the code.
func sentinel(code uint32) error {
	if code == 0 || code > 0xff {
		return backend.ErrInternal
	}
	return backend.Sentinel(uint8(code))
}

// directSpin is how often a rank looks for the others before it waits: about 2 µs.
const directSpin = 1500
