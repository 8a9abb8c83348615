//go:build cgo

package libmpi

/*
#cgo noescape coh_call_send
#cgo nocallback coh_call_send
#cgo noescape coh_call_recv
#cgo nocallback coh_call_recv
#cgo noescape coh_call_recv_guarded
#cgo nocallback coh_call_recv_guarded
#cgo noescape coh_call_isend
#cgo nocallback coh_call_isend
#cgo noescape coh_call_irecv
#cgo nocallback coh_call_irecv
#cgo noescape coh_call_imrecv
#cgo nocallback coh_call_imrecv
#cgo noescape coh_call_probe
#cgo nocallback coh_call_probe
#cgo noescape coh_call_mprobe
#cgo nocallback coh_call_mprobe
#cgo noescape coh_call_take
#cgo nocallback coh_call_take
#cgo noescape coh_call_testsome
#cgo nocallback coh_call_testsome
#cgo noescape coh_call_exchange
#cgo nocallback coh_call_exchange
#cgo noescape coh_call_cancel
#cgo nocallback coh_call_cancel
#cgo noescape coh_call_start
#cgo nocallback coh_call_start
#cgo noescape coh_call_coll
#cgo nocallback coh_call_coll
#cgo noescape coh_call_bcast
#cgo nocallback coh_call_bcast
#cgo noescape coh_call_allgatherv
#cgo nocallback coh_call_allgatherv
#cgo noescape coh_call_allreduce
#cgo nocallback coh_call_allreduce
#include "calls.h"
*/
import "C"

import (
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
)

// Status describes a received or probed message. Its layout is that of coh_status.
type Status struct {
	Source, Tag int32
	Bytes       int64 // -1: not known
	Error       Code
	Flag        int32 // 0: not complete, nothing found; 2: canceled
}

// This does not compile unless the sizes are equal.
var _ = [1]struct{}{}[unsafe.Sizeof(Status{})-unsafe.Sizeof(C.coh_status{})]

func (st *Status) c() *C.coh_status { return (*C.coh_status)(unsafe.Pointer(st)) }

// data returns a buffer's address, nil for an empty one: its address may be that of another buffer.
func data(b []byte) *C.uint8_t {
	if len(b) == 0 {
		return nil
	}
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(b)))
}

func counts(n []int) *C.int64_t { return (*C.int64_t)(unsafe.Pointer(unsafe.SliceData(n))) }

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// Send sends buf. Tags are cohort's, from 0 to the largest.
func (c Comm) Send(buf []byte, dest, tag int, mode backend.Mode) Code {
	var code C.int
	enter()
	C.coh_call_send(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(dest), C.int(tag), flag(mode.Synchronous), &code)
	leave()
	return Code(code)
}

// Recv receives into buf. Source and tag may be package backend's AnySource and AnyTag.
func (c Comm) Recv(buf []byte, source, tag int, st *Status) Code {
	enter()
	C.coh_call_recv(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), st.c())
	leave()
	return st.Error
}

// RecvGuarded is Recv for libraries that write past the end of the buffer if a message is longer.
func (c Comm) RecvGuarded(buf []byte, source, tag int, st *Status) Code {
	enter()
	C.coh_call_recv_guarded(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), st.c())
	leave()
	return st.Error
}

// Isend starts a send; st.Flag reports whether it is complete already. If not, the caller pins buf.
func (c Comm) Isend(buf []byte, dest, tag int, mode backend.Mode, req *Request, st *Status) Code {
	enter()
	code := Code(C.coh_call_isend(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(dest), C.int(tag), flag(mode.Synchronous),
		cell(req), st.c()))
	leave()
	return code
}

// Irecv starts a receive; st.Flag reports whether it is complete already. If not, the caller pins buf.
func (c Comm) Irecv(buf []byte, source, tag int, req *Request, st *Status) Code {
	enter()
	code := Code(C.coh_call_irecv(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(source), C.int(tag),
		cell(req), st.c()))
	leave()
	return code
}

