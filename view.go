package cohort

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// View is the elements of a slice that a [Layout] chooses: what the operations below send from and receive
// into. It stays valid as long as the slice, whose content it does not copy.
//
// A message does not know how its elements lie in memory: [Recv] can receive what [SendView] sends, and two
// views of different layouts can exchange messages if they have equally many elements. Contiguous views are
// sent without a copy, others through memory that is kept for the next ones.
type View[T any] struct {
	buf    []T
	layout Layout
}

// ViewOf returns the view of the elements of buf that a layout chooses.
//
// Local.
//
// Errors: [ErrBuffer] for a layout that is not inside buf, and the errors of the layout, from the
// operations on the view.
func ViewOf[T any](buf []T, l Layout) View[T] {
	if l.err == nil && !l.fits(len(buf)) {
		l = Layout{err: fault(ErrBuffer, fmt.Sprintf("the layout is not inside the %d elements of the slice", len(buf)))}
	}
	return View[T]{buf, l}
}

// Len returns the number of elements.
func (v View[T]) Len() int { return v.layout.n }

// Pack copies the elements of the view to dst, one after the other.
//
// Local.
//
// Errors: [ErrCount] if dst is shorter than the view; those of [ViewOf].
func (v View[T]) Pack(dst []T) error { return v.copy("pack", dst, false) }

// Unpack copies src to the elements of the view, of which the last keep their content if src is shorter.
//
// Local.
//
// Errors: [ErrCount] if src is longer than the view; those of [ViewOf].
func (v View[T]) Unpack(src []T) error { return v.copy("unpack", src, true) }

func (v View[T]) copy(op string, packed []T, back bool) error {
	err := v.layout.err
	switch {
	case err != nil:
	case back:
		if len(packed) > v.Len() {
			err = fault(ErrCount, fmt.Sprintf("%d elements for a view of %d", len(packed), v.Len()))
		}
	case len(packed) < v.Len():
		err = fault(ErrCount, fmt.Sprintf("room for %d elements of a view of %d", len(packed), v.Len()))
	}
	if err != nil {
		return &OpError{Op: op, Rank: Undefined, Peer: Undefined, Tag: Undefined, Err: err}
	}
	move(&v.layout, packed, v.buf, back)
	return nil
}

// contiguous returns the elements of a view of which all follow each other.
func (v View[T]) contiguous() ([]T, bool) {
	l := &v.layout
	if l.err != nil || l.lens != nil || len(l.dims) > 0 {
		return nil, l.err == nil && l.n == 0
	}
	return v.buf[l.offset : l.offset+l.n], true
}

// packed returns the elements of the view, and pooled memory to put back if it had to copy them.
func (v View[T]) packed() ([]T, *[]uint64) {
	if s, ok := v.contiguous(); ok || v.layout.err != nil {
		return s, nil
	}
	p, buf := scalar[T](v.Len())
	move(&v.layout, buf, v.buf, false) // nothing, if T cannot be sent
	return buf, p
}

// room returns memory for receiving into a view: its elements, or pooled memory to unpack.
func (v View[T]) room() ([]T, *[]uint64) {
	if s, ok := v.contiguous(); ok || v.layout.err != nil {
		return s, nil
	}
	p, buf := scalar[T](v.Len())
	return buf, p
}

// received unpacks the first bytes of room's memory, and puts it back.
func (v View[T]) received(buf []T, p *[]uint64, st backend.Status) {
	if p != nil {
		move(&v.layout, buf[:st.Bytes/view.Size[T]()], v.buf, true)
		scalars.Put(p)
	}
}

// viewType returns the Datatype of T, or the error of an argument.
func viewType[T any](bad error) (*backend.Datatype, error) {
	typ, err := typeFor[T]()
	if err == nil {
		err = bad
	}
	return typ, err
}

