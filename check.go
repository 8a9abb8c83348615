package cohort

import (
	"fmt"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// These checks of collective arguments are the same for every backend. They work on the type-erased
// call and look at this rank's arguments only. Fingerprints (backend.Call.Fingerprint) compare the
// calls of different ranks.
//
// The first error ends the checks and is stored in Call.Err. The call is made nevertheless, so that
// the other ranks learn of the error. The sentinels are:
//
//	a length that does not fit the operation                   ErrCount
//	counts or displs not one per rank, a negative count        ErrCount
//	nil where there are elements to read or write              ErrBuffer
//	send and recv overlap and are not the same slice           ErrBuffer
//	a displacement outside the buffer, receive blocks overlap  ErrBuffer

// newCall returns a Call for the nonblocking and persistent forms, which copy it. Blocking forms
// use the Call of the communicator (Comm.begin).
func newCall() *backend.Call { return &backend.Call{Root: -1} }

// setData stores the arguments of a call that only moves data.
func setData[T any](c *Comm, call *backend.Call, coll backend.Coll, send, recv []T, root int) {
	if setBuffers(c, call, coll, send, recv, root) {
		call.Type, call.Err = typeFor[T]()
	}
}

// setReduction stores the arguments of a reduction.
func setReduction[T Reducible](c *Comm, call *backend.Call, coll backend.Coll, send, recv []T, op Op, root int) {
	if !setBuffers(c, call, coll, send, recv, root) {
		return
	}
	if call.Op, call.Err = opFor[T](op); call.Err == nil {
		call.Type = call.Op.Type
		return
	}
	if _, err := typeFor[T](); err != nil {
		call.Err = err // an invalid type is invalid for every op
	}
}

// setBuffers stores the arguments that all calls except a barrier have, and reports whether the
// communicator is valid.
func setBuffers[T any](c *Comm, call *backend.Call, coll backend.Coll, send, recv []T, root int) bool {
	call.Coll, call.Root, call.Count = coll, root, len(send)
	call.Send, call.Recv = bytesOf(send), bytesOf(recv)
	if c.Size() == 0 {
		call.Err = &backend.Fault{Sentinel: ErrComm, Text: "the communicator is nil"}
	}
	return call.Err == nil
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

// reject stores an argument error in the call.
func reject(call *backend.Call, sentinel error, format string, args ...any) {
	call.Err = &backend.Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, args...)}
}

// elems returns how many elements b holds.
func elems(call *backend.Call, b []byte) int { return len(b) / call.Type.Size }

// checkRoot reports whether the call has no error so far and its root is a rank.
func checkRoot(c *Comm, call *backend.Call) bool {
	if call.Err == nil && (call.Root < 0 || call.Root >= c.Size()) {
		reject(call, ErrRoot, "root is rank %d of %d; want 0 to %d", call.Root, c.Size(), c.Size()-1)
	}
	return call.Err == nil
}

// checkBytes reports whether a buffer has the given length in bytes.
func checkBytes(call *backend.Call, name string, b []byte, want int) bool {
	switch {
	case len(b) == want:
	case b == nil:
		reject(call, ErrBuffer, "%s is nil, want %d elements", name, want/call.Type.Size)
	default:
		reject(call, ErrCount, "%s has %d elements, want %d", name, elems(call, b), want/call.Type.Size)
	}
	return call.Err == nil
}

// checkInput checks the buffer that decides the length: if send is nil and recv has elements, send
// is missing and the length is not zero.
func checkInput(call *backend.Call) bool {
	if call.Send == nil && len(call.Recv) > 0 {
		reject(call, ErrBuffer, "send is nil, recv has %d elements", elems(call, call.Recv))
	}
	return call.Err == nil
}

// checkOutput is checkInput for calls in which recv decides the length.
func checkOutput(call *backend.Call) bool {
	if call.Recv == nil && len(call.Send) > 0 {
		reject(call, ErrBuffer, "recv is nil, send has %d elements", elems(call, call.Send))
	}
	return call.Err == nil
}

