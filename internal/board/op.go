package board

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Op is a nonblocking or persistent collective whose data fit into the slots, a backend.Operation.
//
// It arrives when it starts, or when the one before is complete. It is complete when all ranks have arrived
// and it has taken their data. A goroutine that looks at one advances
// all operations of its communicator as far as they go. A blocking call waits until they are complete.
type Op struct {
	s      *Collective
	call   backend.Call
	counts []int // those of call: the program may use its own for something else
	done   word.Bool
	err    error
}

// keep makes the call the operation's.
func (o *Op) keep(call *backend.Call) {
	o.call = *call
	if n := len(call.RecvCounts); n > 0 { // Allgatherv and ReduceScatter; the other calls in slots have none
		o.counts = append(append(o.counts[:0], call.RecvCounts...), call.RecvDispls...)
		o.call.RecvCounts, o.call.RecvDispls = o.counts[:n], o.counts[n:]
	}
}

// operations are those under way on a communicator.
type operations struct {
	ops   []*Op      // in the order of their starts
	count word.Int32 // of them
	stage stage
	given error // why an operation was given up, before the communicator is broken because of that
	spare []*Op
}

// stage is how far the operations under way are:
//
//	stage    means                                           then
//	queued   the first one has not arrived, or none is       arrived, when all ranks have come near enough (ahead)
//	         under way
//	arrived  the first one has arrived                       queued, when it is complete
//	failed   none goes further: one was given up, or cannot  the communicator ends
//	         be completed although all ranks have arrived
type stage uint8

const (
	queued stage = iota
	arrived
	failed
)

const spareMost = 32

