package cohorttest

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Deadlines, cancellation, and collectives called by two goroutines at once.

const (
	// short is a deadline that passes.
	short = 30 * time.Millisecond
	// late is how long after its deadline, or after a loss, an operation may end on a slow and busy
	// machine. It only shows that the deadline has ended the operation.
	late = 90 * time.Second
	// promised is the time in the documentation. It is checked if COHORT_SOAK is set.
	promised = 50 * time.Millisecond
)

// kept checks that an operation has not ended long after its deadline, and records how
// long after.
func kept(r *Rank, begun time.Time, what string, args ...any) {
	took := time.Since(begun)
	r.late = max(r.late, took-short)
	if took > short+late {
		r.Errorf("%s ended after %v, its deadline was %v", fmt.Sprintf(what, args...), took, short)
	}
}

// deadline returns a handle of c with a deadline that is near, and the current time.
func deadline(c *cohort.Comm) (*cohort.Comm, time.Time, context.CancelFunc) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), short)
	return c.WithContext(ctx), begun, cancel
}

// timedOut checks that an operation ended with ErrTimeout, not before its deadline, and
// that the error contains the given words.
func timedOut(r *Rank, what string, begun time.Time, err error, words ...string) {
	took := time.Since(begun)
	kept(r, begun, "%s", what)
	if r.Is(err, cohort.ErrTimeout, "%s", what).opError().names(words...).ok && took < short {
		r.Errorf("%s ended after %v, its deadline was %v", what, took, short)
	}
}

// receiveDeadline receives what no rank sends. The communicator stays usable, and the
// receive does not take a message that arrives later.
func receiveDeadline(r *Rank) {
	expired, cancel := context.WithTimeout(context.Background(), -1)
	defer cancel()
	c := r.Comm.WithContext(expired)
	r.Is(errorOf(cohort.Recv(c, make([]int32, 1), r.prev, 1)), cohort.ErrTimeout, "Recv with an expired context")
	r.Is(errorOf(c.Probe(r.prev, 1)), cohort.ErrTimeout, "Probe with an expired context")
	for i, w := range recvWays[int32]() {
		if r.Short && i%3 != 0 && w.name != "RecvView" {
			continue
		}
		recv := newBuffer(int32s, 3)
		c, begun, cancel := deadline(r.Comm)
		_, err := w.start(c, recv.data, r.prev, 7)()
		cancel()
		if timedOut(r, w.name, begun, err); !w.any {
			r.Is(err, cohort.ErrTimeout, "%s", w.name).names(fmt.Sprint(r.prev))
		}
		r.OK(r.Comm.Barrier())
		r.OK(exchange(r, int32s, sending[int32]("Send"), receiving[int32]("Irecv"), 2, 2, 7))
		recv.is(r, newBuffer(int32s, 3), "%s that timed out", w.name)
	}
}

// sendDeadline sends short and long messages that no rank receives. The sends are canceled: the messages do not arrive
// later.
func sendDeadline(r *Rank) {
	if !r.Comm.Caps().CancelSend {
		sendDeadlineBreaks(r)
		return
	}
	for i, name := range []string{"Ssend", "Ssend", "SendView"} {
		w, m := sending[uint8](name), []int{1, 1 << 20, 1 << 20}[i]
		c, begun, cancel := deadline(r.Comm)
		_, err := w.start(c, make([]uint8, m), r.next, 8)()
		timedOut(r, fmt.Sprintf("%s of %d", w.name, m), begun, err, "send", fmt.Sprint(r.next))
		cancel()
		r.noMessage("a message whose send timed out")
		r.OK(exchange(r, uint8s, sending[uint8]("Isend"), receiving[uint8]("Recv"), 1, 1, 8))
	}
}

// withdrawn withdraws sends whose messages the receivers have taken with Mprobe.
func withdrawn(r *Rank) {
	if !r.Comm.Caps().CancelSend {
		return // as sendDeadlineBreaks shows
	}
	for _, how := range []string{"Ssend", "Issend", "Cancel"} {
		for _, m := range []int{1, 1 << 20} {
			ctx, cancel := context.WithCancel(context.Background())
			c, buf := r.Comm.WithContext(ctx), make([]uint8, m)
			ended := make(chan error, 1)
			if how == "Ssend" {
				go func() { ended <- cohort.Ssend(c, buf, r.next, 8) }()
			}
			var req *cohort.Request
			if how != "Ssend" {
				req = must(cohort.Issend(c, buf, r.next, 8))
			}
			msg, _ := must2(r.Comm.Mprobe(r.prev, 8))
			r.OK(r.Comm.Barrier())
			if how == "Cancel" {
				r.OK(req.Cancel())
			} else {
				cancel()
			}
			if how != "Ssend" {
				ended <- errorOf(req.Wait())
			}
			r.Is(<-ended, cohort.ErrCanceled, "%s of %d, withdrawn after Mprobe", how, m)
			cancel()
			r.OK(r.Comm.Barrier())
			r.Is(errorOf(cohort.MessageRecv(msg, make([]uint8, m))), cohort.ErrCanceled, "MessageRecv after %s of %d was withdrawn", how, m)
			r.OK(exchange(r, uint8s, sending[uint8]("Isend"), receiving[uint8]("Recv"), 1, 1, 8))
		}
	}
}

