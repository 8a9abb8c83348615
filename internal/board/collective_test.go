//go:build linux

package board

import (
	"encoding/binary"
	"math"
	"testing"

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
