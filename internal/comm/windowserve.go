package comm

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// server carries out the requests of ranks on other nodes. It has one receive posted. When the receive is complete,
// the goroutine that makes progress runs the server: one that waits in any operation, or else the window's own, which
// waits in the background. That goroutine carries out a few requests and then goes back to its own operation, whose time
// may be over. The rest gets a goroutine, and so does a request that has to wait for another rank's update. Whoever
// carries out a request posts the next receive, so requests are carried out in the order in which they arrive.
type server struct {
	in      backend.Request
	buf     [requestMost]byte
	arrived word.Int32 // requests that have not been served
	posting word.Mutex // held to post the next receive and, once target is shut, to withdraw it
	locks   []*remoteLock
}

// serve begins to serve.
func (s *windowCore) serve() {
	s.server.in.Notify = s.served
	s.listen()
}

// listen posts the receive of the next request.
func (s *windowCore) listen() {
	s.server.in.Begin()
	s.remote.core.bc.Irecv(&s.server.in, s.server.buf[:], backend.AnySource, requestTag)
}

// served is called when a request has arrived. If the next request is there already, listen calls served again, which
// leaves that request to the loop.
func (s *windowCore) served(*backend.Request) {
	if s.server.arrived.Add(1) == 1 {
		s.serveArrived(false)
	}
}

// serveMost is how many requests a goroutine of the program carries out at a time, which takes about a millisecond.
const serveMost = 16

// serveArrived carries out the requests that have arrived. mayWait says that the caller is a goroutine of its own.
func (s *windowCore) serveArrived(mayWait bool) {
	for n := 0; s.target.Enter(); n++ {
		err := s.server.in.Err
		switch {
		case err != nil:
		case !mayWait && n == word.Spins(serveMost):
			err = errWaits
		default:
			err = s.carryOut(s.server.in.Status, mayWait)
		}
		s.target.Leave()
		if err == errWaits {
			word.Go(func() { s.serveArrived(true) })
			return
		}
		if err != nil {
			if !allLeft(err) { // somebody may still send requests
				s.giveUp(err)
			}
			return
		}
		s.server.posting.Lock()
		if !s.target.IsShut() {
			s.listen() // served, if it is called here, returns at once
		}
		s.server.posting.Unlock()
		if s.server.arrived.Add(-1) == 0 {
			return
		}
	}
}

// giveUp ends the window on all ranks because of an error. No origin waits for an answer any more, and no goroutine in
// barrier. A loss ends the communicator without that.
func (s *windowCore) giveUp(err error) {
	if s.fail(err); s.target.IsShut() {
		return // this rank closes it
	}
	if b, ok := err.(*backend.Broken); ok {
		err = b.Cause
	}
	if s.remote != nil {
		s.remote.core.bc.Break(err)
	}
	if s.inBarrier.Load() && !isLoss(err) {
		s.core.bc.Break(err)
	}
}

// errWaits is the error of a request that needs a goroutine of its own. The request has done nothing yet.
var errWaits = errors.New("the request needs a goroutine of its own")

// carryOut carries out the request that has arrived.
func (s *windowCore) carryOut(st backend.Status, mayWait bool) error {
	part := &s.parts[s.core.rank]
	h, in, op := s.read(st.Bytes, len(part.All()))
	if h == nil {
		return fault(backend.ErrInternal, "rank %d sent %s an invalid request", st.Source, s.name)
	}
	if h.kind.forLock() {
		s.carryOutLock(h, st.Source)
		return nil
	}
	x := waiter{s, &s.target, until{bc: s.core.bc}}
	expired := x.expired
	if !mayWait {
		if op != nil && s.elem.Size > 8 && len(in) > s.elem.Size {
			return errWaits // it may have to wait for a later element than the first
		}
		expired = func() error { return errWaits }
	}
	if h.tag == 0 {
		return s.apply(part, h.kind, op, int(h.at), in, nil, expired)
	}
	m := s.messages.Get().(*message)
	out := m.buf[:min(h.n, requestMost)]
	switch {
	case h.kind == requestFlush:
		out = nil
	case h.kind == requestGet && h.n > 8:
		out = part.Bytes(int(h.at), int(h.n)) // read while it is sent
	default:
		if err := s.apply(part, h.kind, op, int(h.at), in, out, expired); err != nil {
			s.messages.Put(m)
			return err
		}
	}
	s.transmit(m, out, st.Source, int(h.tag))
	return nil
}

// transmit sends a message without waiting. m has the request and perhaps the memory. The caller is inside target or
// origin, or closes the window: release waits for target last.
func (s *windowCore) transmit(m *message, out []byte, rank, tag int) {
	s.target.Stay()
	m.req.Begin()
	s.remote.core.bc.Isend(&m.req, out, rank, tag, backend.Standard)
}

// transmitted is called when transmit has sent a message.
func (s *windowCore) transmitted(m *message) {
	s.messages.Put(m)
	s.target.Leave()
}
