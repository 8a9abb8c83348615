package cohort

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// View is the elements of a slice that a [Layout] chooses. [SendView], [RecvView] and others send from views and
// receive into them. A view refers to its slice and copies nothing.
//
// A message does not know how its elements lie in memory: [Recv] can receive what [SendView] sends, and two
// views of different layouts can exchange messages if they have equally many elements. A contiguous view is
// sent without a copy. Any other is packed into memory that later messages use again. On shm and tcp, ranks that
// have a processor each pack and unpack a message above 64 KiB piece by piece while it is sent.
type View[T any] struct {
	buf    []T
	layout Layout
}

// ViewOf returns the view of the elements of buf that a layout chooses.
//
// Not collective.
//
// Errors: operations on the view return [ErrBuffer] if the layout is not inside buf, and the errors of the
// layout.
func ViewOf[T any](buf []T, l Layout) View[T] {
	if l.err == nil && !l.fits(len(buf)) {
		l = Layout{err: fault(ErrBuffer, fmt.Sprintf("the layout needs elements beyond the %d of the slice", len(buf)))}
	}
	return View[T]{buf, l}
}

// Len returns the number of elements.
func (v View[T]) Len() int { return v.layout.n }

// Pack copies the elements of the view to dst, one after the other.
//
// Not collective; errors: [ErrCount] if dst is shorter than the view; those of [ViewOf].
func (v View[T]) Pack(dst []T) error { return v.copy("pack", dst, false) }

// Unpack copies src to the elements of the view. If src is shorter, the last elements keep their content.
//
// Not collective; errors: [ErrCount] if src is longer than the view; those of [ViewOf].
func (v View[T]) Unpack(src []T) error { return v.copy("unpack", src, true) }

func (v View[T]) copy(op string, packed []T, back bool) error {
	err := v.layout.err
	switch {
	case err != nil:
	case back:
		if len(packed) > v.Len() {
			err = fault(ErrCount, fmt.Sprintf("src has %d elements, want at most %d, those of the view", len(packed), v.Len()))
		}
	case len(packed) < v.Len():
		err = fault(ErrCount, fmt.Sprintf("dst has %d elements, want %d or more, those of the view", len(packed), v.Len()))
	}
	if err != nil {
		return &OpError{Op: op, Rank: Undefined, Peer: Undefined, Tag: Undefined, Err: err}
	}
	move(&v.layout, packed, v.buf, 0, back)
	return nil
}

// contiguous returns the elements of a view of which all follow each other.
func (v View[T]) contiguous() ([]T, bool) {
	l := &v.layout
	if l.err != nil || l.ends != nil || len(l.dims) > 0 {
		return nil, l.err == nil && l.n == 0
	}
	return v.buf[l.offset : l.offset+l.n], true
}

// carrier packs and unpacks the elements of a view that is not contiguous, as a whole, or piece by piece for
// a backend (backend.Parts).
type carrier[T any] struct {
	view View[T]
	mem  []T // as long as the longest view that it was used for
	done int // how many elements were moved in pieces
	pool *sync.Pool
}

// carriers has a pool of each type's carriers.
var carriers sync.Map // reflect.Type: *sync.Pool

// carry returns memory for a message from or to a view: its elements if they follow each other, or else that of
// a carrier.
func carry[T any](v View[T]) ([]T, *carrier[T]) {
	if s, ok := v.contiguous(); ok || v.layout.err != nil {
		return s, nil
	}
	k := carrierOf[T](v.Len())
	k.view, k.done = v, 0
	return k.mem[:v.Len()], k
}

// carrierOf returns a carrier with memory for n elements.
func carrierOf[T any](n int) *carrier[T] {
	t := reflect.TypeFor[T]()
	pool, ok := carriers.Load(t)
	if !ok {
		pool, _ = carriers.LoadOrStore(t, new(sync.Pool))
	}
	k, ok := pool.(*sync.Pool).Get().(*carrier[T])
	if !ok {
		k = &carrier[T]{pool: pool.(*sync.Pool)}
	}
	if len(k.mem) < n {
		k.mem = make([]T, n)
	}
	return k
}

// send prepares to send the elements to a rank: the backend of c packs them, or all are packed, as without c.
func (k *carrier[T]) send(c *Comm, dest int) backend.Parts {
	parts := k.recv(c, dest)
	if k != nil && parts == nil {
		move(&k.view.layout, k.mem[:k.view.Len()], k.view.buf, 0, false)
	}
	return parts
}

// recv prepares to receive the elements from a rank: the backend of c may unpack them, but not without c.
func (k *carrier[T]) recv(c *Comm, source int) backend.Parts {
	size := view.Size[T]()
	if k == nil || size > backend.PartMax || !c.base().InPieces(k.view.Len()*size, source) {
		return nil
	}
	return k
}