// Imrecv starts the receive of a message that is not longer than buf, which the caller pins.
func (m *Message) Imrecv(buf []byte, req *Request, st *Status) Code {
	enter()
	code := Code(C.coh_call_imrecv(cell(m), data(buf), C.int64_t(len(buf)), cell(req), st.c()))
	leave()
	return code
}

// Probe waits for a message.
func (c Comm) Probe(source, tag int, st *Status) Code { return c.probe(source, tag, true, st) }

// Iprobe looks for a message; st.Flag reports whether there is one.
func (c Comm) Iprobe(source, tag int, st *Status) Code { return c.probe(source, tag, false, st) }

func (c Comm) probe(source, tag int, block bool, st *Status) Code {
	enter()
	code := Code(C.coh_call_probe(C.uintptr_t(c), C.int(source), C.int(tag), flag(block), st.c()))
	leave()
	return code
}

// Mprobe waits for a message and removes it from the queues.
func (c Comm) Mprobe(source, tag int, m *Message, st *Status) Code {
	return c.mprobe(source, tag, true, m, st)
}

// Improbe looks for a message; st.Flag reports whether there is one, and then it is removed from the queues.
func (c Comm) Improbe(source, tag int, m *Message, st *Status) Code {
	return c.mprobe(source, tag, false, m, st)
}

func (c Comm) mprobe(source, tag int, block bool, m *Message, st *Status) Code {
	enter()
	code := Code(C.coh_call_mprobe(C.uintptr_t(c), C.int(source), C.int(tag), flag(block), cell(m), st.c()))
	leave()
	return code
}

// Take is Improbe, followed by Imrecv if the message is not longer than buf. It returns whether there is
// a message, which is in *m if it is longer.
func (c Comm) Take(buf []byte, source, tag int, m *Message, req *Request, st *Status) (taken bool, code Code) {
	var got C.int
	enter()
	code = Code(C.coh_call_take(C.uintptr_t(c), data(buf), C.int64_t(len(buf)), C.int(source), C.int(tag), &got, cell(m), cell(req), st.c()))
	leave()
	return got != 0, code
}

// Testsome finds the requests that are complete: their indexes and statuses, for which at and st
// have room. While there are none it tries again, at most spins times in all. Complete requests
// become null, persistent ones inactive.
func Testsome(reqs []Request, spins int, at []int32, st []Status) (done int, code Code) {
	if len(reqs) == 0 {
		return 0, 0
	}
	_, _ = at[len(reqs)-1], st[len(reqs)-1]
	var n C.int
	enter()
	code = Code(C.coh_call_testsome(C.int(len(reqs)), (*C.uintptr_t)(unsafe.Pointer(unsafe.SliceData(reqs))), C.int(spins), &n,
		(*C.int)(unsafe.SliceData(at)), st[0].c()))
	leave()
	return int(n), code
}

// Exchange starts a receive into in and a send of out, and waits a little for both. req and st are those of the receive
// and of the send; a status's Flag reports whether it is complete, and Error why it has failed. The caller pins the
// buffers of those that are not complete. With a code neither has begun.
func (c Comm) Exchange(out []byte, dest int, in []byte, source, tag, spins int, req *[2]Request, st *[2]Status) Code {
	enter()
	code := Code(C.coh_call_exchange(C.uintptr_t(c), data(out), C.int(len(out)), C.int(dest), data(in), C.int(len(in)), C.int(source),
		C.int(tag), C.int(spins), cell(&req[0]), st[0].c()))
	leave()
	return code
}

// Cancel marks a request for cancellation.
func (q *Request) Cancel() Code {
	enter()
	defer leave()
	return Code(C.coh_call_cancel(cell(q)))
}

// Start starts a persistent request.
func (q *Request) Start() Code {
	enter()
	code := Code(C.coh_call_start(cell(q)))
	leave()
	return code
}

// Free releases a persistent request that is not active.
func (q *Request) Free() Code {
	enter()
	defer leave()
	return Code(C.coh_call_free_request(cell(q)))
}