// Start starts a nonblocking collective. It returns nil if that must be a schedule, also one that ends at once because
// the communicator has ended on another rank.
func (s *Collective) Start(call *backend.Call) *Op {
	if !s.fits(call) {
		return nil
	}
	if s.news() != nil {
		_ = s.stopped()
		return nil
	}
	if err := s.allocate(call); err != nil {
		s.c.Break(err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claim() {
		return nil
	}
	var o *Op
	if n := len(s.spare); n > 0 {
		o, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		o = &Op{s: s}
	}
	o.keep(call)
	o.begin()
	return o
}

// fits reports whether a call can be made over the slots, without a user's function.
func (s *Collective) fits(call *backend.Call) bool {
	return call.Err == nil && (call.Op == nil || call.Op.Code != backend.OpUser) && direct.FitsSlot(call, len(s.ranks), s.b.area)
}

// persistentMost is how many persistent operations a communicator has slots for, if all were made at once. Their
// slots are not used for others before the communicator is closed.
const persistentMost = 8

// Persistent makes a persistent operation, which all ranks make alike. It returns nil if that must be a schedule.
// Each has its own slots, because ranks may start different ones in different orders. The engine's lock is held.
func (s *Collective) Persistent(call *backend.Call) (backend.Operation, error) {
	n := uint64(len(s.persistent)) + 1
	if s.closed || !s.fits(call) || n > persistentMost {
		return nil, nil
	}
	own, err := s.b.open(s.c, s.id|n<<32, s.ranks)
	if err != nil {
		return nil, err
	}
	own.home = s
	s.persistent = append(s.persistent, own)
	if err := own.allocate(call); err != nil {
		return nil, err
	}
	o := &Op{s: own}
	o.keep(call)
	return o, nil
}

// begin adds the operation to those under way. mu is held.
func (o *Op) begin() {
	s := o.s
	o.err = nil
	o.done.Store(false)
	s.ops = append(s.ops, o)
	s.count.Add(1)
	s.advance()
}

// advance takes the operations as far as they go. mu is held: it calls nothing that takes the engine's lock.
func (s *Collective) advance() {
	for len(s.ops) > 0 && s.stage != failed && word.LoadUint32(&s.gate) != gateShut {
		o := s.ops[0]
		if s.stage == queued {
			if s.c.Over() != nil {
				return
			}
			if s.behind {
				if s.awaitAll(catchingUp, s.seq+1-ahead); !s.arrived() {
					return
				}
			}
			if !s.compared.differs {
				s.stage = arrived
				s.arrive(&o.call)
				s.exchange.Store(0) // of ranks that arrive at once, one sees the others and wakes those that sleep
			}
		}
		if !s.arrived() {
			return
		}
		if s.fresh {
			s.wake()
		}
		if s.compared.differs {
			if s.awaitAll(disputing, s.compared.first); s.arrived() {
				s.stage = failed
			}
			return
		}
		if _, err := s.side.complete(nil, &o.call); err != nil || s.b.lost() {
			s.stage = failed
			return
		}
		s.stage = queued
		s.ops = slices.Delete(s.ops, 0, 1)
		s.count.Add(-1)
		o.done.Store(true)
	}
}

// stuck reports whether the operations go no further. mu is held.
func (s *Collective) stuck() bool {
	return s.stage == failed || len(s.ops) > 0 && s.seen < s.end && s.halted() || s.c.Over() != nil
}

// Queued advances the operations, and reports whether some have not arrived.
func (s *Collective) Queued() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return (len(s.ops) > 1 || len(s.ops) == 1 && s.stage == queued) && !s.stuck()
}

// Made returns the fingerprint of the operation under way to which a message with a tag belongs.
func (s *Collective) Made(tag int) (made backend.Fingerprint, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.ops {
		if backend.CheckTag(o.call.Seq) == tag {
			return o.call.Fingerprint(), true
		}
	}
	return made, false
}

// drained is ready when no operations are under way, or they go no further.
type drained Collective

func (d *drained) Ready() bool {
	s := (*Collective)(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if len(s.ops) > 0 && !s.stuck() {
		s.advance() // as in Collective.Ready
		return len(s.ops) == 0
	}
	return true
}

// drain waits until no operations are under way, before a blocking call.
func (s *Collective) drain(b *backend.Bound, call *backend.Call) error {
	if why := s.c.Await(b, (*drained)(s)); why != nil {
		return s.late(why, call)
	}
	if s.count.Load() > 0 {
		return s.cause()
	}
	return nil
}

// cause returns why the operations go no further.
func (s *Collective) cause() error {
	s.mu.Lock()
	given := s.given
	differs, rank := s.compared.differs && s.seen == s.end, min(s.seen, len(s.ranks)-1)
	if s.seen == s.end {
		rank = max(s.unsound(), 0)
	}
	s.mu.Unlock()
	if differs {
		return s.report()
	}
	if given != nil && s.stopped() == nil {
		s.c.Break(given)
	}
	return s.why(rank)
}

// Start implements backend.Operation.
func (o *Op) Start() {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claim() {
		o.end(errClosed)
		return
	}
	o.begin()
}

// Ready implements backend.Operation.
func (o *Op) Ready() bool {
	if o.done.Load() {
		return true
	}
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	if !o.done.Load() && !s.stuck() {
		s.advance() // as in Collective.Ready
		return o.done.Load()
	}
	return true
}

// Soon implements backend.Spinner: it looks at the operation for about 2 µs.
func (o *Op) Soon() bool {
	for range opSpin {
		if o.Ready() {
			return true
		}
	}
	return false
}

const opSpin = 100

// Err implements backend.Operation.
func (o *Op) Err() error {
	if !o.done.Load() && o.giveUp(nil) {
		o.end(o.s.cause())
	}
	return o.err
}

// giveUp takes an operation off the list, unless it has completed. None of the list goes on after that. If none does
// already, it is not given up because of given: cause has the reason.
func (o *Op) giveUp(given error) bool {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	i := slices.Index(s.ops, o)
	if i < 0 || given != nil && s.stage == failed {
		return false
	}
	if s.stage = failed; s.given == nil {
		s.given = given
	}
	s.ops = slices.Delete(s.ops, i, i+1) // it still counts: a blocking call does not arrive any more
	return true
}

// end ends an operation that has been given up.
func (o *Op) end(err error) {
	o.err = err
	o.done.Store(true)
}

// End implements backend.Operation.
func (o *Op) End(why error) error {
	if o.giveUp(backend.While(why, fmt.Sprintf("rank %d gave up %v", o.s.c.Rank(), o.call.Fingerprint()))) {
		o.end(o.s.late(why, &o.call))
	}
	return nil
}

// Release implements backend.Operation.
func (o *Op) Release() {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	o.call = backend.Call{}
	if len(s.spare) < spareMost {
		s.spare = append(s.spare, o)
	}
}
