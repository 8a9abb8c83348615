//go:build cgo && linux

package mpi

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// smallBytes is the total length up to which a collective's messages are all sent at once, so that
// a guarded library cannot overrun a buffer. It is half of the shortest message that Open MPI sends
// by rendezvous between processes.
const smallBytes = 2048

// eagerBytes returns smallBytes, or less where the environment lowers the eager limit of Open MPI, or of UCX, which Open MPI
// may use. Both the user and Settings.EagerLimit can do so.
func eagerBytes(environ []string) int {
	n := smallBytes
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if name == "UCX_RNDV_THRESH" || strings.HasPrefix(name, "OMPI_MCA_btl_") && strings.HasSuffix(name, "_eager_limit") {
			limit, err := strconv.ParseUint(strings.TrimSpace(value), 0, 31)
			if err != nil {
				return 0 // unknown
			}
			n = min(n, int(limit)/2)
		}
	}
	return n
}

// ringBytes is the length from which Open MPI never runs a short Allreduce as a ring
// (coll_tuned_decision_fixed.c of 4.1 and 5.0), unless it is tuned.
const ringBytes = 128

// isTuned reports whether the environment, with the variables of Settings.Tuning, has Open MPI choose other algorithms than
// its own rules do: those of its component tuned, or its component han. Some algorithms of tuned assume that every operation
// commutes, and with han some collectives of Open MPI 4 crash in place.
func isTuned(environ []string) bool {
	return slices.ContainsFunc(environ, func(v string) bool {
		name, value, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "OMPI_MCA_coll_tuned_") || strings.HasPrefix(name, "OMPI_MCA_coll_han_") ||
			name == "OMPI_MCA_coll" && strings.Contains(value, "han")
	})
}

// Collective implements backend.Collectives. It makes the library's call where nothing else is needed.
//
// Calls that the ranks have agreed on use ctl: messages that unchecked calls left behind on data cannot
// reach them, and messages of a call that other ranks did not make cannot be written past the end of a
// guarded buffer.
func (c *comm) Collective(b *backend.Bound, call *backend.Call) (backend.Plan, error) {
	if err := c.enter(); err != nil {
		return backend.PlanDone, err
	}
	defer c.leave()
	switch {
	case call.Agreed: // all ranks are there, so nobody waits for what only poll advances
		return backend.PlanDone, c.native(c.ctl, call)
	case c.p.job.agrees() || c.p.job.oneThread:
		return c.plan(call), nil
	case call.Err != nil:
		return backend.PlanDone, call.Err
	case c.p.job.polled || c.scheduled(call):
		return c.plan(call), nil
	}
	if c.guarded(call) {
		if call.Coll == backend.Bcast && c.size == 2 { // whatever holds on this rank alone
			return backend.PlanDone, c.message(b, call)
		}
		return c.plan(call), nil
	}
	if b.Limited() || c.p.engine.needsPoll() {
		return backend.PlanDone, c.limited(b, c.data, call)
	}
	return backend.PlanDone, c.native(c.data, call)
}

// message runs a Bcast of two ranks as one message. Its receive is guarded like any other.
func (c *comm) message(b *backend.Bound, call *backend.Call) error {
	tag := backend.DataTag(call.Seq)
	var st backend.Status
	var err error
	if c.rank == call.Root {
		err = c.Send(b, call.Recv, 1-c.rank, tag, backend.Standard)
	} else {
		st, err = c.Recv(b, call.Recv, call.Root, tag)
	}
	if c.rank != call.Root && (err == nil && st.Bytes != len(call.Recv) || backend.Code(err) == truncateCode) {
		err = backend.WrongLength(call.Type.Size, call.Root, st.Bytes, c.rank, len(call.Recv))
	}
	if err != nil {
		c.Break(err)
	}
	return err
}

// plan says how to make a call that the library does not make at once.
func (c *comm) plan(call *backend.Call) backend.Plan {
	switch {
	case !c.scheduled(call) && call.Coll != backend.Barrier:
		return backend.PlanAgree
	case c.p.job.agrees() || c.p.job.oneThread || c.guarded(call):
		return backend.PlanChecked
	}
	return backend.PlanSchedule
}

// guarded reports whether the ranks must agree on a call before the library makes it. That holds
// for long calls, whose receives may overrun, and for calls that wait for several messages at a
// time in memory of the library: after a message that is too long the library frees that memory,
// and then writes the next message into it. Two ranks exchange one message at a time.
func (c *comm) guarded(call *backend.Call) bool {
	if !c.p.lib.guard || c.size == 1 || call.Coll == backend.Barrier {
		return false
	}
	n := c.bytes(call)
	switch {
	case n > c.p.job.small:
		return true
	case c.scheduled(call): // its receives are guarded one by one
		return false
	case c.size == 2:
		return false
	case call.Form != backend.Blocking:
		return true
	}
	switch call.Coll {
	case backend.Bcast: // received in the caller's memory, which is not freed
		return false
	case backend.Allreduce: // a ring, if it is very short and has an element for each rank
		return c.p.job.tuned || call.Count >= c.size && n < ringBytes
	}
	return true
}

