package sched

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// cacheSize is how many schedules of blocking collectives a communicator keeps: enough for
// the calls of a program's inner loop.
const cacheSize = 16

// key is what a rank's schedule depends on, besides its rank and the number of ranks. Counts
// are copies, because the caller's may change.
type key struct {
	coll                                           backend.Coll
	inPlace, commutative                           bool
	root, count, elem, send, recv                  int
	sendCounts, sendDispls, recvCounts, recvDispls []int
}

// cache keeps the schedules used last, the latest in front.
type cache struct{ entries []entry }

type entry struct {
	key      key
	schedule *coll.Schedule
}

// get returns the schedule of a call. It builds the schedule if it is not cached.
func (c *cache) get(call *backend.Call, rank, size int, nodes *coll.Nodes) (*coll.Schedule, error) {
	for i := range c.entries {
		if c.entries[i].key.fits(call) {
			e := c.entries[i]
			if i > 0 {
				copy(c.entries[1:i+1], c.entries[:i])
				c.entries[0] = e
			}
			return e.schedule, nil
		}
	}
	s, err := coll.Build(call, rank, size, nodes)
	if err != nil {
		return nil, err
	}
	if len(c.entries) < cacheSize {
		c.entries = append(c.entries, entry{})
	}
	copy(c.entries[1:], c.entries)
	c.entries[0] = entry{newKey(call), s}
	return s, nil
}

func newKey(call *backend.Call) key {
	return key{
		coll: call.Coll, inPlace: call.InPlace, commutative: call.Op != nil && call.Op.Commutative,
		root: call.Root, count: call.Count, elem: elemSize(call), send: len(call.Send), recv: len(call.Recv),
		sendCounts: slices.Clone(call.SendCounts), sendDispls: slices.Clone(call.SendDispls),
		recvCounts: slices.Clone(call.RecvCounts), recvDispls: slices.Clone(call.RecvDispls),
	}
}

func (k *key) fits(call *backend.Call) bool {
	return k.coll == call.Coll && k.count == call.Count && k.root == call.Root && k.elem == elemSize(call) &&
		k.inPlace == call.InPlace && k.commutative == (call.Op != nil && call.Op.Commutative) &&
		k.send == len(call.Send) && k.recv == len(call.Recv) &&
		slices.Equal(k.sendCounts, call.SendCounts) && slices.Equal(k.sendDispls, call.SendDispls) &&
		slices.Equal(k.recvCounts, call.RecvCounts) && slices.Equal(k.recvDispls, call.RecvDispls)
}

func elemSize(call *backend.Call) int {
	if call.Type == nil {
		return 0
	}
	return call.Type.Size
}
