package cohorttest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort"
)

// losses returns the scenarios in which ranks die or fail while the others are in an operation.
func losses() (all []scenario) {
	lastHalf := func(rank, size int) bool { return rank >= size/2 }
	barrier := calls(func(r *Rank) error { return r.World.Barrier() })
	allreduce := calls(func(r *Rank) error {
		buf := make([]float64, long)
		return cohort.Allreduce(r.World, buf, buf, cohort.Sum)
	})
	anySource := calls(func(r *Rank) error { return errorOf(cohort.Recv(r.World, make([]int32, 1), cohort.AnySource, 5)) })
	receive := waits(func(r *Rank) (*cohort.Request, error) { return cohort.Irecv(r.World, make([]int32, 1), r.Size-1, 5) })
	send := calls(func(r *Rank) error { return cohort.Ssend(r.World, make([]float64, 1<<20), r.Size-1, 5) })
	for _, s := range []struct {
		name  string
		least int // ranks
		lost  func(rank, size int) bool
		how   loss
		op    waiting
	}{
		{"faults/dead-first-rank", 2, firstRank, death, allreduce},
		{"faults/dead-out-of-memory", 2, lastRank, loss{outOfMemory, died}, barrier},
		{"faults/failed-rank", 2, lastRank, loss{exit, died}, barrier},
		// The survivors wait in a communicator that the dead rank is not a member of. Their operations end all the
		// same: the ranks that they wait for may wait for the dead one.
		{"faults/dead-in-derived", 3, lastRank, death, func(r *Rank) func() error {
			c := must(r.World.Split(r.Rank/(r.Size-1), 0))
			return func() error { return errorOf(cohort.Recv(c, make([]int32, 1), cohort.AnySource, 5)) }
		}},
		{"faults/dead-in-collective", 2, lastRank, death, barrier},
		{"faults/dead-in-nonblocking", 2, lastRank, death, waits(iallreduce)},
		{"faults/dead-in-receive", 2, lastRank, death, receive},
		{"faults/dead-in-any-source", 2, lastRank, death, anySource},
		{"faults/dead-in-long-send", 2, lastRank, death, send},
		{"faults/dead-receiver-of-view", 2, lastRank, loss{dieWithViews(cohort.IrecvView[int64]), died}, calls(func(r *Rank) error {
			v, _ := numbered(r.longView(), r.Rank)
			return untilFails(func() error { return cohort.SendView(r.World, v, r.Size-1, 5) })
		})},
		{"faults/dead-sender-of-view", 2, lastRank, loss{dieWithViews(cohort.IsendView[int64]), died}, calls(func(r *Rank) error {
			v, _ := numbered(r.longView(), r.Rank)
			return untilFails(func() error { return errorOf(cohort.RecvView(r.World, v, r.Size-1, 5)) })
		})},
		{"faults/dead-with-lock", 2, lastRank, death, locks(cohort.LockExclusive)},
		{"faults/dead-with-shared-lock", 2, lastRank, death, locks(cohort.LockShared)},
		{"faults/dead-in-fence", 2, lastRank, death, onWindow(func(_ *Rank, w *cohort.Window[int64]) error { return w.Fence() })},
		{"faults/dead-in-allocation", 2, lastRank, death, calls(func(r *Rank) error { return errorOf(cohort.AllocateShared[int64](r.World, 1000)) })},
		{"faults/dead-target", 2, lastRank, death, onWindow(func(r *Rank, w *cohort.Window[int64]) error {
			return untilFails(func() error { return errorOf(w.FetchAndOp(1, r.Size-1, 0, cohort.Sum)) }) // its memory may be there for a while
		})},
		{"faults/dead-between-tests", 2, lastRank, death, looks(func(_ *Rank, q, _ *cohort.Request) error { return errorOf(q.Test()) })},
		{"faults/dead-between-collective-tests", 2, lastRank, death, looks(func(_ *Rank, _, q *cohort.Request) error { return errorOf(q.Test()) })},
		{"faults/dead-between-probes", 2, lastRank, death, looks(func(r *Rank, _, _ *cohort.Request) error { return errorOf(r.World.Iprobe(r.Size-1, 8)) })},
		{"faults/dead-between-selects", 2, lastRank, death, looks(func(_ *Rank, q, _ *cohort.Request) error {
			<-q.Done()
			return errorOf(q.Wait())
		})},
		{"faults/dead-between-lists", 2, lastRank, death, looks(func(r *Rank, q, _ *cohort.Request) error {
			if len(r.World.Lost()) == 0 {
				return nil
			}
			return errorOf(q.Wait())
		})},
		{"faults/dead-neighbor", 2, lastRank, death, neighboring(func(r *Rank) (sources, dests []int) { return []int{r.prev}, []int{r.next} })},
		{"faults/dead-without-neighbors", 2, lastRank, death, neighboring(noEdges)},
		{"faults/dead-beside-neighbors", 3, lastRank, death, neighboring((*Rank).ringOfOthers)},

		{"failing/barrier", 2, lastRank, failure, barrier},
		{"failing/first-rank", 2, firstRank, failure, barrier},
		{"failing/two-ranks", 2, lastHalf, failure, barrier},
		{"failing/allreduce", 2, lastRank, failure, allreduce},
		{"failing/derived", 2, lastRank, failure, calls(func(r *Rank) error { return r.Comm.Barrier() })},
		{"failing/receive", 2, lastRank, failure, anySource},
		{"failing/send", 2, lastRank, failure, send},
		{"failing/wait", 2, lastRank, failure, receive},
		{"failing/collective-wait", 2, lastRank, failure, waits(iallreduce)},
		// What the lock of the failed rank guards may be half done, so nobody gets it.
		{"failing/window-lock", 2, lastRank, failure, locks(cohort.LockExclusive)},
		{contextEnds, 2, lastRank, loss{endContext, died}, calls(func(r *Rank) error { return untilFails(r.World.Barrier) })},
		{"failing/computing", 2, lastRank, failure, calls(func(r *Rank) error {
			for begun := time.Now(); time.Since(begun) < short; { // this rank learns of the failure at its next operation
			}
			return r.World.Barrier()
		})},
	} {
		all = append(all, scenario{name: s.name, sizes: atLeast(s.least), alone: true, lost: s.lost, body: func(r *Rank) { lose(r, s.lost, s.how, s.op(r)) }})
	}
	return all
}

