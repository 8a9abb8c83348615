package board

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
)

// Op is a nonblocking or persistent collective whose data fit into the slots, a backend.Operation.
//
// It arrives when it starts, or when the one before is complete. It is complete when all ranks have arrived
// and it has taken their data. A goroutine that looks at one advances
// all operations of its communicator as far as they go. A blocking call waits until they are complete.
type Op struct {
	s    *Collective
	call backend.Call
	done atomic.Bool
	err  error
}

// operations are those under way on a communicator.
type operations struct {
	ops    []*Op        // in the order of their starts
	count  atomic.Int32 // of them
	first  *Op          // of these, once it has arrived
	failed bool         // it cannot be completed although all ranks have arrived, for instance if their calls differ
	spare  []*Op
}

const spareMost = 32

// Start starts a nonblocking collective. It returns nil if that must be a schedule.
func (s *Collective) Start(call *backend.Call) *Op {
	if !s.fits(call) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index < 0 {
		return nil
	}
	var o *Op
	if n := len(s.spare); n > 0 {
		o, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		o = &Op{s: s}
	}
	o.call = *call
	o.begin()
	return o
}

// fits reports whether a call can be made over the slots, without a user's function.
func (s *Collective) fits(call *backend.Call) bool {
	return call.Err == nil && (call.Op == nil || call.Op.Code != backend.OpUser) && direct.FitsSlot(call, len(s.ranks), slotData)
}

// persistentMost is how many persistent operations a communicator has slots for, if all were made at once. Their
// slots are not used for others before the communicator is closed.
const persistentMost = 8

// Persistent makes a persistent operation, which all ranks make alike. It returns nil if that must be a schedule.
// Each has its own slots, because ranks may start different ones in different orders. The engine's lock is held.
func (s *Collective) Persistent(call *backend.Call) (*Op, error) {
	n := uint64(len(s.persistent)) + 1
	if !s.fits(call) || n > persistentMost {
		return nil, nil
	}
	own, err := s.b.open(s.c, s.id|n<<32, s.ranks)
	if err != nil {
		return nil, err
	}
	s.persistent = append(s.persistent, own)
	return &Op{s: own, call: *call}, nil
}

// begin adds the operation to those under way. mu is held.
func (o *Op) begin() {
	s := o.s
	o.err, s.used = nil, true
	o.done.Store(false)
	s.ops = append(s.ops, o)
	s.count.Add(1)
	s.advance()
}

// advance takes the operations as far as they go. mu is held: it calls nothing that takes the engine's lock.
func (s *Collective) advance() {
	for len(s.ops) > 0 && s.index >= 0 && !s.failed {
		o := s.ops[0]
		if s.first != o {
			if s.c.Over() != nil {
				return
			}
			s.syncing = false
			if s.behind {
				if s.awaitAll(s.seq + 1 - ahead); !s.arrived() {
					return
				}
			}
			if !s.differs {
				s.first = o
				s.arrive(&o.call)
				s.exchange.Store(0) // nobody may look again for long
			}
		}
		if !s.arrived() {
			return
		}
		if s.fresh {
			s.wake()
		}
		if s.differs {
			s.awaitAll(s.differ)
			s.failed = s.arrived()
			return
		}
		_, o.err = s.side.complete(nil, &o.call)
		// The data are no good if this rank was declared lost, or has closed the communicator; see Run.
		if s.failed = s.b.lost() || errors.Is(s.c.Over(), backend.ErrClosed); s.failed {
			return
		}
		s.remove(0)
		o.done.Store(true)
	}
}

// remove takes an operation off the list. mu is held.
func (s *Collective) remove(i int) {
	if i == 0 {
		s.first = nil
	}
	s.ops = slices.Delete(s.ops, i, i+1)
	s.count.Add(-1)
}

// stuck reports whether the operations go no further. mu is held.
func (s *Collective) stuck() bool {
	return s.failed || s.c.Over() != nil || len(s.ops) > 0 && s.seen < s.end && s.c.Gone(s.seen) && !s.here(s.seen)
}

// Queued advances the operations, and reports whether some have not arrived.
func (s *Collective) Queued() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return len(s.ops) > 0 && s.ops[len(s.ops)-1] != s.first && !s.stuck()
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
	return len(s.ops) == 0 || s.stuck()
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

// cause returns why the operations go no further. It is nil if this rank was declared lost and does not know it.
func (s *Collective) cause() error {
	s.mu.Lock()
	arrived, differs := s.seen == s.end, s.differs
	rank := s.seen
	s.mu.Unlock()
	if arrived && differs {
		return s.report()
	}
	s.c.Refresh()
	if err := s.c.Over(); err != nil || arrived {
		return err
	}
	return s.gone(rank)
}

// Start implements backend.Operation.
func (o *Op) Start() {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
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
	return o.done.Load() || s.stuck()
}

// Soon looks at the operation for about 2 µs, and reports whether it is ready.
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
	if !o.done.Load() {
		o.Ready() // it may have been complete before the others failed
	}
	if !o.done.Load() {
		o.end(o.s.cause())
	}
	return o.err
}

// end ends an operation that goes no further.
func (o *Op) end(err error) {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.ops, o); i >= 0 {
		s.remove(i)
		o.err = err
		o.done.Store(true)
	}
}

// End implements backend.Operation.
func (o *Op) End(why error) error {
	if !o.Ready() {
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