// sendDeadlineBreaks is for backends that cannot cancel a send: the deadline ends it
// all the same, and breaks the communicator.
func sendDeadlineBreaks(r *Rank) {
	for _, m := range []int{1, 1 << 20} {
		d := r.dup()
		c, begun, cancel := deadline(d)
		err := cohort.Ssend(c, make([]uint8, m), r.next, 8)
		kept(r, begun, "Ssend of %d", m) // another rank's deadline may have ended it
		r.Is(err, cohort.ErrTimeout, "Ssend of %d", m).names("send", fmt.Sprint(r.next))
		cancel()
		broken(r, d, "a send that timed out")
		r.OK(r.Comm.Barrier())
	}
}

func requestDeadline(r *Rank) {
	c, begun, cancel := deadline(r.Comm)
	defer cancel()
	a := must(cohort.Irecv(c, make([]int32, 1), r.prev, 1))
	b := must(cohort.Irecv(c, make([]int32, 1), cohort.AnySource, 2))
	x := must(cohort.Isendrecv(c, []int32{1}, cohort.ProcNull, 3, make([]int32, 1), r.prev, 3))
	<-x.Done()
	timedOut(r, "Wait after Done", begun, errorOf(x.Wait()), "isendrecv", fmt.Sprint(r.prev))
	timedOut(r, "WaitAll", begun, cohort.WaitAll(a, b), "irecv")
	r.Is(errorOf(a.Wait()), cohort.ErrTimeout, "Wait again")

	c, begun, cancel2 := deadline(r.Comm)
	defer cancel2()
	a = must(cohort.Irecv(c, make([]int32, 1), r.prev, 1))
	b, err := cohort.Irecv(r.Comm, make([]int32, 1), r.prev, 2) // no deadline
	r.OK(err)
	i, _, err := cohort.WaitAny(b, a)
	equal(r, i, 1, "WaitAny returns the one with a deadline")
	timedOut(r, "WaitAny", begun, err)
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{1}, r.next, 2))
	must(b.Wait())
}

// collectiveDeadline has one rank stay away. The others' calls end with ErrTimeout
// naming it, if they need it. The communicator is broken on all ranks, also on the one that stayed
// away.
func collectiveDeadline(r *Rank) {
	counts, displs := []int{1, 1}, []int{0, 1}
	neighbors := func(how form) func(g *cohort.Graph) error {
		return func(g *cohort.Graph) error {
			return alltoallvAs(g, how, make([]int32, 2), counts, displs, make([]int32, 2), counts, displs)
		}
	}
	for what, call := range []func(g *cohort.Graph) error{
		func(g *cohort.Graph) error { return g.Barrier() },
		func(g *cohort.Graph) error {
			return allreduceAs(g.Comm, nonblocking, make([]int32, 3), make([]int32, 3))
		},
		neighbors(nonblocking), neighbors(blocking),
	} {
		for _, absent := range []int{0, r.Size - 1} {
			g := ringGraph(r)
			if r.Rank != absent {
				timed, begun := *g, time.Now()
				c, _, cancel := deadline(g.Comm)
				timed.Comm = c
				err := call(&timed)
				kept(r, begun, "call %d without rank %d", what, absent)
				adjacent := r.next == absent || r.prev == absent
				if blocks := what == 3; err != nil || !blocks || adjacent {
					e := r.Is(err, cohort.ErrTimeout, "call %d without rank %d", what, absent)
					if what < 2 || adjacent { // else only a neighbor's report names it, which may come too late
						e.names(fmt.Sprint(absent))
					}
				}
				cancel()
			}
			r.OK(r.Comm.Barrier())
			broken(r, g.Comm, "a collective that timed out")
		}
	}
}

// collectiveCancel cancels the context of a collective.
func collectiveCancel(r *Rank) {
	d := must(r.Comm.Dup())
	if r.Rank != 0 {
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		r.Is(d.WithContext(ctx).Barrier(), cohort.ErrCanceled, "Barrier that is canceled")
	}
	r.OK(r.Comm.Barrier())
	broken(r, d, "a collective that was canceled")
	r.OK(d.Close())

	// A receive that is canceled leaves the communicator usable.
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	r.Is(errorOf(cohort.Recv(r.Comm.WithContext(ctx), make([]int32, 1), cohort.AnySource, 3)), cohort.ErrCanceled, "Recv that is canceled")
	r.OK(r.Comm.Barrier())
}

// busy has two goroutines call a collective on one communicator at the same time: the
// second one gets ErrBusy at once, and the other goes on. Rank 0 makes its call after
// that.
func busy(r *Rank) {
	word := make([]int32, 1)
	if r.Rank == 0 {
		for range r.Size - 1 {
			must(cohort.Recv(r.Comm, word, cohort.AnySource, 1))
		}
		r.OK(r.Comm.Barrier())
		return
	}
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- r.Comm.Barrier() }()
	}
	r.Is(<-results, cohort.ErrBusy, "the second of two collectives at the same time")
	r.Is(errorOf(cohort.Iallreduce(r.Comm, []int32{1}, word, cohort.Sum)), cohort.ErrBusy, "a nonblocking collective during a blocking one")
	r.OK(cohort.Send(r.Comm, word, 0, 1))
	r.OK(<-results)
}
