package comm

import (
	"math"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// A collective that allocates what it receives consists of two: the ranks exchange their counts, and then the
// data. The element type of the first names the call.

// countCalls contains the element types of the exchanges of counts.
var countCalls = map[backend.Coll]*backend.Datatype{
	backend.Gatherv:    callType("GathervAlloc"),
	backend.Allgatherv: callType("AllgathervAlloc"),
	backend.Alltoallv:  callType("AlltoallvAlloc"),
}

// RunAlloc performs the Call from Begin with the counts that the ranks exchange before. alloc returns
// memory for n elements: those of all ranks in rank order. RunAlloc returns how many are from each rank, and nil
// for a Gatherv on a rank other than root.
func (c *Comm) RunAlloc(call *backend.Call, alloc func(n int) []byte) ([]int, error) {
	op := strings.ToLower(countCalls[call.Coll].Name)
	if c == nil || c.core == nil || call != &c.core.call {
		return nil, c.failed(op, call.Err)
	}
	k := c.core
	defer k.life.leave()
	c = c.begun()
	root := rootOf(call)
	data := *call
	err := k.exchangeCounts(c.bound, &data)
	if err == nil {
		if data.RecvCounts != nil && data.Err == nil {
			data.Recv = alloc(data.RecvDispls[k.size-1] + data.RecvCounts[k.size-1])
		}
		k.check(&data)
		k.call = data
		err = k.do(c.bound)
	}
	if err != nil {
		return nil, c.Failed(op, root, Undefined, err)
	}
	return data.RecvCounts, nil
}

// exchangeCounts stores in data how much this rank receives from each.
func (k *core) exchangeCounts(b *backend.Bound, data *backend.Call) error {
	send, recv := []int64{int64(data.Count)}, make([]int64, k.size)
	coll := backend.Gather
	switch data.Coll {
	case backend.Allgatherv:
		coll = backend.Allgather
	case backend.Alltoallv:
		coll = backend.Alltoall
		k.checkSendCounts(data)
		send = make([]int64, k.size)
		for i := range min(len(data.SendCounts), k.size) {
			send[i] = int64(data.SendCounts[i])
		}
	}
	k.call = backend.Call{
		Coll: coll, Root: data.Root, Type: countCalls[data.Coll], Count: len(send), Send: view.Bytes(send), Recv: view.Bytes(recv), Err: data.Err,
	}
	k.check(&k.call)
	if err := k.do(b); err != nil || data.Coll == backend.Gatherv && data.Root != k.rank {
		return err
	}
	data.RecvCounts, data.RecvDispls = make([]int, k.size), make([]int, k.size)
	total := 0
	for i, n := range recv {
		if most := math.MaxInt/data.Type.Size - total; n < 0 || n > int64(most) {
			reject(data, backend.ErrAlloc, "ranks 0 to %d send more than %d elements of %d bytes; that exceeds the address space", i, total, data.Type.Size)
			break
		}
		data.RecvCounts[i], data.RecvDispls[i] = int(n), total
		total += int(n)
	}
	return nil
}

// checkSendCounts checks how send is divided among the ranks, and stores where each part begins.
func (k *core) checkSendCounts(call *backend.Call) {
	if call.Err != nil || !k.checkCounts(call, "send", call.SendCounts) {
		return
	}
	displs, left := make([]int, k.size), call.Count
	for i, n := range call.SendCounts {
		displs[i] = call.Count - left
		if left -= n; left < 0 {
			break
		}
	}
	call.SendDispls = displs
	switch {
	case left > 0:
		reject(call, backend.ErrCount, "send has %d elements, the counts add up to %d; want the same", call.Count, call.Count-left)
	case left < 0:
		reject(call, backend.ErrCount, "send has %d elements, the counts add up to more; want the same", call.Count)
	}
}