// waiting prepares what the others do when a rank is lost. All ranks call it. It returns the operation, which needs that
// rank.
type waiting = func(r *Rank) func() error

// calls needs no preparation.
func calls(op func(r *Rank) error) waiting {
	return func(r *Rank) func() error { return func() error { return op(r) } }
}

// waits starts an operation before the loss on all ranks but the last, and waits for it.
func waits(start func(r *Rank) (*cohort.Request, error)) waiting {
	return func(r *Rank) func() error {
		if r.Rank == r.Size-1 {
			return nil
		}
		q := must(start(r))
		return func() error { return errorOf(q.Wait()) }
	}
}

func iallreduce(r *Rank) (*cohort.Request, error) {
	return cohort.Iallreduce(r.World, make([]float64, 100), make([]float64, 100), cohort.Sum)
}

// onWindow needs a window.
func onWindow(op func(r *Rank, w *cohort.Window[int64]) error) waiting {
	return func(r *Rank) func() error {
		w := onesided[int64](r, r.World, 1)
		return func() error { return op(r, w) }
	}
}

// locks waits for a lock that the last rank holds.
func locks(kind cohort.LockKind) waiting {
	return func(r *Rank) func() error {
		w := onesided[int64](r, r.World, 1)
		if r.Rank == r.Size-1 {
			must(w.Lock(kind, 0))
		}
		r.OK(r.World.Barrier())
		return func() error { return errorOf(w.Lock(cohort.LockExclusive, 0)) }
	}
}

// looks has the others compute, and look at a receive from the last rank, at a collective or at something else ten times
// a second. No goroutine of theirs waits. Learning of the death depends on none of the looks.
func looks(look func(r *Rank, recv, coll *cohort.Request) error) waiting {
	return func(r *Rank) func() error {
		if r.Rank == r.Size-1 {
			return nil
		}
		recv, coll := must(cohort.Irecv(r.World, make([]int64, 1), r.Size-1, 7)), must(iallreduce(r))
		return func() error {
			return untilFails(func() error {
				for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
				}
				return look(r, recv, coll)
			})
		}
	}
}

// neighboring makes calls on a graph, in which the others may need nothing from the last rank.
func neighboring(edges func(r *Rank) (sources, dests []int)) waiting {
	return func(r *Rank) func() error {
		sources, dests := edges(r)
		g := must(r.World.GraphCreate(sources, dests, false))
		return func() error {
			return untilFails(func() error { return cohort.NeighborAllgather(g, []int{1}, make([]int, len(sources))) })
		}
	}
}

// untilFails repeats a call that may succeed for some time after the loss. It returns the error.
func untilFails(call func() error) (err error) {
	for begun := time.Now(); err == nil && time.Since(begun) < late; {
		err = call()
	}
	return err
}

// loss is how ranks are lost.
type loss struct {
	end  func(r *Rank)
	says string // what errors say of a lost rank
}

const (
	died   = "rank %d"
	reason = "open input.csv: no such file" // of a rank that fails
)

var (
	death   = loss{perish, died}
	failure = loss{fail, "rank %[1]d failed: " + reason + " %[1]d"}
)

