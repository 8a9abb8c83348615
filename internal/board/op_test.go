//go:build linux

package board

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// iallreduce is a nonblocking allreduce of n numbers.
func iallreduce(n int) *backend.Call {
	call := allreduce(n)
	call.Form = backend.Nonblocking
	return call
}

// put sets all numbers of a call, and sums returns what they have become.
func put(call *backend.Call, x int) {
	for i := range call.Count {
		binary.NativeEndian.PutUint64(call.Send[8*i:], uint64(x))
	}
}

func sums(call *backend.Call) []uint64 {
	all := make([]uint64, call.Count)
	for i := range all {
		all[i] = binary.NativeEndian.Uint64(call.Recv[8*i:])
	}
	return slices.Compact(all)
}

// TestManyOperationsAreUnderWay starts several, and then waits for them in another order
// on each rank. A blocking call comes in between.
func TestManyOperationsAreUnderWay(t *testing.T) {
	const ranks, many = 3, 13
	all := open(t, boards(t, ranks), 0)
	for round := range 10 {
		succeed(t, all, func(c *comm) error {
			ops, calls := make([]*Op, many), make([]*backend.Call, many)
			for i := range many {
				calls[i] = iallreduce(1 + i*256/many)
				put(calls[i], (i+1)<<c.rank)
				ops[i] = c.Start(calls[i])
				if (i+round)%11 == 5 {
					must.OK(barrier(c))
				}
			}
			for k := range many {
				i := (k*(c.rank+1) + round) % many
				for round%2 == 1 && !ops[i].Ready() {
				}
				must.OK(errors.Join(c.Await(nil, ops[i]), ops[i].Err()))
				if got := sums(calls[i]); len(got) != 1 || got[0] != uint64((i+1)*(1<<ranks-1)) {
					t.Errorf("operation %d: the sums are %v, want %d", i, got, (i+1)*(1<<ranks-1))
				}
				ops[i].Release()
			}
			return nil
		})
	}
}

// TestOperationsGoOnWhileAnyIsWaitedFor has one goroutine of each rank start operations, while others wait for
// them.
func TestOperationsGoOnWhileAnyIsWaitedFor(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	succeed(t, all, func(c *comm) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		for i := range 60 {
			call := iallreduce(4)
			put(call, i)
			o := c.Start(call)
			for range 2 {
				wg.Go(func() {
					c.Await(nil, o)
					if err := o.Err(); err != nil || sums(call)[0] != uint64(2*i) {
						t.Errorf("operation %d: %v, the sum is %d", i, err, sums(call))
					}
				})
			}
			if i%3 == 0 {
				must.OK(barrier(c))
			}
		}
		return nil
	})
}

// TestOnlyShortCallsBecomeOperations: all others are schedules.
func TestOnlyShortCallsBecomeOperations(t *testing.T) {
	c := open(t, boards(t, 1), 0)[0]
	user := iallreduce(1)
	user.Op = &backend.Op{Code: backend.OpUser, Commutative: true, Type: int64s, Apply: sum.Apply}
	wrong := iallreduce(1)
	wrong.Err = backend.ErrCount
	for name, call := range map[string]*backend.Call{"long": iallreduce(areaMost/8 + 1), "user's operation": user, "wrong arguments": wrong} {
		if c.Start(call) != nil {
			t.Errorf("a call with %s became an operation, want a schedule", name)
		}
	}
	c.Collective.CloseUnused()
	if c.Start(iallreduce(1)) != nil {
		t.Error("an operation starts after the slots are given back")
	}
}

// TestOperationMismatchIsTheSameOnAllRanks also has a blocking call on one rank.
func TestOperationMismatchIsTheSameOnAllRanks(t *testing.T) {
	for _, blocking := range []bool{false, true} {
		all := open(t, boards(t, 3), 0)
		for r, err := range each(all, func(c *comm) error {
			if c.rank == 2 && blocking {
				return barrier(c)
			}
			first := c.Start(iallreduce(1 + c.rank/2))
			last := c.Start(iallreduce(1))
			if last == nil { // the others have found the mismatch already
				last = first
			}
			c.Await(nil, last) // which goes no further than the first
			return errors.Join(last.Err(), first.Err())
		}) {
			if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "rank 2") {
				t.Errorf("blocking %v: rank %d: %v, want ErrMismatch that names rank 2", blocking, r, err)
			}
		}
	}
}

