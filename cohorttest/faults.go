package cohorttest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Ranks that die, stop, leave, or abort the job.

func faultScenarios() []scenario {
	test := func(_ *Rank, q *cohort.Request) error { return errorOf(q.Test()) }
	all := []scenario{
		{name: "faults/dead-first-rank", sizes: atLeast(2), alone: true, lost: firstRank, body: func(r *Rank) {
			die(r, 0, func() error {
				buf := make([]float64, long)
				return cohort.Allreduce(r.World, buf, buf, cohort.Sum)
			})
		}},
		{name: "faults/dead-in-derived", sizes: atLeast(3), alone: true, lost: lastRank, body: func(r *Rank) {
			// The survivors wait in a communicator that the dead rank is not a member
			// of. Their operations end all the same: the ranks that they wait for may
			// wait for the dead one.
			c := must(r.World.Split(r.Rank/(r.Size-1), 0))
			die(r, r.Size-1, func() error { return errorOf(cohort.Recv(c, make([]int32, 1), cohort.AnySource, 5)) })
		}},
		{name: "faults/abort", sizes: atLeast(2), alone: true, lost: firstRank, status: abortStatus, body: abort},
		{name: "faults/left-early", sizes: atLeast(2), alone: true, body: leftEarly},
		{name: "faults/stopped", sizes: atLeast(2), body: stopped},
		{name: "faults/spinning", sizes: atLeast(2), body: spinning},
		{name: "faults/computing", sizes: atLeast(2), body: computing},
	}
	for _, s := range []struct { // scenarios that lose the last rank
		name string
		body func(r *Rank)
	}{
		{"dead-in-collective", dead(func(r *Rank) error { return r.World.Barrier() })},
		{"dead-in-nonblocking", dead(func(r *Rank) error {
			buf := make([]float64, 100)
			return wait(cohort.Iallreduce(r.World, buf, buf, cohort.Sum))
		})},
		{"dead-in-receive", dead(func(r *Rank) error { return errorOf(cohort.Recv(r.World, make([]int32, 1), r.Size-1, 5)) })},
		{"dead-in-any-source", dead(func(r *Rank) error {
			return errorOf(cohort.Recv(r.World, make([]int32, 1), cohort.AnySource, 5))
		})},
		{"dead-in-long-send", dead(func(r *Rank) error { return cohort.Send(r.World, make([]float64, 1<<20), r.Size-1, 5) })},
		{"dead-receiver-of-view", deadInView(true)},
		{"dead-sender-of-view", deadInView(false)},
		{"dead-with-lock", deadWithLock(cohort.LockExclusive)},
		{"dead-with-shared-lock", deadWithLock(cohort.LockShared)},
		{"dead-in-fence", deadBefore(func(_ *Rank, w *cohort.Window[int64]) error { return w.Fence() })},
		{"dead-in-allocation", deadBefore(func(r *Rank, _ *cohort.Window[int64]) error {
			return errorOf(cohort.AllocateShared[int64](r.World, 1000))
		})},
		{"dead-target", deadBefore(func(r *Rank, w *cohort.Window[int64]) (err error) {
			for err == nil { // its memory may be there for a while
				_, err = w.FetchAndOp(1, r.Size-1, 0, cohort.Sum)
			}
			return err
		})},
		{"dead-between-tests", deadBetween(test)},
		{"dead-between-collective-tests", func(r *Rank) {
			if r.Rank == r.Size-1 {
				deadBetween(nil)(r)
			}
			q := must(cohort.Iallreduce(r.World, make([]float64, 100), make([]float64, 100), cohort.Sum))
			deadBetween(func(r *Rank, _ *cohort.Request) error { return test(r, q) })(r)
		}},
		{"dead-between-probes", deadBetween(func(r *Rank, _ *cohort.Request) error { return errorOf(r.World.Iprobe(r.Size-1, 8)) })},
		{"dead-between-selects", deadBetween(func(_ *Rank, q *cohort.Request) error {
			<-q.Done()
			return errorOf(q.Wait())
		})},
		{"dead-between-lists", deadBetween(func(r *Rank, q *cohort.Request) error {
			if len(r.World.Lost()) == 0 {
				return nil
			}
			return errorOf(q.Wait())
		})},
		{"dead-onesided-origin", deadOrigin},
		{"dead-out-of-memory", func(r *Rank) {
			dieBy(r, r.Size-1, outOfMemory, func() error { return r.World.Barrier() })
		}},
		{"dead-with-forgotten", deadWithForgotten},
		{"failed-rank", failedRank},
	} {
		all = append(all, scenario{name: "faults/" + s.name, sizes: atLeast(2), alone: true, lost: lastRank, body: s.body})
	}
	return all
}

