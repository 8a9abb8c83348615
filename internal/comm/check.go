package comm

import (
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// These checks of collective arguments are the same for every backend. They look at this rank's
// arguments only. Fingerprints (backend.Call.Fingerprint) compare the calls of different ranks.
//
// The first error ends the checks and is stored in Call.Err. The call is made nevertheless, so that
// the other ranks learn of the error. The sentinels are:
//
//	a length that does not fit the operation                   ErrCount
//	counts or displs not one per rank, a negative count        ErrCount
//	nil where there are elements to read or write              ErrBuffer
//	send and recv overlap and are not the same slice           ErrBuffer
//	a displacement outside the buffer, receive blocks overlap  ErrBuffer

// check checks a call with the arguments as the user gave them, and converts it into the form that
// backend.Call documents. Count is the length of send in elements. An empty slice is not nil.
func (k *core) check(call *backend.Call) {
	if call.Err != nil {
		return
	}
	switch call.Coll {
	case backend.Allreduce, backend.Scan:
		checkPair(call)
	case backend.Exscan:
		if call.Recv != nil || k.rank != 0 {
			checkPair(call)
		}
	case backend.Reduce:
		if k.checkRoot(call, &call.Recv) {
			checkPair(call)
		}
	case backend.Bcast:
		call.Send, call.Recv = nil, call.Send
		k.checkRoot(call, nil)
	case backend.Gather:
		if k.checkRoot(call, &call.Recv) {
			k.checkBlocks(call)
		}
	case backend.Allgather:
		k.checkBlocks(call)
	case backend.Scatter:
		if k.checkRoot(call, &call.Send) && inPlace(call) {
			k.checkPerRank(call, "send")
		} else {
			k.checkParts(call)
		}
	case backend.ReduceScatterBlock:
		if inPlace(call) {
			k.checkPerRank(call, "send")
		} else {
			k.checkParts(call)
		}
	case backend.Alltoall:
		if k.checkPerRank(call, "send") {
			checkPair(call)
		}
	case backend.Gatherv:
		call.Count = 0
		if k.checkRoot(call, &call.Recv) {
			k.checkGathered(call)
		} else {
			call.RecvCounts, call.RecvDispls = nil, nil
		}
	case backend.Allgatherv:
		call.Count = 0
		if k.checkGathered(call) {
			for _, n := range call.RecvCounts {
				call.Count += n
			}
		}
	case backend.Scatterv:
		call.Count = 0
		if k.checkRoot(call, &call.Send) {
			k.checkScatterv(call)
		} else {
			call.SendCounts, call.SendDispls = nil, nil
		}
	case backend.ReduceScatter:
		k.checkReduceScatter(call)
	case backend.Alltoallv:
		call.Count = 0
		k.checkAlltoallv(call)
	default:
		if call.Coll.Neighbor() {
			k.checkNeighbors(call)
		}
	}
}

// reject stores an argument error in the call.
func reject(call *backend.Call, sentinel error, format string, args ...any) bool {
	call.Err = fault(sentinel, format, args...)
	return false
}

var errOverlap = fault(backend.ErrBuffer, "send and recv overlap and are not the same slice")

// elems returns how many elements b holds.
func elems(call *backend.Call, b []byte) int { return len(b) / call.Type.Size }

// checkRoot reports whether the root is a rank and is this one. On other ranks it empties the buffer
// that only the root uses.
func (k *core) checkRoot(call *backend.Call, roots *[]byte) bool {
	switch {
	case call.Root < 0 || call.Root >= k.size:
		return reject(call, backend.ErrRoot, "root is rank %d of %d; want 0 to %d", call.Root, k.size, k.size-1)
	case call.Root != k.rank && roots != nil:
		*roots = nil
	}
	return call.Root == k.rank
}

// checkBytes reports whether a buffer has as many blocks of the given length in bytes.
func checkBytes(call *backend.Call, name string, b []byte, blocks, length int) bool {
	want := int64(blocks) * int64(length) // may be more than an int holds
	switch {
	case int64(len(b)) == want:
		return true
	case b == nil:
		return reject(call, backend.ErrBuffer, "%s is nil, want %d elements", name, want/int64(call.Type.Size))
	}
	return reject(call, backend.ErrCount, "%s has %d elements, want %d", name, elems(call, b), want/int64(call.Type.Size))
}

// checkInput checks the buffer that decides the length: if send is nil and recv has elements, send
// is missing and the length is not zero.
func checkInput(call *backend.Call) bool {
	if call.Send == nil && len(call.Recv) > 0 {
		return reject(call, backend.ErrBuffer, "send is nil, recv has %d elements", elems(call, call.Recv))
	}
	return true
}

// checkOverlap reports whether send and recv do not overlap.
func checkOverlap(call *backend.Call) bool {
	if view.Overlap(call.Send, call.Recv) {
		call.Err = errOverlap
	}
	return call.Err == nil
}

// inPlace reports whether send and recv are the same slice. If so, it converts the call into its in-place form, with
// the input in Recv; for Scatter and Scatterv in Send, on the root.
func inPlace(call *backend.Call) bool {
	if call.InPlace = view.Same(call.Send, call.Recv); call.InPlace {
		if call.Coll == backend.Scatter || call.Coll == backend.Scatterv {
			call.Recv = nil
		} else {
			call.Send = nil
		}
	}
	return call.InPlace
}

// checkPerRank reports whether the buffer of Count elements can be divided into one equal block per
// rank, and stores the length of a block.
func (k *core) checkPerRank(call *backend.Call, name string) bool {
	n := call.Count
	if call.Count = n / k.size; n%k.size != 0 {
		return reject(call, backend.ErrCount, "%s has %d elements, want a multiple of %d, the number of ranks", name, n, k.size)
	}
	return true
}

// checkPair checks a call whose send and recv have the same length.
func checkPair(call *backend.Call) {
	if !inPlace(call) && checkInput(call) && checkBytes(call, "recv", call.Recv, 1, len(call.Send)) {
		checkOverlap(call)
	}
}

// checkBlocks checks a call that sends one block and receives one from each rank.
func (k *core) checkBlocks(call *backend.Call) {
	if inPlace(call) {
		k.checkPerRank(call, "recv")
	} else if checkInput(call) && checkBytes(call, "recv", call.Recv, k.size, len(call.Send)) {
		checkOverlap(call)
	}
}

// checkParts checks a call that divides send into one block per rank, of which this rank gets one. Only
// the root of a Scatter has send.
func (k *core) checkParts(call *backend.Call) {
	if call.Err != nil {
		return
	}
	call.Count = elems(call, call.Recv)
	if call.Coll == backend.Scatter && call.Root != k.rank {
		return
	}
	if call.Recv == nil && len(call.Send) > 0 {
		reject(call, backend.ErrBuffer, "recv is nil, send has %d elements", elems(call, call.Send))
	} else if checkBytes(call, "send", call.Send, k.size, len(call.Recv)) {
		checkOverlap(call)
	}
}

// checkGathered checks a call that receives blocks of different lengths.
func (k *core) checkGathered(call *backend.Call) bool {
	return k.checkVector(call, "recv", call.Recv, call.RecvCounts, &call.RecvDispls, true) &&
		(inPlace(call) ||
			checkBytes(call, "send", call.Send, call.RecvCounts[k.rank], call.Type.Size) && checkOverlap(call))
}

// checkScatterv checks a Scatterv on its root.
func (k *core) checkScatterv(call *backend.Call) {
	if k.checkVector(call, "send", call.Send, call.SendCounts, &call.SendDispls, false) && !inPlace(call) &&
		checkBytes(call, "recv", call.Recv, call.SendCounts[k.rank], call.Type.Size) {
		checkOverlap(call)
	}
}

func (k *core) checkReduceScatter(call *backend.Call) {
	counts := call.RecvCounts
	if !k.checkCounts(call, "recv", counts) {
		return
	}
	sum, n := 0, call.Count // Count is the length of send
	for i, count := range counts {
		switch {
		case count <= n-sum:
		case call.Send == nil:
			reject(call, backend.ErrBuffer, "send is nil, rank %d's count is %d", i, count)
			return
		default:
			reject(call, backend.ErrCount, "send has %d elements, fewer than the counts of ranks 0 to %d together", n, i)
			return
		}
		sum += count
	}
	call.Count = sum
	if checkBytes(call, "send", call.Send, sum, call.Type.Size) && !inPlace(call) &&
		checkBytes(call, "recv", call.Recv, counts[k.rank], call.Type.Size) {
		checkOverlap(call)
	}
}

func (k *core) checkAlltoallv(call *backend.Call) {
	if !k.checkVector(call, "recv", call.Recv, call.RecvCounts, &call.RecvDispls, true) {
		return
	}
	if inPlace(call) {
		call.SendCounts, call.SendDispls = nil, nil
		return
	}
	if !k.checkVector(call, "send", call.Send, call.SendCounts, &call.SendDispls, false) {
		return
	}
	if send, recv := call.SendCounts[k.rank], call.RecvCounts[k.rank]; send != recv {
		reject(call, backend.ErrCount, "scounts[%d] is %d and rcounts[%d] is %d on rank %d; want the same", k.rank, send, k.rank, recv, k.rank)
		return
	}
	checkOverlap(call)
}

// blocks returns how many blocks of different lengths a buffer has, and what has one each.
func (k *core) blocks(call *backend.Call, name string) (n int, per string) {
	switch {
	case call.Neighbors == nil:
		return k.size, "rank"
	case name == "send":
		return len(call.Neighbors.Destinations), "destination"
	}
	return len(call.Neighbors.Sources), "source"
}

// checkCounts reports whether there is one count per block and none is negative. The name is that of
// the buffer.
func (k *core) checkCounts(call *backend.Call, name string, counts []int) bool {
	if want, per := k.blocks(call, name); len(counts) != want {
		return reject(call, backend.ErrCount, "%s counts has %d entries, want %d, one per %s", name, len(counts), want, per)
	}
	for i, n := range counts {
		if n < 0 {
			return reject(call, backend.ErrCount, "%s counts[%d] is %d, want 0 or more", name, i, n)
		}
	}
	return true
}

// checkVector reports whether counts and at describe blocks inside the buffer b. If the blocks are written, no
// two of them may overlap. If at is nil, it becomes the displacements of blocks that follow each other.
func (k *core) checkVector(call *backend.Call, name string, b []byte, counts []int, at *[]int, written bool) bool {
	if !k.checkCounts(call, name, counts) {
		return false
	}
	if *at == nil {
		*at = k.contiguous(call.Form, counts, written)
	}
	displs := *at
	want, per := k.blocks(call, name)
	if len(displs) != want {
		return reject(call, backend.ErrCount, "%s displs has %d entries, want %d, one per %s", name, len(displs), want, per)
	}
	n := elems(call, b)
	end, ordered := 0, true // end of the previous block; whether the blocks are in order so far
	for i, count := range counts {
		d := displs[i]
		switch {
		case count > 0 && b == nil:
			return reject(call, backend.ErrBuffer, "%s is nil, want %d elements for %s %d", name, count, per, i)
		case d < 0 || d > n || count > n-d:
			return reject(call, backend.ErrBuffer, "%s has %d elements, %s %d's block of %d starts at %d", name, n, per, i, count, d)
		}
		if count > 0 {
			ordered = ordered && d >= end
			end = d + count
		}
	}
	return ordered || !written || checkDisjoint(call, name, per, counts, displs)
}

// contiguous returns the displacements of blocks that follow each other. Those of a blocking call lie in the
// communicator's memory, so that the call does not allocate.
func (k *core) contiguous(form backend.Form, counts []int, written bool) []int {
	var once []int
	displs := &once
	if form == backend.Blocking && written {
		displs = &k.recvDispls
	} else if form == backend.Blocking {
		displs = &k.sendDispls
	}
	*displs = slices.Grow((*displs)[:0], len(counts))
	end := 0
	for _, n := range counts {
		*displs = append(*displs, end)
		end += n
	}
	return *displs
}

// order pools memory for sorting blocks, so that a blocking call with unordered blocks does not
// allocate.
var order = sync.Pool{New: func() any { return new([]int) }}

// checkDisjoint reports whether no two blocks overlap.
func checkDisjoint(call *backend.Call, name, per string, counts, displs []int) bool {
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
			return reject(call, backend.ErrBuffer, "%s: the blocks of %s %d (%d at %d) and %s %d (%d at %d) overlap",
				name, per, a, counts[a], displs[a], per, b, counts[b], displs[b])
		}
	}
	return true
}
