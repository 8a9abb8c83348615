//go:build linux

package board

import (
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort/internal/view"
)

// Rank 1 uses its slots for another communicator, where the number of its area is an address. Rank 0 reads its own area.
func TestAreaIsOfTheCommunicator(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	succeed(t, all, func(c *comm) error {
		_, err := c.Run(nil, allreduce(slotData/8+1))
		return err
	})
	theirs := all[1].mine
	theirs.id.Store(theirs.id.Load() + 1)
	all[1].slot(theirs).facts[factArea] = 1 << 40
	if got, own := all[0].area(1, 8), all[0].areas.of[0].mem; !view.Overlap(got, own) {
		t.Errorf("rank 0 reads at %p, not in its own area at %p", got, own)
	}
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
