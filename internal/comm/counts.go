package comm

import (
	"math"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// A collective that appends what it receives consists of two: the ranks exchange their counts, and then the
// data. The element type of the first names the call.

// countCalls contains the element types of the exchanges of counts.
var countCalls = map[backend.Coll]*backend.Datatype{
	backend.Gatherv:    callType("GathervAppend"),
	backend.Allgatherv: callType("AllgathervAppend"),
	backend.Alltoallv:  callType("AlltoallvAppend"),
}

// RunAppend performs the Call from Begin with the counts that the ranks exchange before. alloc returns
// memory for n elements: those of all ranks in rank order. RunAppend returns how many are from each rank, and nil
// for a Gatherv on a rank other than root.
func (c *Comm) RunAppend(call *backend.Call, alloc func(n int) []byte) ([]int, error) {
	op := countCalls[call.Coll]
	if c == nil || c.core == nil || call != &c.core.call {
		return nil, c.failed(strings.ToLower(op.Name), call.Err)
	}
	k := c.core
	defer k.life.leave()
	c = c.withDeadline()
	root := rootOf(call)
	data := *call
	total, err := k.exchangeCounts(c.bound, &data)
	if err == nil {
		if data.RecvCounts != nil && data.Err == nil {
			if data.Recv = alloc(total); view.Overlap(data.Send, data.Recv) {
				data.Err = errOverlap
			}
		}
		k.check(&data)
		k.call = data
		err = k.do(c.bound)
	}
	if err != nil {
		return nil, c.Failed(strings.ToLower(op.Name), root, Undefined, err)
	}
	return data.RecvCounts, nil
}

// exchangeCounts stores in data how much this rank receives from each, and returns the sum.
func (k *core) exchangeCounts(b *backend.Bound, data *backend.Call) (total int, err error) {
	if k.counts == nil {
		k.counts = make([]int64, 2*k.size)
	}
	send, recv := k.counts[:1], k.counts[k.size:]
	send[0] = int64(data.Count)
	coll := backend.Gather
	switch data.Coll {
	case backend.Allgatherv:
		coll = backend.Allgather
	case backend.Alltoallv:
		coll = backend.Alltoall
		k.checkSendCounts(data)
		send = k.counts[:k.size]
		clear(send)
		for i := range min(len(data.SendCounts), k.size) {
			send[i] = int64(data.SendCounts[i])
		}
	}
	k.call = backend.Call{
		Coll: coll, Root: data.Root, Type: countCalls[data.Coll], Count: len(send), Send: view.Bytes(send), Recv: view.Bytes(recv), Err: data.Err,
	}
	k.check(&k.call)
	if err := k.do(b); err != nil || data.Coll == backend.Gatherv && data.Root != k.rank {
		return 0, err
	}
	data.RecvCounts = make([]int, k.size)
	for i, n := range recv {
		if most := math.MaxInt/data.Type.Size - total; n < 0 || n > int64(most) {
			reject(data, backend.ErrAlloc, "ranks 0 to %d send more than %d elements of %d bytes; that exceeds the address space", i, total, data.Type.Size)
			break
		}
		data.RecvCounts[i] = int(n)
		total += int(n)
	}
	return total, nil
}

// checkSendCounts checks that the counts divide all of send among the ranks.
func (k *core) checkSendCounts(call *backend.Call) {
	if call.Err != nil || !k.checkCounts(call, "send", call.SendCounts) {
		return
	}
	left := call.Count
	for _, n := range call.SendCounts {
		if left -= n; left < 0 {
			break
		}
	}
	switch {
	case left > 0:
		reject(call, backend.ErrCount, "send has %d elements, the counts add up to %d; want the same", call.Count, call.Count-left)
	case left < 0:
		reject(call, backend.ErrCount, "send has %d elements, the counts add up to more; want the same", call.Count)
	}
}
