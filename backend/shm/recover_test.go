//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

var (
	int64s = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}
	sum64  = &backend.Op{Code: backend.OpSum, Commutative: true, Type: int64s, Apply: kernel.For(backend.OpSum, backend.Int64)}
)

// sum checks an Allreduce of n elements in which every rank gives its world rank
// and the element's number.
func sum(c backend.Comm, n int) error {
	send, recv := make([]byte, 8*n), make([]byte, 8*n)
	want := 0
	for r := range c.Size() {
		want += c.WorldRank(r)
	}
	for i := range n {
		binary.NativeEndian.PutUint64(send[8*i:], uint64(c.WorldRank(c.Rank())+i))
	}
	call := &backend.Call{Coll: backend.Allreduce, Root: -1, Op: sum64, Type: int64s, Count: n, Send: send, Recv: recv, Seq: 1}
	plan, err := c.(backend.Collectives).Collective(nil, call)
	if err == nil && plan != backend.PlanDone {
		err = sched.New(c).Run(nil, call, false)
	}
	if err != nil {
		return err
	}
	for i := range n {
		if x := int(binary.NativeEndian.Uint64(recv[8*i:])); x != want+i*c.Size() {
			return fmt.Errorf("the sum of %d elements is %d at %d, want %d", n, x, i, want+i*c.Size())
		}
	}
	return nil
}

// pass checks a message of n bytes to the next rank and from the one before.
func pass(c backend.Comm, n int) error {
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	out, in := make([]byte, n), make([]byte, n)
	for i := range out {
		out[i] = byte(c.WorldRank(c.Rank()) + i)
	}
	q := &backend.Request{}
	q.Begin()
	c.Irecv(q, in, before, 1)
	err := c.Send(nil, out, next, 1, backend.Standard)
	if e := c.Await(nil, q); e != nil || err != nil || q.Err != nil {
		return errors.Join(err, e, q.Err)
	}
	for i := range in {
		if in[i] != byte(c.WorldRank(before)+i) {
			return fmt.Errorf("byte %d of %d from rank %d is %d", i, n, before, in[i])
		}
	}
	return nil
}

// works checks that a communicator does all it should.
func works(c backend.Comm) error {
	return errors.Join(sum(c, 1), sum(c, 5000), pass(c, 8), pass(c, 3000), pass(c, 300000), sum(c, 3))
}

// without returns the ranks of c but one world rank.
func without(c backend.Comm, world int) (members []int) {
	for r := range c.Size() {
		if c.WorldRank(r) != world {
			members = append(members, r)
		}
	}
	return members
}

func shrink(c backend.Comm, id uint32, victim int) (backend.Comm, error) {
	return c.(agree.Comm).Acknowledge(without(c, victim), id, []int{victim})
}

func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// slotsMost is how many communicators a rank can have open in a job of up to 16.
const slotsMost = 1024

// slotsUsed checks how many communicators of this rank have slots: it makes as many more as it can.
func slotsUsed(c backend.Comm, want int) error {
	used := slotsMost
	for id := uint32(1 << 20); ; id++ {
		d, err := c.(agree.Comm).Acknowledge([]int{c.Rank()}, id, c.(agree.Comm).Failed())
		if err != nil {
			if !errors.Is(err, backend.ErrAlloc) || used != want {
				return fmt.Errorf("slots of %d communicators are in use, want %d (%w)", used, want, err)
			}
			return nil
		}
		defer d.Close()
		used--
	}
}

func init() {
	// One rank after the other ends, each time while there are communicators that only some ranks have made,
	// or that have messages in them. No resource runs out.
	programs["attrition"] = func(c backend.Comm) error {
		r := rand.New(rand.NewPCG(11, 1))                  // the same on all ranks
		own := rand.New(rand.NewPCG(uint64(c.Rank()), 12)) // not the same
		id := uint32(0)
		cur := c
		must.OK(sum(c, 1)) // all have opened the backend
		for cur.Size() > 1 {
			victim := cur.WorldRank(r.IntN(cur.Size()))
			var open []backend.Comm
			for range 30 {
				id++
				if own.IntN(4) == 0 {
					continue // as where the agreement on it was cut short
				}
				d := must.Get(cur.Derive(nil, without(cur, -1), id))
				open = append(open, d)
				q := &backend.Request{}
				q.Begin()
				d.Isend(q, make([]byte, []int{4, 100000}[own.IntN(2)]), own.IntN(d.Size()), 1, backend.Standard)
				if own.IntN(2) == 0 {
					q := &backend.Request{}
					q.Begin()
					d.Irecv(q, make([]byte, 100000), own.IntN(d.Size()), 1)
				}
			}
			if c.Rank() == victim {
				die()
			}
			at := 0
			for cur.WorldRank(at) != victim {
				at++
			}
			_, err := cur.Recv(nil, nil, at, 5)
			must.OK(lost(err, victim))
			for _, d := range open {
				d.Close()
			}
			id++
			next := must.Get(shrink(cur, id, victim))
			if cur != c {
				cur.Close()
			}
			cur = next
			if err := works(cur); err != nil {
				return fmt.Errorf("after rank %d was lost: %w", victim, err)
			}
		}
		// The slots of the world and of the last one. The others said what they had closed
		// before they ended.
		return slotsUsed(c, 2)
	}

	// A running rank is declared lost. It finds out, whatever it is doing, and the others go on.
	programs["declared"] = func(c backend.Comm) error {
		const victim = 1
		why := &backend.Fault{Sentinel: backend.ErrInternal, Text: "because of the test"}
		err := sum(c, 1) // all have opened the backend
		if c.Rank() == 0 {
			time.AfterFunc(5*time.Millisecond, func() { c.(agree.Comm).Declare(victim, why) })
		}
		for err == nil {
			err = errors.Join(pass(c, 200000), sum(c, 100))
		}
		must.OK(lost(err, victim))
		if !strings.Contains(err.Error(), "declared lost by rank 0: internal error: because of the test") {
			return fmt.Errorf("%v does not name the rank and the reason", err)
		}
		c.(agree.Comm).Declare(victim, errors.New("once more"))
		if c.Rank() == victim {
			if !strings.Contains(err.Error(), fmt.Sprintf("rank %d was declared lost by rank 0", victim)) {
				return fmt.Errorf("%v does not name this rank", err)
			}
			s, err := c.(agree.Comm).Control(9)
			if err == nil {
				_, err = s.Recv(nil, nil, 0, 1)
			}
			return lost(err, victim)
		}
		d := must.Get(shrink(c, 5, victim))
		for range 20 {
			must.OK(works(d))
		}
		return d.Close()
	}
}

// One rank after the other ends by a signal, and the last one well.
func TestRanksDieOneAfterAnother(t *testing.T) {
	killed := 0
	for _, err := range run(t, "attrition", 7) {
		switch {
		case err == nil:
		case strings.Contains(err.Error(), "signal: killed"):
			killed++
		default:
			t.Error(err)
		}
	}
	if killed != 6 {
		t.Errorf("%d ranks were killed, want 6", killed)
	}
}

// It does so where copies between processes are forbidden, too.
func TestDeclaredRankFindsItselfLost(t *testing.T) {
	for _, nocopy := range []string{"", "1"} {
		t.Setenv("SHM_TEST_NOCOPY", nocopy)
		launch(t, "declared", 3)
	}
}
