//go:build linux

package board

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// Verify compares slots while the ranks go on and use them again for other calls. That is not a mismatch. Verify looks
// for rank 1's slots behind those of many communicators, so that the ranks make several calls meanwhile.
func TestVerifyIgnoresSlotsThatAreUsedAgain(t *testing.T) {
	bs := boards(t, 2)
	for id := range uint32(900) {
		if _, err := bs[1].Open(&comm{rank: 1, all: make([]*comm, 2)}, id+1, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	all := open(t, bs, 0)
	verified, ended := make(chan error), make(chan struct{})
	go func() {
		for ; ; runtime.Gosched() {
			select {
			case <-ended:
				verified <- nil
				return
			default:
				if err := all[0].Verify(); err != nil {
					verified <- err
					return
				}
			}
		}
	}()
	err := errors.Join(each(all, func(c *comm) error {
		for number := range 20_000 {
			if number/slotsDeep%2 == 1 {
				must.OK(barrier(c))
				continue
			}
			call, check := rooted(backend.Bcast, c.rank, 2, 0, 1, number)
			must.Get(c.Run(nil, call))
			must.OK(check())
		}
		return nil
	})...)
	close(ended)
	if err := errors.Join(err, <-verified); err != nil {
		t.Error(err)
	}
}

// One rank makes another call than the others, at a random place among random calls, or none does. All ranks find
// that mismatch, and no other: in a call, by Verify, or before they close the communicator.
func TestEveryRankFindsTheMismatch(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	bs := map[int][]*Board{2: boards(t, 2), 3: boards(t, 3), 4: boards(t, 4)}
	first := rand.Uint64()
	for seed := first; seed != first+seeds; seed++ {
		plan := rand.New(rand.NewPCG(seed, 0))
		ranks, calls := 2+plan.IntN(3), 1+plan.IntN(12)
		kinds := make([][2]int, calls) // the collective and the root
		random := func() [2]int { return [2]int{plan.IntN(6), plan.IntN(ranks)} }
		for i := range kinds {
			kinds[i] = random()
		}
		odd, at, other := plan.IntN(ranks+1), plan.IntN(calls), random()
		makes := func(rank, number int) *backend.Call {
			k := kinds[number]
			if rank == odd && number == at {
				k = other
			}
			switch coll := []backend.Coll{backend.Bcast, backend.Scatter, backend.Reduce, backend.Gather, backend.Barrier, backend.Allreduce}[k[0]]; coll {
			case backend.Barrier:
				return &backend.Call{Coll: coll, Root: -1}
			case backend.Allreduce:
				return allreduce(1)
			default:
				call, _ := rooted(coll, rank, ranks, k[1], 1, number)
				return call
			}
		}
		var want error
		for r := 1; r < ranks && want == nil; r++ {
			if a, b := makes(0, at).Fingerprint(), makes(r, at).Fingerprint(); a != b {
				want = backend.Mismatch(0, a, r, b)
			}
		}
		all := open(t, bs[ranks], uint32(seed))
		errs := each(all, func(c *comm) error {
			verify := rand.New(rand.NewPCG(seed, uint64(1+c.rank)))
			for number := range calls {
				if _, err := c.Run(nil, makes(c.rank, number)); err == ErrEnded {
					return c.Over()
				} else if err != nil {
					return err
				}
				if verify.IntN(3) == 0 {
					c.Verify()
				}
				must.OK(c.Over())
			}
			return nil
		})
		for r, err := range errs {
			if err == nil {
				err = all[r].Quiesce()
			}
			if want == nil && err != nil || want != nil && (err == nil || err.Error() != want.Error()) {
				t.Errorf("seed %d: rank %d of %d, %d calls: %v, want %v", seed, r, ranks, calls, err, want)
			}
		}
		for _, c := range all {
			c.Collective.Close()
		}
	}
}

// Several calls differ after the first that does. Verify reports the first.
func TestVerifyReportsFirstMismatch(t *testing.T) {
	for calls := 1; calls <= 2*slotsDeep; calls++ { // before, so that the slots begin anew in between
		all := open(t, boards(t, 2), 0)
		succeed(t, all, func(c *comm) error {
			for range calls {
				must.OK(barrier(c))
			}
			for number := range ahead {
				call, _ := rooted(backend.Bcast, c.rank, 2, c.rank, 1+number, number)
				must.Get(c.Run(nil, call))
			}
			return nil
		})
		const want = "rank 0 called Bcast(type int64, count 1, root 0), rank 1 called Bcast(type int64, count 1, root 1)"
		if err := all[0].Verify(); !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("after %d calls: %v, want %s", calls, err, want)
		}
	}
}

// Another rank may make any of the calls over messages instead, so Verify compares all of them with those.
func TestVerifyComparesAllCallsWithMessages(t *testing.T) {
	c := open(t, boards(t, 2), 0)[0]
	var want []uint32
	for number := range ahead {
		call, _ := rooted(backend.Bcast, 0, 2, 0, 1, number)
		call.Seq = uint32(10 + number)
		want = append(want, call.Seq)
		if _, err := c.Run(nil, call); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Verify(); err != nil || !slices.Equal(c.mixed, want) {
		t.Errorf("%v; compared are calls %v, want %v", err, c.mixed, want)
	}
}

// The slots that Verify reads may belong to a later communicator: once this rank was declared lost, or has closed its
// own. What it finds there is no mismatch.
func TestVerifyDoesNotTrustSlotsOfOthers(t *testing.T) {
	bs := boards(t, 2)
	all := open(t, bs, 0)
	for _, c := range all {
		call, _ := rooted(backend.Bcast, c.rank, 2, 0, 1, 0)
		if _, err := c.Run(nil, call); err != nil {
			t.Fatal(err)
		}
	}
	all[1].Collective.Close()
	next := open(t, bs[1:], 1)[0]
	if next.mine != all[1].mine {
		t.Fatal("the slots are not reused")
	}
	if err := barrier(next); err != nil {
		t.Fatal(err)
	}
	if err := all[0].Verify(); err != nil || all[0].Cause() != nil {
		t.Errorf("%v, and the communicator is broken: %v", err, all[0].Cause())
	}
}

// The last rank that arrives at a nonblocking call wakes the others, also if its call differs: it may not wait for
// its call for long.
func TestLastRankWakesOthersIfCallsDiffer(t *testing.T) {
	bs := boards(t, 2)
	woken := make(map[int]int)
	bs[0].cfg.Wake = func(rank int) { woken[rank]++ }
	all := open(t, bs, 0)
	all[1].Start(iallreduce(2))
	if all[0].Start(iallreduce(1)); woken[1] != 1 {
		t.Errorf("rank 1 was woken %d times, want once", woken[1])
	}
}