// TestOperationEndsWithoutOthers is the fate of three operations at which rank 2 never arrives.
func TestOperationEndsWithoutOthers(t *testing.T) {
	fault := &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "because of the test"}
	for _, c := range []struct {
		name string
		make func(all []*comm)
		want error
		text string
	}{
		{"deadline", func([]*comm) {}, backend.ErrTimeout, "in Iallreduce(type int64, count 1, op sum) for ranks that had not arrived: 2"},
		{"gone", func(all []*comm) { all[2].gone.Store(true) }, backend.ErrPeerLost, "is gone"},
		{"ended", func(all []*comm) { all[0].ended.Store(fault) }, backend.ErrPeerLost, fault.Text},
		{"broken", func(all []*comm) { all[0].cause.Store(fault) }, backend.ErrPeerLost, fault.Text},
		{"closed", func(all []*comm) { all[0].closed.Store(true) }, backend.ErrClosed, "closed"},
	} {
		all := open(t, boards(t, 3), 0)
		var ops [3]*Op
		for i := range ops {
			ops[i] = all[0].Start(iallreduce(1))
			all[1].Start(iallreduce(1))
		}
		c.make(all)
		if c.want == backend.ErrTimeout {
			if ops[1].Ready() {
				t.Errorf("%s: ready", c.name)
			}
			if err := ops[1].End(&backend.Fault{Sentinel: backend.ErrTimeout, Text: "after the test"}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		for _, i := range []int{1, 2, 0} {
			if err := ops[i].Err(); !ops[i].Ready() || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: operation %d: %v, want %v with %q", c.name, i, err, c.want, c.text)
			}
		}
		if _, err := all[0].Run(&backend.Bound{Timeout: time.Minute}, allreduce(1)); c.name != "deadline" && !errors.Is(err, c.want) {
			t.Errorf("%s: a blocking call after that: %v", c.name, err)
		}
	}
}

// TestPersistentOperationsStartInAnyOrder has each rank start them in its own order, between other calls. Those
// for which there are no slots are schedules, and Close gives all slots back.
func TestPersistentOperationsStartInAnyOrder(t *testing.T) {
	const ranks = 2
	bs := boards(t, ranks)
	all := open(t, bs, 0)
	succeed(t, all, func(c *comm) error {
		ops, calls := make([]backend.Operation, persistentMost), make([]*backend.Call, persistentMost)
		for i := range calls {
			calls[i] = allreduce(1 + 100*(i%2))
			calls[i].Form = backend.Persistent
			o, err := c.Persistent(calls[i])
			if o == nil {
				return fmt.Errorf("operation %d has no slots: %v", i, err)
			}
			ops[i] = o
		}
		if o, err := c.Persistent(calls[0]); o != nil || err != nil {
			t.Errorf("an operation too many: %v, %v", o, err)
		}
		for round := range 30 {
			order := rand.New(rand.NewPCG(uint64(round), uint64(c.rank))).Perm(len(ops))
			for _, i := range order {
				put(calls[i], (round+i)<<c.rank)
				ops[i].Start()
				runtime.Gosched()
			}
			must.OK(barrier(c))
			for _, i := range order {
				must.OK(errors.Join(c.Await(nil, ops[i]), ops[i].Err()))
				if got := sums(calls[i]); len(got) != 1 || got[0] != uint64((round+i)*(1<<ranks-1)) {
					t.Errorf("round %d, operation %d: the sums are %v, want %d", round, i, got, (round+i)*(1<<ranks-1))
				}
			}
		}
		return nil
	})
	for r, c := range all {
		c.Collective.Close()
		if i := slices.IndexFunc(bs[r].users, func(s *Collective) bool { return s != nil && !s.shut(gateUnused, gateOutside) }); i >= 0 {
			t.Errorf("rank %d: slots %d are still in use", r, i)
		}
	}
}

// One goroutine gives an operation up, and has not said why yet. Another one that waits for the next operation ends with
// the same reason, and not with the loss of a rank that is there.
func TestOperationBehindOneThatIsGivenUpEndsWithItsReason(t *testing.T) {
	c := open(t, boards(t, 2), 1)[0]
	one, two := c.Start(iallreduce(1)), c.Start(iallreduce(1))
	if !one.giveUp(&backend.Fault{Sentinel: backend.ErrTimeout, Text: "given up"}) {
		t.Fatal("the first operation is complete")
	}
	if !two.Ready() {
		t.Fatal("the second operation goes on")
	}
	if err := two.Err(); !errors.Is(err, backend.ErrTimeout) {
		t.Errorf("the second operation: %v, want %v", err, backend.ErrTimeout)
	}
	if err := c.Over(); !errors.Is(err, backend.ErrTimeout) {
		t.Errorf("the communicator: %v, want %v", err, backend.ErrTimeout)
	}
}
