package cohorttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Ranks whose program fails, and which leave the job by CloseWith.

// reason is the error of a rank that fails.
const reason = "open input.csv: no such file"

func failingScenarios() []scenario {
	var all []scenario
	add := func(name string, lost func(rank, size int) bool, op func(*Rank) func() error) {
		all = append(all, scenario{name: "failing/" + name, sizes: atLeast(2), alone: true, lost: lost, body: func(r *Rank) { failing(r, lost, op(r)) }})
	}
	each := func(op func(r *Rank) error) func(*Rank) func() error {
		return func(r *Rank) func() error { return func() error { return op(r) } }
	}
	barrier := each(func(r *Rank) error { return r.World.Barrier() })
	add("barrier", lastRank, barrier)
	add("first-rank", firstRank, barrier)
	add("two-ranks", func(rank, size int) bool { return rank >= size/2 }, barrier)
	add("allreduce", lastRank, each(func(r *Rank) error {
		buf := make([]float64, long)
		return cohort.Allreduce(r.World, buf, buf, cohort.Sum)
	}))
	add("derived", lastRank, each(func(r *Rank) error { return r.Comm.Barrier() }))
	add("receive", lastRank, each(func(r *Rank) error { return errorOf(cohort.Recv(r.World, make([]int32, 1), cohort.AnySource, 5)) }))
	add("send", lastRank, each(func(r *Rank) error { return cohort.Ssend(r.World, make([]float64, long), r.Size-1, 5) }))
	add("wait", lastRank, func(r *Rank) func() error {
		req := must(cohort.Irecv(r.World, make([]int32, 1), r.Size-1, 5))
		return func() error { return errorOf(req.Wait()) }
	})
	add("collective-wait", lastRank, func(r *Rank) func() error {
		if r.Rank == r.Size-1 {
			return nil
		}
		req := must(r.World.Ibarrier())
		return func() error { return errorOf(req.Wait()) }
	})
	// The failed rank holds a lock. What it guards may be half done, so nobody gets it.
	held := func(r *Rank, lock func() error) func() error {
		if r.Rank == r.Size-1 {
			r.OK(lock())
		}
		r.OK(r.World.Barrier())
		return func() error {
			err := lock()
			if err == nil {
				r.Errorf("the lock of a rank that has failed is granted")
			}
			return err
		}
	}
	add("window-lock", lastRank, func(r *Rank) func() error {
		w := must(cohort.NewWindow[int64](r.World, 10))
		return held(r, func() error { return errorOf(w.Lock(cohort.LockExclusive, 0)) })
	})
	add("computing", lastRank, each(func(r *Rank) error {
		for begun := time.Now(); time.Since(begun) < short; { // this rank learns of the failure at its next operation
		}
		return r.World.Barrier()
	}))
	return all
}

// failing has ranks fail while the others are in op, which they do not end without them. The operation, and all
// later ones on every communicator, return ErrPeerLost with the rank and the text of its error.
func failing(r *Rank, fails func(rank, size int) bool, op func() error) {
	var texts []string
	for rank := range r.Size {
		if fails(rank, r.Size) {
			texts = append(texts, fmt.Sprintf("rank %d failed: %s %d", rank, reason, rank))
		}
	}
	if r.World.Caps().Library != "" {
		jobFailed.Store(true)
	}
	r.OK(r.awaitAll("ready", fails))
	if fails(r.Rank, r.Size) {
		err := fmt.Errorf("%s %d", reason, r.Rank)
		if got := r.World.CloseWith(err); !errors.Is(got, err) {
			r.OK(fmt.Errorf("CloseWith returns %v, want %v", got, err))
		}
		r.OK(lostRank{r.Rank})
	}
	begun := time.Now()
	check := func(what string, err error) {
		named := func(text string) bool { return strings.HasSuffix(err.Error(), text) }
		if r.Is(err, cohort.ErrPeerLost, "%s", what).ok && !slices.ContainsFunc(texts, named) {
			r.Errorf("%s: %q does not end in one of %q", what, err, texts)
		}
	}
	check("an operation that needs the failed rank", op())
	if took := time.Since(begun); took > late {
		r.Errorf("it took %v to notice that a rank had failed", took)
	}
	check("Barrier after a rank has failed", r.World.Barrier())
	check("Barrier of a derived communicator after a rank has failed", r.Comm.Barrier())
	_, err := cohort.Recv(r.World, make([]int32, 1), cohort.AnySource, 6)
	check("Recv after a rank has failed", err)
	check("Send after a rank has failed", cohort.Send(r.World, make([]int32, 1), 0, 6))
}
