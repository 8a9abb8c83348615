//go:build linux

package board

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
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

// A rank may be ahead of the others, who then still read its areas of the calls before.
func TestAreasOfCallsThatMayBeReadDoNotOverlap(t *testing.T) {
	s := open(t, boards(t, 2), 0)[0].Collective
	if err := s.allocate(allreduce(areaMost / 8)); err != nil {
		t.Fatal(err)
	}
	room := uint64(len(s.areas.of[0].mem))
	random := rand.New(rand.NewPCG(1, 2))
	var before [ahead][2]uint64 // begin and end
	for call := range 10_000 {
		n := 1 + random.IntN(areaMost)
		if call%100 < 2*areasDeep { // the longest, one after the other
			n = areaMost
		}
		from := s.reserve(n)
		to := from + uint64(n)
		if to > room {
			t.Fatalf("call %d: bytes %d to %d of %d", call, from, to, room)
		}
		for _, b := range before {
			if from < b[1] && b[0] < to {
				t.Fatalf("call %d: bytes %d to %d, and %d to %d of one of the %d calls before", call, from, to, b[0], b[1], ahead)
			}
		}
		before[call%ahead] = [2]uint64{from, to}
	}
}