// dead has the last rank die while the others are in an operation that needs it.
func dead(op func(r *Rank) error) func(r *Rank) {
	return func(r *Rank) { die(r, r.Size-1, func() error { return op(r) }) }
}

// die has one rank die while the others are in an operation that needs it, or about to
// call it. The operation, and all later ones, return ErrPeerLost naming the rank.
func die(r *Rank, victim int, op func() error) { dieBy(r, victim, perish, op) }

// dieBy does the same with another way to die.
func dieBy(r *Rank, victim int, end func(*Rank), op func() error) {
	ready(r, victim)
	if r.Rank == victim {
		end(r)
	}
	begun := time.Now()
	r.Is(op(), cohort.ErrPeerLost, "operation that needs the dead rank %d", victim).opError().names(fmt.Sprintf("rank %d", victim))
	if took := time.Since(begun); took > late {
		r.Errorf("it took %v to notice that rank %d was dead", took, victim)
	}
	err := r.World.Barrier()
	if !errors.Is(err, cohort.ErrPeerLost) && !errors.Is(err, cohort.ErrBroken) {
		r.Errorf("Barrier after a rank was lost: %v", err)
	}
	_, err = cohort.Recv(r.World, make([]int32, 1), victim, 6)
	if !errors.Is(err, cohort.ErrPeerLost) && !errors.Is(err, cohort.ErrBroken) {
		r.Errorf("Recv from a lost rank: %v", err)
	}
}

// deadWithForgotten has a rank die. The others have started an operation, which completes, and do not wait for it any
// more. Close does not blame them.
func deadWithForgotten(r *Rank) {
	must(r.World.Ibarrier())
	r.OK(r.World.Barrier())
	die(r, r.Size-1, func() error { return r.World.Barrier() })
	if err := r.World.Close(); err != nil && !errors.Is(err, cohort.ErrPeerLost) {
		r.Errorf("Close after the loss: %v", err)
	}
}

// deadBetween has a rank die while the others compute, and look at a receive from it, or at something else, ten times a
// second. No goroutine of theirs waits. Learning of the death depends on none of the looks.
func deadBetween(look func(r *Rank, q *cohort.Request) error) func(r *Rank) {
	return func(r *Rank) {
		victim := r.Size - 1
		q := must(cohort.Irecv(r.World, make([]int64, 1), victim, 7))
		die(r, victim, func() error {
			for {
				if err := look(r, q); err != nil {
					return err
				}
				for begun := time.Now(); time.Since(begun) < 100*time.Millisecond; {
				}
			}
		})
	}
}

// ready makes a rank that is about to end wait until no other rank needs it any more. A
// barrier would not be enough: other ranks may still be in it when this one has left.
func ready(r *Rank, leaver int) { readyOn(r, r.World, leaver) }