// bytes returns the length of the longest message that a call can send. It is the same on all
// ranks.
func (c *comm) bytes(call *backend.Call) int {
	n := call.Count * call.Type.Size
	switch call.Coll {
	case backend.Gather, backend.Allgather, backend.Scatter, backend.Alltoall, backend.ReduceScatterBlock:
		n *= c.size
	}
	return n
}

// scheduled reports whether a call must not use the library's collective. It is the same on all
// ranks.
func (c *comm) scheduled(call *backend.Call) bool {
	p := c.p
	switch {
	case call.Coll.Neighbor():
		return true
	case c.size == 1:
		return true // MPICH treats displacements differently there
	case call.Coll == backend.Barrier:
		return p.job.polled
	case p.job.polled || !p.lib.colls[call.Coll].native:
		return true
	case call.Op != nil && (p.job.deterministic || p.job.tuned && !call.Op.Commutative):
		return true
	case call.Form != backend.Blocking && !p.lib.colls[call.Coll].long && c.bytes(call) > math.MaxInt32:
		return true
	}
	switch call.Coll {
	case backend.Gatherv, backend.Scatterv, backend.Alltoallv:
		// Only pairs of ranks know the lengths and displacements, so the ranks cannot all see
		// whether one is too long for a guarded library or for an int.
		return p.lib.guard || !p.lib.large || p.job.agrees()
	}
	return call.Count > math.MaxInt32 && (!p.lib.large || call.Op != nil && p.ops.needsCallback(call.Op))
}

// native makes the library's blocking call.
func (c *comm) native(on libmpi.Comm, call *backend.Call) error {
	c.calls.Add(1)
	c.p.rest(len(call.Send) + len(call.Recv))
	if code, made := c.frequent(on, call); made {
		return c.ended(code, call, call.Send)
	}
	a := &c.call
	if err := c.translate(call, a); err != nil {
		return err
	}
	if !a.Callback {
		code, send := on.Collective(a), a.Send
		*a = libmpi.Coll{}
		return c.ended(code, call, send)
	}
	return c.withUser(on, call, a)
}

// frequent makes the library's call if it is one of the most frequent, which have little overhead.
func (c *comm) frequent(on libmpi.Comm, call *backend.Call) (code libmpi.Code, made bool) {
	if len(call.Recv) == 0 || len(call.Recv) > math.MaxInt32 {
		return 0, false
	}
	t := c.p.types.number(call.Type)
	switch {
	case t == 0:
	case call.Coll == backend.Bcast:
		return on.Bcast(call.Recv, call.Count, t, call.Root), true
	case call.Coll == backend.Allreduce && (!call.InPlace || c.p.lib.colls[call.Coll].inPlace[call.Form]):
		if op := c.p.ops.native(call.Op); op != 0 {
			return on.Allreduce(call.Send, call.Recv, call.Count, t, op), true
		}
	case call.Coll == backend.Allgatherv && !call.InPlace && len(call.Send) > 0 && c.size <= libmpi.VInts:
		return on.Allgatherv(call.Send, call.Recv, call.RecvCounts[c.rank], call.RecvCounts, call.RecvDispls, t), true
	}
	return 0, false
}

// ended returns the outcome of the library's collective. After an error the ranks no longer agree
// on where they are, so it breaks the communicator. send is the memory that the library sends from.
func (c *comm) ended(code libmpi.Code, call *backend.Call, send []byte) error {
	if code == 0 {
		return nil
	}
	c.miscounts.Store(true)
	err := c.fault(code)
	c.p.keep(send, call.Recv)
	if s := backend.Sentinel(backend.Code(err)); s == backend.ErrTruncate && c.p.job.checked() {
		err = backend.Faultf(backend.ErrMismatch, "the ranks' lengths of %v differ: %v", call.Coll, err)
	}
	c.Break(err)
	return err
}

// copiedMost is the length up to which a communicator keeps the memory of a copy for its next blocking collective.
const copiedMost = 64 << 10

// input returns what this rank contributes to a call that it makes in place.
func (c *comm) input(call *backend.Call) []byte {
	switch call.Coll {
	case backend.Allgather:
		n := call.Count * call.Type.Size
		return call.Recv[c.rank*n:][:n]
	case backend.Allgatherv:
		return call.Recv[call.RecvDispls[c.rank]*call.Type.Size:][:call.RecvCounts[c.rank]*call.Type.Size]
	}
	return call.Recv
}