// Coll is a collective call in the library's terms. Coll and Form have package backend's numbers.
type Coll struct {
	Coll, Form                                     int
	InPlace                                        bool
	Send, Recv                                     []byte
	Count                                          int // elements; in a v-form, those of the part without counts
	SendCounts, SendDispls, RecvCounts, RecvDispls []int
	Type                                           Type
	Op                                             Op
	Callback                                       bool // the operation is one of NewOp
	Root, Size                                     int
}

// Collective makes a blocking collective call.
func (c Comm) Collective(a *Coll) Code {
	enter()
	defer leave()
	if a.Callback {
		return Code(C.coh_callback_coll(C.int(a.Coll), 0, flag(a.InPlace), data(a.Send), data(a.Recv), C.int64_t(a.Count),
			counts(a.SendCounts), counts(a.SendDispls), counts(a.RecvCounts), counts(a.RecvDispls),
			C.uintptr_t(a.Type), C.uintptr_t(a.Op), C.int(a.Root), C.int(a.Size), C.uintptr_t(c), nil))
	}
	return Code(C.coh_call_coll(C.int(a.Coll), 0, flag(a.InPlace), data(a.Send), data(a.Recv), C.int64_t(a.Count),
		counts(a.SendCounts), counts(a.SendDispls), counts(a.RecvCounts), counts(a.RecvDispls),
		C.uintptr_t(a.Type), C.uintptr_t(a.Op), C.int(a.Root), C.int(a.Size), C.uintptr_t(c), nil))
}

// Begin makes a nonblocking or persistent collective call. The caller pins buffers and counts. If
// the call has counts, narrow has room for 4·Size numbers until the operation is complete.
func (c Comm) Begin(a *Coll, narrow []int32, req *Request) Code {
	*req = Request(uintptr(unsafe.Pointer(unsafe.SliceData(narrow))))
	enter()
	defer leave()
	return Code(C.coh_call_coll(C.int(a.Coll), C.int(a.Form), flag(a.InPlace), data(a.Send), data(a.Recv), C.int64_t(a.Count),
		counts(a.SendCounts), counts(a.SendDispls), counts(a.RecvCounts), counts(a.RecvDispls),
		C.uintptr_t(a.Type), C.uintptr_t(a.Op), C.int(a.Root), C.int(a.Size), C.uintptr_t(c), cell(req)))
}

// Bcast makes the collective with little overhead: from 1 to 2^31-1 elements.
func (c Comm) Bcast(buf []byte, count int, t Type, root int) Code {
	var code C.int
	enter()
	C.coh_call_bcast(data(buf), C.int64_t(count), C.uintptr_t(t), C.int(root), C.uintptr_t(c), &code)
	leave()
	return Code(code)
}

// VInts is the maximum number of counts of Allgatherv.
const VInts = C.COH_V_INTS

// Allgatherv makes the collective with little overhead: not in place, no buffer is empty, and recv
// has less than 2^31 bytes.
func (c Comm) Allgatherv(send, recv []byte, own int, recvCounts, displs []int, t Type) Code {
	var code C.int
	enter()
	C.coh_call_allgatherv(data(send), C.int64_t(own), data(recv), counts(recvCounts), counts(displs), C.int(len(recvCounts)),
		C.uintptr_t(t), C.uintptr_t(c), &code)
	leave()
	return Code(code)
}

// Allreduce makes the collective with little overhead: elements of a predefined type, at most
// 2^31-1, and nil as send for in place.
func (c Comm) Allreduce(send, recv []byte, count int, t Type, op Op) Code {
	var code C.int
	enter()
	C.coh_call_allreduce(data(send), data(recv), C.int64_t(count), C.uintptr_t(t), C.uintptr_t(op), C.uintptr_t(c), &code)
	leave()
	return Code(code)
}

func cell[H ~uintptr](h *H) *C.uintptr_t { return (*C.uintptr_t)(unsafe.Pointer(h)) }
