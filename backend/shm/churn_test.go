//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// Communicators of random groups are made, used and closed in large numbers: slots are reused while slower
	// ranks have not closed theirs yet.
	programs["churn"] = func(c backend.Comm) error {
		debug.SetGCPercent(1)
		rounds := rounds(800)
		r := rand.New(rand.NewPCG(5, uint64(rounds)))                  // the same on all ranks
		own := rand.New(rand.NewPCG(uint64(c.Rank()), uint64(rounds))) // not the same
		int64s := &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}
		sum := &backend.Op{Code: backend.OpSum, Commutative: true, Type: int64s, Apply: kernel.For(backend.OpSum, backend.Int64)}
		var open []backend.Comm
		for k := range rounds {
			members := r.Perm(c.Size())[:1+r.IntN(c.Size())]
			n := []int{1, 4, 100, 3000}[r.IntN(4)]
			in := slices.Contains(members, c.Rank())
			if !in {
				continue
			}
			d, err := c.Derive(nil, members, uint32(k+1))
			if err != nil {
				return fmt.Errorf("communicator %d with %d open: %w", k, len(open), err)
			}
			send, recv := make([]byte, 8*n), make([]byte, 8*n)
			want := uint64(0)
			for _, m := range members {
				want += uint64(m*1000 + k)
			}
			for i := range n {
				binary.NativeEndian.PutUint64(send[8*i:], uint64(c.Rank()*1000+k+i))
			}
			next, before := (d.Rank()+1)%d.Size(), (d.Rank()+d.Size()-1)%d.Size()
			q := &backend.Request{}
			q.Begin()
			got := make([]byte, 8*n)
			d.Irecv(q, got, before, 1)
			must.OK(d.Send(nil, send, next, 1, backend.Standard))
			plan, err := d.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: sum, Type: int64s,
				Count: n, Send: send, Recv: recv, Seq: 1})
			if err != nil || plan != backend.PlanDone {
				return fmt.Errorf("communicator %d: %v %v", k, plan, err)
			}
			for i := range n {
				if x := binary.NativeEndian.Uint64(recv[8*i:]); x != want+uint64(i*len(members)) {
					return fmt.Errorf("communicator %d of %v: element %d is %d, want %d", k, members, i, x, want+uint64(i*len(members)))
				}
			}
			if err := d.Await(nil, q); err != nil || q.Err != nil {
				return errors.Join(err, q.Err)
			}
			for i := range n {
				if x := binary.NativeEndian.Uint64(got[8*i:]); x != uint64(members[before]*1000+k+i) {
					return fmt.Errorf("communicator %d of %v: message element %d is %d", k, members, i, x)
				}
			}
			open = append(open, d)
			for len(open) > 0 && (len(open) > 20 || own.IntN(3) == 0) {
				i := own.IntN(len(open))
				open[i].Close()
				open = slices.Delete(open, i, i+1)
			}
		}
		return nil
	}
}

func TestSlotsAreReusedWhileOthersCloseLate(t *testing.T) {
	if testing.Short() {
		t.Setenv("SHM_TEST_ROUNDS", "300")
	}
	launch(t, "churn", 5)
}