// copyInput returns a copy of the input of a call in place.
func (c *comm) copyInput(call *backend.Call) []byte {
	in := c.input(call)
	if call.Form != backend.Blocking || len(in) > copiedMost {
		return append([]byte(nil), in...)
	}
	c.copied = append(c.copied[:0], in...)
	return c.copied
}

// translate fills in the library's call.
func (c *comm) translate(call *backend.Call, a *libmpi.Coll) error {
	*a = libmpi.Coll{
		Coll: int(call.Coll), Form: int(call.Form), InPlace: call.InPlace, Send: call.Send, Recv: call.Recv, Count: call.Count,
		SendCounts: call.SendCounts, SendDispls: call.SendDispls, RecvCounts: call.RecvCounts, RecvDispls: call.RecvDispls,
		Root: max(call.Root, 0), Size: c.size,
	}
	if call.Type == nil {
		return nil
	}
	if a.InPlace && !c.p.lib.colls[call.Coll].inPlace[call.Form] {
		a.InPlace, a.Send = false, c.copyInput(call)
		if call.Coll == backend.Alltoallv {
			a.SendCounts, a.SendDispls = a.RecvCounts, a.RecvDispls
		}
	}
	switch call.Coll {
	case backend.Gatherv:
		a.Count = len(call.Send) / call.Type.Size
	case backend.Scatterv:
		a.Count = len(call.Recv) / call.Type.Size
	case backend.Allgatherv:
		a.Count = call.RecvCounts[c.rank]
	}
	var err error
	if call.Op == nil {
		a.Type, err = c.p.types.of(call.Type)
		return err
	}
	if a.Op = c.p.ops.native(call.Op); a.Op != 0 {
		a.Type = c.p.types.kinds[call.Type.Kind]
		return nil
	}
	a.Callback = true
	a.Type, err = c.p.types.bytes(call.Type.Size)
	return err
}

// userCall is a blocking call whose operation is a Go function.
type userCall struct {
	apply    func(dst, a, b []byte)
	guarded  func(in, inout []byte) // calls apply; made once
	panicked atomic.Pointer[string]
}

// withUser makes a blocking call whose operation is a Go function.
func (c *comm) withUser(on libmpi.Comm, call *backend.Call, a *libmpi.Coll) error {
	if c.user.guarded == nil {
		// A panic must not unwind through the library.
		c.user.guarded = func(in, inout []byte) {
			defer func() {
				if p := recover(); p != nil {
					text := "the operation's function " + backend.Panicked(p)
					c.user.panicked.CompareAndSwap(nil, &text)
				}
			}()
			c.user.apply(inout, in, inout)
		}
	}
	c.user.apply = call.Op.Apply
	op, err := c.p.ops.take(call.Op, c.user.guarded)
	if err != nil {
		return err
	}
	a.Op = op.handle
	code, send := on.Collective(a), a.Send
	*a = libmpi.Coll{}
	c.p.ops.give(op)
	if text := c.user.panicked.Swap(nil); text != nil {
		err := &backend.Fault{Sentinel: backend.ErrOp, Text: *text}
		c.Break(err)
		return err
	}
	return c.ended(code, call, send)
}

// limited makes the library's blocking call in a goroutine, so that this rank can return early.
// Only a blocking call matches those of the other ranks, which may have no limit. If the time is up
// the goroutine stays in the call. Calls that begin while needsPoll is true do the same.
func (c *comm) limited(b *backend.Bound, on libmpi.Comm, call *backend.Call) error {
	own := *call
	for _, n := range []*[]int{&own.SendCounts, &own.SendDispls, &own.RecvCounts, &own.RecvDispls} {
		*n = slices.Clone(*n) // the library may read them after this returns, when the caller may change its own
	}
	done := make(chan error, 1)
	c.late.Lock()
	c.aside(func() {
		defer c.late.Unlock()
		done <- c.native(on, &own)
	})
	w := newWait(b)
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		c.Poll()
		if late := w.pause(c); late != nil {
			select {
			case err := <-done:
				return err
			default:
			}
			c.Break(late)
			return late
		}
		if err := c.usable(); err != nil {
			if s := c.broken.Load(); s != nil {
				err = s
			}
			select {
			case err := <-done: // the error that broke it
				return err
			case <-time.After(backend.Grace):
			}
			return err
		}
	}
}

// aside calls f in a goroutine, which may stay in the library when the caller has given up. The caller is inside the gate.
func (c *comm) aside(f func()) {
	c.gate.Stay()
	c.p.engine.stuck.Add(1)
	go func() {
		f()
		c.p.engine.stuck.Add(-1)
		c.leave()
	}()
}