// SendView sends the elements of a view, as [Send] sends a slice.
//
// Local: the caller and dest take part.
//
// Errors: those of Send and [ViewOf].
//
// Deadline: as for Send.
func SendView[T any](c *Comm, v View[T], dest, tag int) error {
	typ, err := viewType[T](v.layout.err)
	buf, p := v.packed()
	err = c.base().Send("sendview", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
	if err == nil && p != nil { // else dest may still read it
		scalars.Put(p)
	}
	return err
}

// IsendView is the nonblocking form of [SendView]. The elements of the view must not be written until the
// request is complete.
func IsendView[T any](c *Comm, v View[T], dest, tag int) (*Request, error) {
	typ, err := viewType[T](v.layout.err)
	buf, ok := v.contiguous()
	if !ok && err == nil {
		buf = make([]T, v.Len()) // freed with the request
		move(&v.layout, buf, v.buf, false)
	}
	return request(c.base().Isend("isendview", typ, view.Bytes(buf), dest, tag, backend.Standard, err))
}

// RecvView receives a message into the elements of a view, as [Recv] receives into a slice. The other
// elements of the slice keep their content. If the message is too long the view does too.
//
// Local: the caller and source take part.
//
// Errors: those of Recv and [ViewOf].
//
// Deadline: as for Recv.
func RecvView[T any](c *Comm, v View[T], source, tag int) (Status, error) {
	typ, err := viewType[T](v.layout.err)
	buf, p := v.room()
	st, err := c.base().Recv("recvview", typ, view.Bytes(buf), source, tag, err)
	if err == nil {
		v.received(buf, p, st)
	}
	return status(st, err)
}

// IrecvView is the nonblocking form of [RecvView]. The elements of the view must not be used until Wait or
// Test reports that the request is complete. It cannot be canceled.
func IrecvView[T any](c *Comm, v View[T], source, tag int) (*Request, error) {
	typ, err := viewType[T](v.layout.err)
	buf, ok := v.contiguous()
	var unpack func(backend.Status)
	if !ok && err == nil {
		buf = make([]T, v.Len())
		unpack = func(st backend.Status) { move(&v.layout, buf[:st.Bytes/typ.Size], v.buf, true) }
	}
	return request(c.base().IrecvThen("irecvview", typ, view.Bytes(buf), source, tag, unpack, err))
}

// SendrecvView sends the elements of one view to dest and receives those of another from source at the same
// time, as [Sendrecv] does for slices. Views that are not contiguous may overlap, and may be the same.
//
// Local: the caller, dest and source take part.
//
// Errors: those of Sendrecv and [ViewOf].
//
// Deadline: as for Sendrecv.
func SendrecvView[T any](c *Comm, send View[T], dest, sendTag int, recv View[T], source, recvTag int) (Status, error) {
	bad := send.layout.err
	if bad == nil {
		bad = recv.layout.err
	}
	typ, err := viewType[T](bad)
	out, p := send.packed()
	in, q := recv.room()
	st, err := c.base().Sendrecv(typ, view.Bytes(out), dest, sendTag, view.Bytes(in), source, recvTag, err)
	if err != nil {
		return status(st, err)
	}
	if p != nil {
		scalars.Put(p)
	}
	recv.received(in, q, st)
	return status(st, nil)
}

// AlltoallView sends the elements of send[j] of rank i to rank j, which stores them in the elements of its
// recv[i] (MPI_Alltoallw, with elements of one type). The two views have equally many elements.
//
// Collective: all ranks of c call it with the same type.
//
// Buffers: send and recv have one view per rank. The views of recv do not overlap each other. They may
// overlap those of send, which are read before.
//
// Errors: [ErrCount], [ErrBuffer], [ErrType] and those of [ViewOf] for wrong arguments.
func AlltoallView[T any](c *Comm, send, recv []View[T]) error {
	scounts, sdispls, ns, bad := partsOf(c, "send", send)
	rcounts, rdispls, nr, err := partsOf(c, "recv", recv)
	if bad == nil {
		bad = err
	}
	call := c.begin(backend.Alltoallv, -1)
	if bad != nil {
		ns, nr = 0, 0
	}
	p, out := scalar[T](ns)
	q, in := scalar[T](nr)
	if bad == nil && out != nil {
		for i := range send {
			move(&send[i].layout, out[sdispls[i]:], send[i].buf, false)
		}
	}
	call = recvParts(sendParts(data(call, out, in), scounts, sdispls), rcounts, rdispls)
	if call.Err == nil {
		call.Err = bad
	}
	if err := c.run(call); err != nil {
		return err
	}
	for i := range recv {
		move(&recv[i].layout, in[rdispls[i]:][:rcounts[i]], recv[i].buf, true)
	}
	scalars.Put(p)
	scalars.Put(q)
	return nil
}

// partsOf returns how many elements each view has, where they are when all are packed, and how many there
// are.
func partsOf[T any](c *Comm, name string, views []View[T]) (counts, displs []int, n int, err error) {
	if len(views) != c.Size() {
		return nil, nil, 0, fault(ErrCount, fmt.Sprintf("%s has %d views, want %d, one per rank", name, len(views), c.Size()))
	}
	counts, displs = make([]int, len(views)), make([]int, len(views))
	for i := range views {
		if err == nil {
			err = views[i].layout.err
		}
		counts[i], displs[i] = views[i].Len(), n
		n += counts[i]
	}
	return counts, displs, n, err
}