// checkOverlap reports whether send and recv do not overlap.
func checkOverlap(call *backend.Call) bool {
	if view.Overlap(call.Send, call.Recv) {
		reject(call, ErrBuffer, "send and recv overlap and are not the same slice")
	}
	return call.Err == nil
}

// inPlace reports whether send and recv are the same slice. If so, it converts the call into its
// in-place form, with the input in Recv.
func inPlace(call *backend.Call) bool {
	if !view.Same(call.Send, call.Recv) {
		return false
	}
	call.InPlace, call.Send = true, nil
	return true
}

// perRank reports whether a buffer of n elements can be divided into one equal block per rank.
func perRank(c *Comm, call *backend.Call, name string, n int) bool {
	if n%c.Size() != 0 {
		reject(call, ErrCount, "%s has %d elements, want a multiple of %d, the number of ranks", name, n, c.Size())
	}
	return call.Err == nil
}

// checkPair checks a call whose send and recv have the same length: Allreduce,
// Scan, Exscan, and Reduce on its root.
func checkPair(call *backend.Call) *backend.Call {
	if call.Err == nil && !inPlace(call) && checkInput(call) && checkBytes(call, "recv", call.Recv, len(call.Send)) {
		checkOverlap(call)
	}
	return call
}

// checkCounts reports whether there is one count per rank and none is negative. The name is that of
// the buffer.
func checkCounts(c *Comm, call *backend.Call, name string, counts []int) bool {
	if len(counts) != c.Size() {
		reject(call, ErrCount, "%s counts has %d entries, want %d, one per rank", name, len(counts), c.Size())
		return false
	}
	for i, n := range counts {
		if n < 0 {
			reject(call, ErrCount, "%s counts[%d] is %d, want 0 or more", name, i, n)
			return false
		}
	}
	return true
}

// checkBlocks reports whether counts and displs describe one block per rank inside the buffer b. If
// the blocks are written, no two of them may overlap.
func checkBlocks(c *Comm, call *backend.Call, name string, b []byte, counts, displs []int, written bool) bool {
	if !checkCounts(c, call, name, counts) {
		return false
	}
	if len(displs) != c.Size() {
		reject(call, ErrCount, "%s displs has %d entries, want %d, one per rank", name, len(displs), c.Size())
		return false
	}
	n := elems(call, b)
	end, ordered := 0, true // end of the previous block; whether the blocks are in order so far
	for i, count := range counts {
		d := displs[i]
		switch {
		case count > 0 && b == nil:
			reject(call, ErrBuffer, "%s is nil, want %d elements for rank %d", name, count, i)
			return false
		case d < 0 || d > n || count > n-d:
			reject(call, ErrBuffer, "%s has %d elements, rank %d's block of %d starts at %d", name, n, i, count, d)
			return false
		}
		if count > 0 {
			ordered = ordered && d >= end
			end = d + count
		}
	}
	if ordered || !written {
		return true
	}
	return checkDisjoint(call, name, counts, displs)
}

// order pools memory for sorting blocks, so that a blocking call with unordered blocks does not
// allocate.
var order = sync.Pool{New: func() any { return new([]int) }}

// checkDisjoint reports whether no two blocks overlap.
func checkDisjoint(call *backend.Call, name string, counts, displs []int) bool {
	p := order.Get().(*[]int)
	defer order.Put(p)
	ranks := (*p)[:0]
	for i, n := range counts {
		if n > 0 {
			ranks = append(ranks, i)
		}
	}
	*p = ranks
	slices.SortFunc(ranks, func(a, b int) int { return displs[a] - displs[b] })
	for i := 1; i < len(ranks); i++ {
		a, b := ranks[i-1], ranks[i]
		if displs[a]+counts[a] > displs[b] {
			reject(call, ErrBuffer, "%s: the blocks of rank %d (%d at %d) and rank %d (%d at %d) overlap",
				name, a, counts[a], displs[a], b, counts[b], displs[b])
			return false
		}
	}
	return true
}