// lose ends the ranks that the scenario loses, when all ranks have come so far, while the others are in op or about to
// call it. The operation, and all later ones on every communicator, return ErrPeerLost naming one of the ranks.
func lose(r *Rank, lost func(rank, size int) bool, how loss, op func() error) {
	if r.World.Caps().Library != "" {
		jobFailed.Store(true)
	}
	r.endLost(lost, how.end)
	begun := time.Now()
	check := func(what string, err error) {
		if !r.Is(err, cohort.ErrPeerLost, "%s without a rank", what).opError().ok {
			return
		}
		for rank := range r.Size {
			if text := fmt.Sprintf(how.says, rank); lost(rank, r.Size) && (strings.HasSuffix(err.Error(), text) || how.says == died && strings.Contains(err.Error(), text)) {
				return
			}
		}
		r.Errorf("%s: the error does not say %q of a lost rank: %v", what, how.says, err)
	}
	check("an operation", op())
	if took := time.Since(begun); took > late {
		r.Errorf("it took %v to notice the loss", took)
	}
	check("Barrier", r.World.Barrier())
	check("Barrier of a derived communicator", r.Comm.Barrier())
	check("Recv", errorOf(cohort.Recv(r.World, make([]int32, 1), cohort.AnySource, 6)))
	check("Send", cohort.Send(r.World, make([]int32, 1), 0, 6))
}

// endLost ends the ranks that are lost when all ranks have come so far and need those no more.
func (r *Rank) endLost(lost func(rank, size int) bool, end func(r *Rank)) {
	r.OK(r.awaitAll("ready", lost))
	if lost(r.Rank, r.Size) {
		end(r)
	}
}

// deadWithForgotten has a rank die. The others have started an operation, which completes, and do not wait for it any
// more. Close does not blame them.
func deadWithForgotten(r *Rank) {
	must(r.World.Ibarrier())
	r.OK(r.World.Barrier())
	lose(r, lastRank, death, r.World.Barrier)
	r.only(r.World.Close(), "Close after the loss", cohort.ErrPeerLost)
}

// lostRank ends a rank that the scenario loses: a goroutine rank panics with it, or
// returns it as its error.
type lostRank struct{ rank int }

// Error implements error.
func (l lostRank) Error() string { return fmt.Sprintf("the scenario loses rank %d", l.rank) }

// perish ends this rank: a process by SIGKILL, a goroutine by a panic.
func perish(r *Rank) {
	if r.World.Caps().Processes {
		p := must(os.FindProcess(os.Getpid()))
		r.OK(p.Kill())
		select {}
	}
	panic(lostRank{r.Rank})
}

// outOfMemory ends this rank by running out of memory, which ends its process. A
// goroutine rank, and a process whose memory cannot be limited, ends by perish instead.
func outOfMemory(r *Rank) {
	if !r.World.Caps().Processes {
		perish(r)
	}
	err := limitMemory()
	if errors.Is(err, errors.ErrUnsupported) {
		perish(r)
	}
	r.OK(err)
	for {
		hoard = append(hoard, make([]byte, 16<<20))
	}
}

var hoard [][]byte

// exit ends this rank's program: a process by os.Exit.
func exit(r *Rank) {
	if r.World.Caps().Processes {
		os.Exit(7)
	}
	r.OK(lostRank{r.Rank})
}

// fail leaves the job by CloseWith.
func fail(r *Rank) {
	err := fmt.Errorf("%s %d", reason, r.Rank)
	if got := r.World.CloseWith(err); !errors.Is(got, err) {
		r.OK(fmt.Errorf("CloseWith returns %v, want %v", got, err))
	}
	r.OK(lostRank{r.Rank})
}

// contextEnds is the name of the scenario in which the context of a rank's world is canceled.
const contextEnds = "failing/context"

// endContext ends the context of this rank's world, and leaves the job with the error that follows from that. A goroutine
// rank, which has the same context as the others, fails instead.
func endContext(r *Rank) {
	if r.job.end == nil {
		fail(r)
	}
	r.job.end()
	_ = r.World.CloseWith(untilFails(r.World.Barrier))
	r.OK(lostRank{r.Rank})
}

// longView is the length of a view that takes many pieces.
func (r *Rank) longView() int { return r.pick(1<<18, 1<<20) }

// dieWithViews ends this rank while it receives long views from the others, or sends them.
func dieWithViews(start func(c *cohort.Comm, v cohort.View[int64], other, tag int) (*cohort.Request, error)) func(r *Rank) {
	return func(r *Rank) {
		var q *cohort.Request
		for other := range r.Size - 1 {
			v, _ := numbered(r.longView(), other)
			q = must(start(r.World, v, other, 5))
		}
		for range 20 { // a few pieces of some messages
			q.Test()
		}
		perish(r)
	}
}