// readyOn does the same on another communicator.
func readyOn(r *Rank, c *cohort.Comm, leaver int) {
	word := make([]int32, 1)
	if c.Rank() != leaver {
		r.OK(cohort.Send(c, word, leaver, 9))
		return
	}
	for other := range c.Size() {
		if other != leaver {
			must(cohort.Recv(c, word, other, 9))
		}
	}
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

// failedRank has a rank fail with an error of the program: its process exits, or its
// goroutine returns the error.
func failedRank(r *Rank) {
	ready(r, r.Size-1)
	if r.Rank == r.Size-1 {
		if r.World.Caps().Processes {
			os.Exit(7)
		}
		r.OK(lostRank{r.Rank})
	}
	r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier with a rank that has failed").names(fmt.Sprintf("rank %d", r.Size-1))
}

// abortStatus is the code that rank 0 aborts the job with, and its exit status.
const abortStatus = 7

// abort has rank 0 abort the job while the others wait in different operations.
func abort(r *Rank) {
	ready(r, 0)
	if r.Rank == 0 {
		r.OK(r.World.Abort(abortStatus)) // a process ends here
		if r.World.Caps().Processes {
			r.Errorf("Abort has returned in a process")
		}
		r.OK(lostRank{r.Rank})
	}
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
		if got[0] != 77 {
			r.Errorf("the last message of a rank that has left is %d, want 77", got[0])
		}
	}
	r.Is(cohort.Ssend(r.World, make([]float64, long), last, 3), cohort.ErrPeerLost, "Ssend to a rank that leaves without receiving")
	r.Is(errorOf(cohort.Recv(r.World, make([]int32, 1), last, 2)), cohort.ErrPeerLost, "Recv from a rank that has left").names(fmt.Sprint(last))
	for k := range 20 {
		if sum := must(cohort.AllreduceOne(rest, k, cohort.Sum)); sum != k*last {
			r.Errorf("sum without the rank that has left: %d, want %d", sum, k*last)
		}
	}
	r.Is(r.World.Barrier(), cohort.ErrPeerLost, "Barrier with a rank that has left")
}

// stopped has a rank stop outside of the library; a process is stopped by a signal.
func stopped(r *Rank) {
	process, pid := r.World.Caps().Processes, make([]int64, 1)
	resumed := func() {}
	defer func() { resumed() }()
	lastAway(r, func() {
		if process {
			r.OK(cohort.Send(r.Comm, []int64{int64(os.Getpid())}, 0, 1))
			r.OK(stopProcess(os.Getpid()))
		}
	}, func() {
		if process {
			must(cohort.Recv(r.Comm, pid, r.Size-1, 1))
		}
	}, func() {
		if process {
			resumed = resume(int(pid[0]))
		}
	})
}

// spinning has a rank in an endless loop. A goroutine rank occupies a processor that the
// others may need to find out that their deadline has passed.
func spinning(r *Rank) {
	v, _ := loops.LoadOrStore(r.job.Dir, new(atomic.Bool))
	done := v.(*atomic.Bool)
	lastAway(r, func() {
		if r.World.Caps().Processes { // no other rank can end the loop
			for begun := time.Now(); time.Since(begun) < 3*short; {
			}
			return
		}
		for !done.Load() {
		}
	}, func() {}, func() {
		done.Store(true)
		loops.Delete(r.job.Dir) // all ranks have loaded it
	})
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

// loops maps the folder of a job with goroutine ranks to what ends a rank's loop.
var loops sync.Map

// lastAway has the last rank stay away from a collective. The others' calls end at their
// deadline with an error naming it, and when the rank is back the job goes on. The last
// rank calls away. Rank 0 calls begin before its collective, and end after the calls of
// all ranks have ended.
func lastAway(r *Rank, away, begin, end func()) {
	last := r.Size - 1
	c := must(r.Comm.Dup())
	rest := must(r.Comm.Split(r.Rank/last, 0))
	word := make([]int64, 1)
	if r.Rank == last {
		away()
		must(cohort.Recv(r.Comm, word, 0, 2))
	} else {
		if r.Rank == 0 {
			begin()
		}
		d, begun, cancel := deadline(c)
		err := cohort.Bcast(d, make([]float64, long), 0)
		kept(r, begun, "Bcast without rank %d", last)
		cancel()
		r.Is(err, cohort.ErrTimeout, "Bcast without rank %d", last).names(fmt.Sprint(last))
		r.OK(rest.Barrier())
		if r.Rank == 0 {
			end()
			r.OK(cohort.Send(r.Comm, word, last, 2))
		}
	}
	broken(r, c, "a deadline")
	r.OK(r.Comm.Barrier())
	r.OK(c.Close())
	r.OK(rest.Close())
}
