//go:build linux

package board

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// rooted returns rank's call of a rooted collective of n numbers, with data that follow from the number of the
// call, and a function that checks what the rank has got.
func rooted(coll backend.Coll, rank, ranks, root, n, number int) (*backend.Call, func() error) {
	call := &backend.Call{Coll: coll, Root: root, Type: int64s, Count: n}
	value := func(from, to, i int) uint64 { return uint64(number*1_000_000 + from*10_000 + to*1000 + i) }
	fill := func(blocks int, value func(block, i int) uint64) []byte {
		b := make([]byte, 8*n*blocks)
		for k := range blocks * n {
			binary.NativeEndian.PutUint64(b[8*k:], value(k/n, k%n))
		}
		return b
	}
	var want []byte
	switch coll {
	case backend.Bcast:
		want = fill(1, func(_, i int) uint64 { return value(root, 0, i) })
		if call.Recv = make([]byte, 8*n); rank == root {
			copy(call.Recv, want)
		}
	case backend.Scatter:
		if call.Recv = make([]byte, 8*n); rank == root {
			call.Send = fill(ranks, func(block, i int) uint64 { return value(root, block, i) })
		}
		want = fill(1, func(_, i int) uint64 { return value(root, rank, i) })
	case backend.Reduce, backend.Gather:
		call.Send = fill(1, func(_, i int) uint64 { return value(rank, 0, i) })
		if rank != root {
			break
		}
		want = fill(ranks, func(block, i int) uint64 { return value(block, 0, i) })
		if coll == backend.Reduce {
			want = fill(1, func(_, i int) (sum uint64) {
				for r := range ranks {
					sum += value(r, 0, i)
				}
				return sum
			})
		}
		call.Recv = make([]byte, len(want))
	}
	if coll == backend.Reduce {
		call.Op = sum
	}
	return call, func() error {
		if want != nil && string(call.Recv) != string(want) {
			return fmt.Errorf("call %d, %v: rank %d has %v, want %v", number, call.Fingerprint(), rank, call.Recv, want)
		}
		return nil
	}
}

// give lists the collectives in which some ranks only give data, and reports whether rank is one of them.
var give = map[backend.Coll]func(rank, root int) bool{
	backend.Bcast:   func(rank, root int) bool { return rank == root },
	backend.Scatter: func(rank, root int) bool { return rank == root },
	backend.Reduce:  func(rank, root int) bool { return rank != root },
	backend.Gather:  func(rank, root int) bool { return rank != root },
}

// Ranks that only give data return although no other rank has arrived, as often as they may be ahead. The others
// get the data of each call.
func TestRanksThatOnlyGiveDataDoNotWait(t *testing.T) {
	const ranks, root = 3, 1
	for coll, gives := range give {
		for _, n := range []int{1, 4, 5, 80} { // in the line of the slot, or beside it
			all := open(t, boards(t, ranks), 0)
			for _, early := range []bool{true, false} {
				succeed(t, all, func(c *comm) error {
					if gives(c.rank, root) != early {
						return nil
					}
					for number := range ahead {
						call, check := rooted(coll, c.rank, ranks, root, n, number)
						must.Get(c.Run(&backend.Bound{Timeout: time.Minute}, call))
						must.OK(check())
					}
					return nil
				})
			}
			if err := errors.Join(each(all, barrier)...); err != nil {
				t.Error(err)
			}
		}
	}
}