// received unpacks the message if the backend has not unpacked it in pieces.
func (k *carrier[T]) received(st backend.Status) {
	if k != nil && k.done == 0 {
		move(&k.view.layout, k.mem[:st.Bytes/view.Size[T]()], k.view.buf, 0, true)
	}
}

// free keeps a carrier for later messages. The caller knows that no peer reads or writes its memory any more.
func (k *carrier[T]) free() {
	if k != nil {
		k.view = View[T]{}
		k.pool.Put(k)
	}
}

// Pack implements backend.Parts.
func (k *carrier[T]) Pack(dst []byte) int { return k.next(dst, false) }

// Unpack implements backend.Parts.
func (k *carrier[T]) Unpack(src []byte) int { return k.next(src, true) }

// Scattered implements backend.Parts. A block that is shorter than a cache line costs a whole one.
func (k *carrier[T]) Scattered() bool {
	l := &k.view.layout
	blocks := len(l.ends)
	if blocks == 0 {
		blocks = l.n / l.block
	}
	return l.n*view.Size[T]() < 64*blocks
}

func (k *carrier[T]) next(packed []byte, back bool) int {
	p := view.Of[T](packed)
	p = p[:min(len(p), k.view.Len()-k.done)]
	move(&k.view.layout, p, k.view.buf, k.done, back)
	k.done += len(p)
	return len(p) * view.Size[T]()
}

