package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// The functions of a collective store their arguments in a backend.Call, which package internal/comm
// checks and makes. It reports an error that is in the call already.

// begin returns the communicator's Call for a blocking collective.
func (c *Comm) begin(coll backend.Coll, root int) *backend.Call { return c.base().Begin(coll, root) }

// run makes the call from begin.
func (c *Comm) run(call *backend.Call) error { return c.base().Run(call, 0) }

// runAppend makes the call from begin, and appends what the rank receives to dst.
func runAppend[T any](c *Comm, call *backend.Call, dst []T) (recv []T, counts []int, err error) {
	recv = dst
	counts, err = c.base().RunAppend(call, func(n int) []byte {
		recv = extend(dst, n)
		return bytesOf(recv[len(dst):])
	})
	if err != nil {
		return dst, nil, err
	}
	return recv, counts, nil
}

// newCall returns a Call for the nonblocking and persistent forms, which copy it.
func newCall(coll backend.Coll, root int) *backend.Call { return &backend.Call{Coll: coll, Root: root} }

func (c *Comm) start(call *backend.Call) (*Request, error) { return request(c.base().Start(call)) }

func (c *Comm) persist(call *backend.Call) (*Persistent, error) {
	return persistent(c.base().Persist(call))
}

func request(q *comm.Request, err error) (*Request, error) { return (*Request)(q), err }

func persistent(p *comm.Persistent, err error) (*Persistent, error) { return (*Persistent)(p), err }

// data stores the buffers of a call that only moves them.
func data[T any](call *backend.Call, send, recv []T) *backend.Call {
	call.Send, call.Recv, call.Count = bytesOf(send), bytesOf(recv), len(send)
	if call.Err == nil {
		call.Type, call.Err = typeFor[T]()
	}
	return call
}

// reduction stores the buffers and the operation of a reduction.
func reduction[T Reducible](call *backend.Call, send, recv []T, op Op) *backend.Call {
	call.Send, call.Recv, call.Count = bytesOf(send), bytesOf(recv), len(send)
	if call.Err == nil {
		if call.Op, call.Err = opFor[T](op); call.Err == nil {
			call.Type = call.Op.Type
		}
	}
	return call
}

func sendParts(call *backend.Call, counts, displs []int) *backend.Call {
	call.SendCounts, call.SendDispls = counts, displs
	return call
}

func recvParts(call *backend.Call, counts, displs []int) *backend.Call {
	call.RecvCounts, call.RecvDispls = counts, displs
	return call
}

// none is a buffer of no elements that is not nil.
var none = make([]byte, 0)

// bytesOf is view.Bytes, except that it distinguishes empty slices from nil, as the checks do.
func bytesOf[T any](s []T) []byte {
	if len(s) == 0 && s != nil {
		return none
	}
	return view.Bytes(s)
}