// abortStatus is the code that rank 0 aborts the job with, and its exit status.
const abortStatus = 7

// abort has rank 0 abort the job while the others wait in different operations.
func abort(r *Rank) {
	r.endLost(firstRank, func(r *Rank) {
		r.OK(r.World.Abort(abortStatus)) // a process ends here
		if r.World.Caps().Processes {
			r.Errorf("Abort has returned in a process")
		}
		r.OK(lostRank{r.Rank})
	})
	var err error
	if r.Rank%2 == 0 {
		err = r.World.Barrier()
	} else {
		_, err = cohort.Recv(r.Comm, make([]int32, 1), cohort.AnySource, cohort.AnyTag)
	}
	r.Is(err, cohort.ErrPeerLost, "an operation during Abort").names("rank 0", fmt.Sprintf("code %d", abortStatus))
}

// leftEarly has a rank leave in good order while the others stay. Operations that need it
// fail, and all others go on.
func leftEarly(r *Rank) {
	last := r.Size - 1
	rest := must(r.World.Split(r.Rank/last, 0))
	if r.Rank == last {
		// A message sent before leaving can still be received.
		r.OK(cohort.Send(r.World, []int32{77}, 0, 1))
		r.OK(r.World.Close())
		r.Is(r.World.Barrier(), cohort.ErrClosed, "Barrier after Close")
		return
	}
	if r.Rank == 0 {
		got := make([]int32, 1)
		must(cohort.Recv(r.World, got, last, 1))
		equal(r, got[0], 77, "the last message of a rank that has left")
	}
	r.Is(cohort.Ssend(r.World, make([]float64, long), last, 3), cohort.ErrPeerLost, "Ssend to a rank that leaves without receiving")
	r.Is(errorOf(cohort.Recv(r.World, make([]int32, 1), last, 2)), cohort.ErrPeerLost, "Recv from a rank that has left").names(rankText(last)+" has", "left the job")
	for k := range 20 {
		equal(r, must(cohort.AllreduceOne(rest, k, cohort.Sum)), k*last, "sum without the rank that has left")
	}
	r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier with a rank that has left")
}

// stopped has the last rank stay away from a collective: a process is stopped by a signal, and a goroutine rank is in an
// endless loop. It occupies a processor that the others may need to find out that their deadline has passed. The others'
// calls end at their deadline with an error naming it, and when the rank is back the job goes on.
func stopped(r *Rank) {
	process, pid, word, last := r.World.Caps().Processes, make([]int64, 1), make([]int64, 1), r.Size-1
	c := must(r.Comm.Dup())
	rest := must(r.Comm.Split(r.Rank/last, 0))
	switch {
	case r.Rank == last:
		if process {
			r.OK(cohort.Send(r.Comm, []int64{int64(os.Getpid())}, 0, 1))
			r.OK(stopProcess(os.Getpid()))
		}
		for !process && !r.job.resumed.Load() {
		}
		must(cohort.Recv(r.Comm, word, 0, 2))
	default:
		if r.Rank == 0 && process {
			must(cohort.Recv(r.Comm, pid, last, 1))
		}
		d, begun, cancel := deadline(c)
		err := cohort.Bcast(d, make([]float64, long), 0)
		kept(r, begun, "Bcast without rank %d", last)
		cancel()
		r.Is(err, cohort.ErrTimeout, "Bcast without rank %d", last).names(fmt.Sprint(last))
		r.OK(rest.Barrier())
		if r.Rank > 0 {
			break
		}
		if process {
			defer resume(int(pid[0]))()
		}
		r.job.resumed.Store(true)
		r.OK(cohort.Send(r.Comm, word, last, 2))
	}
	broken(r, c, "a deadline")
	r.OK(r.Comm.Barrier())
	r.OK(c.Close())
	r.OK(rest.Close())
}

// computing has a rank compute in a loop without a call, for several heartbeat limits if COHORT_HEARTBEAT is short. With
// GODEBUG=asyncpreemptoff=1 and one processor no other goroutine of its process runs meanwhile. It is not lost.
func computing(r *Rank) {
	least, word := 3*short, make([]uint64, 1)
	if limit, err := time.ParseDuration(os.Getenv("COHORT_HEARTBEAT")); err == nil {
		least = min(5*limit, time.Second)
	}
	r.OK(r.Comm.Barrier())
	if r.Rank == 0 {
		for n, took := uint64(1<<16), time.Duration(0); took < least; n *= 4 {
			begun := time.Now()
			for i := range n {
				word[0] = word[0]*6364136223846793005 + i
			}
			took = time.Since(begun)
		}
	}
	r.OK(cohort.Bcast(r.Comm, word, 0))
	r.OK(r.Comm.Barrier())
}
