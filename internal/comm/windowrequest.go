package comm

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
)

// windowRequest begins a message to the server of a window. The data follow.
type windowRequest struct {
	kind   requestKind
	op     backend.OpCode // of requestAccumulate
	lock   window.Kind    // of a request for a lock
	tag    int32          // of the answer; 0: no answer
	at     uint64         // offset in the part, in bytes
	n      uint64         // length of the answer to an access, in bytes
	ticket uint64         // of a request for a lock
}

// requestKind is what a request asks for.
//
//	kind                   data              answer
//	requestPut             elements          none
//	requestGet             none              elements
//	requestAccumulate      operands          the old elements, or none
//	requestCompareAndSwap  expected and new  the old element
//	requestFlush           none              empty, once all earlier requests are done
//	requestTryLock         none              0, or the state that excludes the lock
//	requestWaitLock        none              empty, once the rank has the lock
//	requestUnlock          none              none
type requestKind uint8

const (
	requestPut requestKind = iota + 1
	requestGet
	requestAccumulate
	requestCompareAndSwap
	requestFlush
	requestTryLock
	requestWaitLock
	requestUnlock
)

// forLock reports whether the request is one for a lock.
func (k requestKind) forLock() bool { return k >= requestTryLock && k <= requestUnlock }

// requestOf is the request for each kind of access.
var requestOf = [...]requestKind{
	flight.Put: requestPut, flight.Get: requestGet, flight.CompareAndSwap: requestCompareAndSwap,
	flight.Accumulate: requestAccumulate, flight.GetAccumulate: requestAccumulate, flight.FetchAndOp: requestAccumulate,
}

const (
	requestTag  = 0
	requestMost = 64 << 10 // bytes of the longest message, which takes no rendezvous on any link
)

var requestSize = view.Size[windowRequest]()

// read returns the request in a message, with its data and operation. It returns nil for a request that no rank sends.
func (s *windowCore) read(size, room int) (h *windowRequest, in []byte, op *backend.Op) {
	if size < requestSize {
		return nil, nil, nil
	}
	h = &view.Of[windowRequest](s.server.buf[:])[0]
	in = s.server.buf[requestSize:size]
	n, elem := uint64(len(in)), uint64(s.elem.Size)
	fits := h.at <= uint64(room)
	answered := h.tag > 0
	switch h.kind {
	case requestPut:
		fits = fits && !answered
	case requestGet:
		n = h.n
		fits = fits && answered
	case requestCompareAndSwap:
		n = h.n
		fits = fits && 2*n == uint64(len(in)) && answered && n == elem
	case requestAccumulate:
		op = datatype.Op(h.op, s.elem)
		fits = fits && op != nil && n%elem == 0 && h.at%elem == 0
		h.n = n
	case requestFlush:
		n = 0
		fits = fits && answered
	case requestTryLock, requestWaitLock, requestUnlock:
		n = 0
		fits = answered == (h.kind != requestUnlock) && (h.lock == window.Shared || h.lock == window.Exclusive)
	default:
		fits = false
	}
	if !fits || h.tag < 0 || n > uint64(room)-h.at {
		return nil, nil, nil
	}
	return h, in, op
}
