//go:build interleave

package flight

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
)

// A goroutine is stopped in a record while another one goes all the way round, and a third one reads the ring. Each record
// that it reads is what one operation has written, and no two operations have one ticket.
func TestInterleaveRing(t *testing.T) {
	explored = true
	interleave.Explore(t, interleave.Config{Preemptions: interleave.Long(2)}, func(x *interleave.Run) {
		r := newRing()
		x.Name(&r.given, "given")
		for i := range r.recs {
			x.Name(&r.recs[i].first, "first of record %d", i)
			x.Name(&r.recs[i].last, "last of record %d", i)
		}
		owner := map[uint64]uint64{}
		operate := func(n uint64) {
			n++
			k := r.Begin(n<<32|uint64(Recv), n, ^n, 3*n)
			if was, twice := owner[uint64(k)]; twice {
				x.Errorf("operations %d and %d have the ticket %d", was, n, k)
			}
			owner[uint64(k)] = n
			r.End(k, nil)
		}
		var read []record
		x.Go("slow", func() { operate(0) })
		x.Go("fast", func() {
			for i := range uint64(Slots + 1) {
				operate(1 + i)
			}
		})
		x.Go("reader", func() { read = r.records() })
		x.Check(func() error {
			for _, c := range append(read, r.records()...) {
				if n := owner[c.first]; c.count != n || c.typed != ^n || c.place != 3*n || c.what != n<<32|uint64(Recv) || c.begun == 0 {
					return fmt.Errorf("the record of operation %d is %+v", n, c)
				}
			}
			for _, c := range r.records() {
				if State(c.state) != Done {
					return fmt.Errorf("operation %d has not ended", c.count)
				}
			}
			if n := len(r.records()); n != Slots {
				return fmt.Errorf("%d records, want %d", n, Slots)
			}
			return nil
		})
	})
}