// A rank waits before a call for ranks that are too many calls behind it, and in every call if Check is set.
func TestRankIsNotTooFarAhead(t *testing.T) {
	for _, check := range []bool{false, true} {
		for name, make := range map[string]func(number int) *backend.Call{
			"Bcast": func(number int) *backend.Call {
				call, _ := rooted(backend.Bcast, 0, 2, 0, 1, number)
				return call
			},
			"NeighborAllgather": func(int) *backend.Call { // without neighbors
				return &backend.Call{Coll: backend.NeighborAllgather, Root: -1, Type: int64s, Neighbors: &backend.Neighbors{}}
			},
		} {
			bs := boards(t, 2)
			bs[0].cfg.Check = check
			c := open(t, bs, 0)[0]
			for number := range 20 {
				_, err := c.Run(&backend.Bound{Timeout: time.Millisecond}, make(number))
				if err == nil {
					continue
				}
				if want := map[bool]int{false: ahead, true: 0}[check]; number != want || !errors.Is(err, backend.ErrTimeout) || !strings.Contains(err.Error(), "had not arrived: 1") {
					t.Errorf("%s, Check %v: call %d: %v, want ErrTimeout in call %d that names rank 1", name, check, number, err, want)
				}
				break
			}
		}
	}
}

// A rank's time ends in a call. Another rank waits in the call before, where the first one did not wait, for a third rank:
// only this one counts as a rank that had not arrived.
func TestLateRankNamesRanksOneCallBehindApart(t *testing.T) {
	all := open(t, boards(t, 3), 0)
	gather, _ := rooted(backend.Gather, 1, 3, 0, 1, 0)
	must.Get(all[1].Run(nil, gather))
	atRoot, _ := rooted(backend.Gather, 0, 3, 0, 1, 0)
	all[0].arrive(atRoot)
	_, err := all[1].Run(&backend.Bound{Timeout: 1}, allreduce(1))
	if want := "had not arrived: 2, and for ranks that had arrived at the collective before: 0"; !errors.Is(err, backend.ErrTimeout) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want ErrTimeout with %q", err, want)
	}
}

// Ranks make the same calls, blocking and nonblocking, at different speeds.
func TestRanksAtDifferentSpeedsGetTheirData(t *testing.T) {
	const ranks = 3
	calls := 20_000
	if testing.Short() {
		calls = 2000
	}
	all := open(t, boards(t, ranks), 0)
	seed := rand.Uint64()
	for r, err := range each(all, func(c *comm) error {
		plan, speed := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, uint64(c.rank+1)))
		for number := range calls {
			coll := []backend.Coll{backend.Bcast, backend.Scatter, backend.Reduce, backend.Gather, backend.Barrier, backend.Allreduce}[plan.IntN(6)]
			root, n := plan.IntN(ranks), []int{0, 1, 4, 5, 60, 300}[plan.IntN(6)]
			for range speed.IntN(4) * speed.IntN(4) {
				runtime.Gosched()
			}
			switch coll {
			case backend.Barrier:
				must.OK(barrier(c))
				continue
			case backend.Allreduce: // nonblocking; the next call may come before it is complete
				call := iallreduce(1 + n/2)
				put(call, number+c.rank)
				o := c.Start(call)
				if speed.IntN(2) == 0 {
					must.OK(barrier(c))
				} else if err := errors.Join(c.Await(nil, o), o.Err(), barrier(c)); err != nil {
					return err
				}
				o.Ready()
				if got := sums(call); len(got) != 1 || got[0] != uint64(ranks*number+ranks*(ranks-1)/2) {
					return fmt.Errorf("call %d: the sums are %v, want %d", number, got, ranks*number+ranks*(ranks-1)/2)
				}
				o.Release()
				continue
			}
			call, check := rooted(coll, c.rank, ranks, root, n, number)
			must.Get(c.Run(nil, call))
			must.OK(check())
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("seed %d: rank %d: %v", seed, r, err)
		}
	}
}