// wholeType returns the Datatype of T for a receive of whole elements, or the error of an argument.
func wholeType[T any](bad error) (*backend.Datatype, error) {
	typ, err := viewType[T](bad)
	if typ != nil {
		typ = typ.Whole
	}
	return typ, err
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
// Not collective: the caller and dest take part.
//
// Errors: those of Send and [ViewOf].
//
// Deadline: as for Send.
func SendView[T any](c *Comm, v View[T], dest, tag int) error {
	typ, err := viewType[T](v.layout.err)
	buf, k := carry(v)
	err = c.base().Send("sendview", typ, view.Bytes(buf), k.send(c, dest), dest, tag, backend.Standard, err)
	if err == nil { // else dest may still read it
		k.free()
	}
	return err
}

// IsendView is the nonblocking form of [SendView]. The elements of the view must not be written until the
// request is complete.
func IsendView[T any](c *Comm, v View[T], dest, tag int) (*Request, error) {
	typ, err := viewType[T](v.layout.err)
	buf, k := carry(v) // freed with the request
	return request(c.base().Isend("isendview", typ, view.Bytes(buf), k.send(c, dest), dest, tag, backend.Standard, err))
}

// RecvView receives a message into the elements of a view, as [Recv] receives into a slice. The other
// elements of the slice keep their content. If a message is too long ([ErrTruncate]), a contiguous view receives
// its beginning, and the elements of any other view keep their content.
//
// Not collective: the caller and source take part.
//
// Errors: those of Recv and [ViewOf]; [ErrCount] if the message is not a whole number of elements. That message is
// received, and the elements of the view may have been written.
//
// Deadline: as for Recv.
func RecvView[T any](c *Comm, v View[T], source, tag int) (Status, error) {
	typ, err := wholeType[T](v.layout.err)
	buf, k := carry(v)
	st, err := c.base().Recv("recvview", typ, view.Bytes(buf), k.recv(c, source), source, tag, err)
	if err == nil {
		k.received(st)
		k.free()
	}
	return status(st, err)
}

// IrecvView is the nonblocking form of [RecvView]. The elements of the view must not be used until Wait or
// Test reports that the request is complete. It cannot be canceled.
func IrecvView[T any](c *Comm, v View[T], source, tag int) (*Request, error) {
	typ, err := wholeType[T](v.layout.err)
	buf, k := carry(v)
	var unpack func(backend.Status)
	if k != nil {
		unpack = func(st backend.Status) {
			k.received(st)
			k.free()
		}
	}
	return request(c.base().IrecvThen("irecvview", typ, comm.Side{Buf: view.Bytes(buf), Parts: k.recv(c, source), Peer: source, Tag: tag}, unpack, err))
}

// SendrecvView sends the elements of one view to dest and receives those of another from source at the same
// time, as [Sendrecv] does for slices. Views that are not contiguous may overlap, and may be the same.
//
// Not collective: the caller, dest and source take part.
//
// Errors: those of Sendrecv and [RecvView].
//
// Deadline: as for Sendrecv.
func SendrecvView[T any](c *Comm, send View[T], dest, sendTag int, recv View[T], source, recvTag int) (Status, error) {
	bad := send.layout.err
	if bad == nil {
		bad = recv.layout.err
	}
	typ, err := wholeType[T](bad)
	out, p := carry(send)
	in, q := carry(recv)
	packs, unpacks := c, c
	if view.Overlap(view.Bytes(send.buf), view.Bytes(recv.buf)) {
		unpacks = nil // received unpacks when all is sent
		if q == nil {
			packs = nil // all is packed before anything is received
		}
	}
	st, err := c.base().Sendrecv(typ, comm.Side{Buf: view.Bytes(out), Parts: p.send(packs, dest), Peer: dest, Tag: sendTag},
		comm.Side{Buf: view.Bytes(in), Parts: q.recv(unpacks, source), Peer: source, Tag: recvTag}, err)
	if err == nil {
		q.received(st)
		p.free()
		q.free()
	}
	return status(st, err)
}

// AlltoallView sends a view from every rank to every rank: rank j stores the elements of rank i's send[j] in those
// of its recv[i]. The two views have equally many elements. It is MPI_Alltoallw with elements of one type.
//
// Collective: all ranks of c call it with the same type.
//
// Buffers: send and recv have one view per rank. The views of recv do not overlap each other. They may
// overlap those of send, which are read first. The views of one side are not copied if they are contiguous parts
// of one array. If send and recv share memory, those of send are copied.
//
// Errors, deadline: as for [Comm.Barrier]; [ErrCount], [ErrBuffer], [ErrType] and those of [ViewOf] for wrong arguments.
func AlltoallView[T any](c *Comm, send, recv []View[T]) error {
	scounts, sdispls, ns, bad := partsOf(c, "send", send)
	rcounts, rdispls, nr, err := partsOf(c, "recv", recv)
	_, bad = viewType[T](cmp.Or(bad, err))
	if bad == nil {
		bad = disjoint(recv)
	}
	call := c.begin(backend.Alltoallv, -1)
	if bad != nil {
		ns, nr = 0, 0
	}
	var p, q *carrier[T]
	in, at := joined(recv)
	if at == nil || bad != nil {
		q = carrierOf[T](nr)
		in, at = q.mem[:nr], rdispls
	}
	rdispls = at
	out, at := joined(send)
	if at == nil || bad != nil || view.Overlap(view.Bytes(out), view.Bytes(in)) {
		p = carrierOf[T](ns)
		out, at = p.mem[:ns], sdispls
		for i := range send {
			if bad == nil {
				move(&send[i].layout, out[at[i]:], send[i].buf, 0, false)
			}
		}
	}
	sdispls = at
	call = recvParts(sendParts(data(call, out, in), scounts, sdispls), rcounts, rdispls)
	if call.Err == nil {
		call.Err = bad
	}
	if err := c.base().Run(call, flight.OfViews); err != nil {
		return err
	}
	if q != nil {
		for i := range recv {
			move(&recv[i].layout, in[rdispls[i]:][:rcounts[i]], recv[i].buf, 0, true)
		}
	}
	p.free()
	q.free()
	return nil
}

// disjoint returns an error if two views have an element in common. It compares the extents of the views, and marks the
// elements of those whose extents overlap.
func disjoint[T any](views []View[T]) error {
	type extent struct{ at, lo, hi, view int } // at: of the view's slice; all in elements
	extents := make([]extent, 0, len(views))
	for i := range views {
		if lo, hi := views[i].layout.extent(); lo < hi {
			at := int(view.Address(view.Bytes(views[i].buf))) / max(1, view.Size[T]())
			extents = append(extents, extent{at, at + lo, at + hi, i})
		}
	}
	slices.SortFunc(extents, func(a, b extent) int { return cmp.Compare(a.lo, b.lo) })
	for i, n := 0, 0; i < len(extents); i = n {
		end := extents[i].hi
		for n = i + 1; n < len(extents) && extents[n].lo < end; n++ {
			end = max(end, extents[n].hi)
		}
		if n == i+1 {
			continue
		}
		marks := make([]uint64, (end-extents[i].lo+63)/64)
		for _, e := range extents[i:n] {
			for at, left := range views[e.view].layout.Blocks() {
				for at += e.at - extents[i].lo; left > 0; {
					k := min(left, 64-at%64)
					mask := ^uint64(0) >> (64 - k) << (at % 64)
					if marks[at/64]&mask != 0 {
						return fault(ErrBuffer, fmt.Sprintf("recv: the view for rank %d overlaps another one", e.view))
					}
					marks[at/64] |= mask
					at, left = at+k, left-k
				}
			}
		}
	}
	return nil
}

// joined returns a slice with the elements of all views, and where in it each begins. This needs contiguous views
// of slices that end at the same place, such as those of one array. Otherwise the second result is nil.
func joined[T any](views []View[T]) (all []T, displs []int) {
	for i := range views {
		if s, ok := views[i].contiguous(); !ok {
			return nil, nil
		} else if len(s) > 0 && cap(s) > cap(all) {
			all = s
		}
	}
	all = all[:cap(all)]
	displs, end := make([]int, len(views)), 0
	for i := range views {
		s, _ := views[i].contiguous()
		if len(s) == 0 {
			continue
		}
		displs[i] = len(all) - cap(s)
		if &all[displs[i]] != &s[0] {
			return nil, nil
		}
		end = max(end, displs[i]+len(s))
	}
	return all[:end], displs
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
