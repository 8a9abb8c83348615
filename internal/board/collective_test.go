//go:build linux

package board

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// The numbers of calls begin again after 2^32 of them: some minutes of short ones.
func TestCallsAreNumberedAnew(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	succeed(t, all, func(c *comm) error {
		c.seq, c.syncSeq = math.MaxUint32-2, math.MaxUint32-2
		for r := range c.compared.upTo {
			c.compared.upTo[r] = c.seq
		}
		for i := range 5 {
			call := allreduce(4 + 1000*(i&1)) // in the slots, or copied
			for k := range call.Count {
				binary.NativeEndian.PutUint64(call.Send[8*k:], uint64(i+1))
			}
			must.Get(c.Run(nil, call))
			if got := binary.NativeEndian.Uint64(call.Recv); got != uint64(2*(i+1)) {
				t.Errorf("call %d: the sum is %d, want %d", i, got, 2*(i+1))
			}
		}
		return nil
	})
}

// A rank takes the results that another one has found, for more calls than there are slots. Then it needs the other's call.
func TestRankFollowsAnotherForManyCalls(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	for i := range 2 * slotsDeep {
		calls := []*backend.Call{allreduce(1), allreduce(1)}
		for r, call := range calls {
			binary.NativeEndian.PutUint64(call.Send, uint64(10*i+r))
		}
		all[1].arrive(calls[1])
		must.Get(all[0].Run(nil, calls[0]))
		must.Get(all[1].meet(nil, calls[1]))
		if all[1].side.from == nil {
			t.Errorf("call %d: rank 1 has not taken rank 0's result", i)
		}
		for r, call := range calls {
			if got := binary.NativeEndian.Uint64(call.Recv); got != uint64(20*i+1) {
				t.Errorf("call %d: the sum of rank %d is %d, want %d", i, r, got, 20*i+1)
			}
		}
	}
	succeed(t, all, func(c *comm) error {
		_, err := c.Run(&backend.Bound{Timeout: 10 * time.Second}, &backend.Call{Coll: backend.Bcast, Type: int64s, Count: 1, Recv: make([]byte, 8)})
		return err
	})
}

// Rank 1 has read slots of other ranks while these went to another communicator. Rank 0, which waits in the same call, does
// not take the result of rank 1.
func TestRankTakesNoResultOfReusedSlots(t *testing.T) {
	b := boards(t, 4)
	all := open(t, b, 1)
	calls := make([]*backend.Call, len(all))
	for r, c := range all {
		calls[r] = allreduce(1)
		put(calls[r], 1)
		if r != 1 {
			c.arrive(calls[r])
		}
	}
	op, first := *sum, true
	op.Apply = func(dst, x, y []byte) {
		if first { // after the inputs of ranks 0 and 1, before those of 2 and 3
			first = false
			closeAll(all[2:])
			for _, c := range open(t, b, 2)[2:] {
				call := iallreduce(1)
				put(call, 1000)
				c.Start(call)
			}
		}
		sum.Apply(dst, x, y)
	}
	calls[1].Op = &op
	if _, err := all[1].Run(nil, calls[1]); err == nil || first {
		t.Errorf("rank 1 has read slots of another communicator: no error, and the sum is %v", sums(calls[1]))
	}
	if _, err := all[0].meet(nil, calls[0]); err == nil {
		t.Errorf("rank 0 has no error, and the sum is %v", sums(calls[0]))
	}
}