// Two roots that do not wait make different calls. Each way of finding out gives the same error.
func TestMismatchIsFoundAfterTheCall(t *testing.T) {
	for name, find := range map[string]func(c *comm) error{
		"the next call": barrier,
		"Verify": func(c *comm) error {
			for {
				if err := c.Verify(); err != nil || c.Cause() != nil {
					return errors.Join(err, c.Over())
				}
			}
		},
		"Quiesce": func(c *comm) error { return c.Quiesce() },
	} {
		all := open(t, boards(t, 2), 0)
		for r, err := range each(all, func(c *comm) error {
			call, _ := rooted(backend.Bcast, c.rank, 2, c.rank, 1, 0)
			if _, err := c.Run(nil, call); err != nil {
				return fmt.Errorf("the root waits: %w", err)
			}
			return find(c)
		}) {
			if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "root 1") || strings.Contains(err.Error(), "the root waits") {
				t.Errorf("%s: rank %d: %v, want ErrMismatch that names both calls", name, r, err)
			}
		}
	}
}

// A rank closes communicators one after the other, beside a rank that makes none of its calls. It waits once. After
// another call it waits again: until it knows of the mismatch, or for a second.
func TestClosesWaitOnceForRankThatDoesNotCome(t *testing.T) {
	const comms = 8
	boards := boards(t, 2)
	bcast := func(all []*comm, r int) {
		call, _ := rooted(backend.Bcast, r, 2, r, 1, 0)
		if _, err := all[r].Run(nil, call); err != nil {
			t.Error(err)
		}
	}
	var opened [comms][]*comm
	for id := range opened {
		opened[id] = open(t, boards, uint32(id))
		bcast(opened[id], 0)
	}
	begun := time.Now()
	for _, all := range opened {
		if err := all[0].Quiesce(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); took > comms/2*time.Second { // generous for a slow machine
		t.Errorf("%d Closes took %v; they wait for a second", comms, took)
	}
	all := open(t, boards, comms)
	bcast(all, 0)
	time.AfterFunc(50*time.Millisecond, func() { bcast(all, 1) })
	if begun = time.Now(); all[0].Quiesce() == nil && time.Since(begun) < 500*time.Millisecond {
		t.Error("Close did not wait for the other rank, although this rank has made a call")
	}
}

// Close waits for the ranks that have not arrived at a call in which this one did not wait, unless they never will.
func TestSettleWaitsForTheOthers(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	call, _ := rooted(backend.Bcast, 0, 2, 0, 1, 0)
	if _, err := all[0].Run(nil, call); err != nil {
		t.Fatal(err)
	}
	if (*quiescing)(all[0].Collective).Ready() {
		t.Error("rank 1 has not arrived, and Quiesce would not wait")
	}
	all[1].gone.Store(true)
	if err := all[0].Quiesce(); err != nil {
		t.Errorf("the other rank is gone: %v", err)
	}
	all[1].gone.Store(false)
	other, _ := rooted(backend.Bcast, 1, 2, 0, 1, 0)
	if _, err := all[1].Run(nil, other); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Quiesce(); err != nil || len(all[0].deferred()) != 0 {
		t.Errorf("all have arrived: %v; the calls %x are kept", err, all[0].deferred())
	}
}

// Close waits for the ranks that have not ended a neighborhood call that has ended here, and returns what they have found.
func TestQuiesceWaitsForNeighborhoodCallsToEnd(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	var calls [2]backend.Call
	for r, c := range all {
		calls[r] = backend.Call{Coll: backend.NeighborAllgather, Root: -1, Neighbors: &backend.Neighbors{}, Ended: func() {}}
		if done, err := c.Run(nil, &calls[r]); done || err != nil {
			t.Fatalf("rank %d: done %v, %v; want a schedule", r, done, err)
		}
	}
	calls[0].Ended()
	if (*quiescing)(all[0].Collective).Ready() {
		t.Error("rank 1 is in the call, and Quiesce would not wait")
	}
	all[1].Break(&backend.Fault{Sentinel: backend.ErrMismatch, Text: "a wrong length"})
	calls[1].Ended()
	if err := all[0].Quiesce(); !errors.Is(err, backend.ErrMismatch) {
		t.Errorf("rank 1 has found a wrong length: %v", err)
	}
}
