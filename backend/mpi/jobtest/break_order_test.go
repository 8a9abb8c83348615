//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestMessagesMatchInPostedOrder sends messages while several receives, or a receive and a probe,
// wait that match the same ones. Each gets its message in the order of posting and sending. Where
// receives are guarded cohort does the matching.
func TestMessagesMatchInPostedOrder(t *testing.T) {
	rank("matching order", matchingOrder)
	for _, library := range inTurn(t) {
		start(t, library, 2, "matching order").must(t)
	}
}

func matchingOrder(w *cohort.Comm) error {
	const rounds = 400
	for _, f := range []func(w *cohort.Comm, i int) error{overtaking, taken, seen} {
		for i := range rounds {
			must.OK(f(w, i))
		}
	}
	return nil
}

// sendLater makes rank 1 send at a moment that rank 0 does not know.
func sendLater(w *cohort.Comm) error {
	const ready = 99
	if w.Rank() == 0 {
		return cohort.Send(w, []int{0}, 1, ready)
	}
	_, err := cohort.Recv(w, []int{0}, 0, ready)
	for until := time.Now().Add(time.Duration(rand.IntN(5000))); time.Now().Before(until); {
	}
	return err
}

// overtaking posts a receive of any tag and one of the second message's tag. The first receive gets
// the first message.
func overtaking(w *cohort.Comm, i int) error {
	if w.Rank() == 1 {
		return errors.Join(sendLater(w), cohort.Send(w, []int{1}, 0, 3), cohort.Send(w, []int{2}, 0, 5))
	}
	a, b := []int{0}, []int{0}
	first, err := cohort.Irecv(w, a, 1, cohort.AnyTag)
	if err != nil {
		return err
	}
	second, err := cohort.Irecv(w, b, 1, 5)
	if err = errors.Join(err, sendLater(w)); err != nil {
		return err
	}
	// Checked before the second is waited for, which could not end.
	if _, err = first.Wait(); err != nil {
		return err
	}
	if a[0] != 1 {
		return fmt.Errorf("round %d: the first receive got message %d", i, a[0])
	}
	if _, err = second.Wait(); err == nil && b[0] != 2 {
		err = fmt.Errorf("round %d: the second receive got message %d", i, b[0])
	}
	return err
}

// taken calls Mprobe after a receive of the same messages was posted. It takes the second message.
func taken(w *cohort.Comm, i int) error {
	if w.Rank() == 1 {
		return errors.Join(sendLater(w), cohort.Send(w, []int{1}, 0, 5), cohort.Send(w, []int{2}, 0, 5))
	}
	a, b := []int{0}, []int{0}
	q, err := cohort.Irecv(w, a, 1, 5)
	if err = errors.Join(err, sendLater(w)); err != nil {
		return err
	}
	m, _, err := w.Mprobe(1, cohort.AnyTag)
	if err != nil {
		return err
	}
	_, err1 := cohort.MessageRecv(m, b)
	_, err = q.Wait()
	if a[0] != 1 || b[0] != 2 {
		err = fmt.Errorf("round %d: the receive got message %d, Mprobe %d", i, a[0], b[0])
	}
	return errors.Join(err, err1)
}

// seen checks that Probe reports the message that the next receive gets.
func seen(w *cohort.Comm, i int) error {
	if w.Rank() == 1 {
		return errors.Join(sendLater(w), cohort.Send(w, []int{1}, 0, 5), cohort.Send(w, []int{2}, 0, 6))
	}
	a, b := []int{0}, []int{0}
	q, err := cohort.Irecv(w, a, 1, cohort.AnyTag)
	if err = errors.Join(err, sendLater(w)); err != nil {
		return err
	}
	st, err := w.Probe(1, cohort.AnyTag)
	if err != nil {
		return err
	}
	if st.Tag != 6 {
		return fmt.Errorf("round %d: Probe reports tag %d, which the receive gets", i, st.Tag)
	}
	_, err1 := cohort.Recv(w, b, 1, cohort.AnyTag)
	_, err = q.Wait()
	if a[0] != 1 || b[0] != 2 {
		err = fmt.Errorf("round %d: the receive got message %d, the later one %d", i, a[0], b[0])
	}
	return errors.Join(err, err1)
}

// TestBcastWorksWhenRanksDifferInLimits broadcasts while a receive waits on one rank only, or one
// rank's call has a deadline: all ranks must run it in the same way.
func TestBcastWorksWhenRanksDifferInLimits(t *testing.T) {
	skipShort(t, "a Bcast whose ranks differ")
	rank("unequal bcast", unequalBcast)
	for _, library := range inTurn(t) {
		for _, n := range []int{2, 3} {
			start(t, library, n, "unequal bcast").must(t)
		}
	}
}

func unequalBcast(w *cohort.Comm) error {
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	for _, n := range []int{1, 300, 5000, 100_000} {
		for root := range w.Size() {
			for odd := range w.Size() {
				for _, limit := range []bool{false, true} {
					buf, c := make([]int, n), w
					if w.Rank() == root {
						buf[0], buf[n-1] = n+root, n+root
					}
					var q *cohort.Request
					if w.Rank() == odd {
						if limit {
							c = w.WithContext(ctx)
						} else {
							var err error
							if q, err = cohort.Irecv(w, []int{0}, cohort.AnySource, 8); err != nil {
								return err
							}
						}
					}
					must.OK(cohort.Bcast(c, buf, root))
					if buf[0] != n+root || buf[n-1] != n+root {
						return fmt.Errorf("%d elements of root %d: %d and %d", n, root, buf[0], buf[n-1])
					}
					if !limit && w.Rank() == (odd+1)%w.Size() {
						must.OK(cohort.Send(w, []int{1}, odd, 8))
					}
					if q != nil {
						must.Get(q.Wait())
					}
				}
			}
		}
	}
	return nil
}

// TestManyPostedReceivesMatch posts receives in the reverse order of the messages. It would take
// hours if each post looked at all waiting receives, and at each for equal ones. At the level funneled every receive of
// Open MPI is guarded, and more than 2046 fit into the address space only if none maps memory of its own.
func TestManyPostedReceivesMatch(t *testing.T) {
	rank("many receives", manyReceives)
	for _, library := range libraries {
		for _, level := range []string{"multiple", "funneled"} {
			t.Run(library+"/"+level, func(t *testing.T) {
				if library != "openmpi" || level != "funneled" {
					skipShort(t, "thousands of receives that wait")
				}
				start(t, library, 2, "many receives", "COHORT_MPI_THREAD="+level).must(t)
			})
		}
	}
}

func manyReceives(w *cohort.Comm) error {
	const n = 10_000
	reqs, bufs := make([]*cohort.Request, n), make([]int, n)
	var err error
	if w.Rank() == 1 { // until all are posted
		err = w.Barrier()
	}
	for i := range n {
		if w.Rank() == 0 {
			reqs[i], err = cohort.Irecv(w, bufs[i:i+1], 1, i)
		} else {
			bufs[n-1-i] = n - 1 - i
			reqs[i], err = cohort.Isend(w, bufs[n-1-i:n-i], 0, n-1-i)
		}
		if err != nil {
			return err
		}
	}
	if w.Rank() == 0 {
		err = w.Barrier()
	}
	if err = errors.Join(err, cohort.WaitAll(reqs...)); err != nil {
		return err
	}
	for i, x := range bufs {
		if x != i {
			return fmt.Errorf("receive %d got message %d", i, x)
		}
	}
	return nil
}

// TestBreakReachesAllWaiters has many goroutines wait on a communicator that another rank's send
// breaks: all of them return.
func TestBreakReachesAllWaiters(t *testing.T) {
	skipShort(t, "a broken communicator ends all waits")
	rank("break waiters", breakWaiters)
	for _, library := range inTurn(t) {
		start(t, library, 2, "break waiters").must(t)
	}
}

func breakWaiters(w *cohort.Comm) error {
	for range 40 {
		c := must.Get(w.Dup())
		if w.Rank() == 1 {
			ctx, cancel := context.WithTimeout(background, time.Millisecond)
			err := cohort.Ssend(c.WithContext(ctx), []int{1}, 0, 1) // which nobody receives
			cancel()
			if !errors.Is(err, cohort.ErrTimeout) {
				return fmt.Errorf("the send: %v", err)
			}
		} else {
			var all sync.WaitGroup
			errs := make([]error, 100)
			for i := range errs {
				q := must.Get(cohort.Irecv(c, []int{0}, 1, 2))
				all.Go(func() { _, errs[i] = q.Wait() })
			}
			all.Wait()
			for _, err := range errs {
				if !errors.Is(err, cohort.ErrTimeout) || !errors.Is(err, cohort.ErrBroken) {
					return fmt.Errorf("a receive: %v", err)
				}
			}
		}
		must.OK(c.Close())
	}
	return nil
}

// TestTruncationIsReportedDuringCollective posts receives and enters a collective, at all thread
// levels. Messages that are too long, a rank's own included, end the receives with ErrTruncate.
func TestTruncationIsReportedDuringCollective(t *testing.T) {
	skipShort(t, "a long message for a rank that is in a collective")
	rank("too long", tooLong)
	for _, library := range inTurn(t) {
		for _, level := range []string{"funneled", "serialized", "multiple"} {
			start(t, library, 2, "too long", "COHORT_MPI_THREAD="+level).must(t)
		}
	}
}

func tooLong(w *cohort.Comm) error {
	for _, n := range []int{2, 1000, 100_000} {
		for dest := range w.Size() {
			source := (w.Rank() - dest + w.Size()) % w.Size()
			to := (w.Rank() + dest) % w.Size()
			buf := []int{-1, -1}
			recv, err := cohort.Irecv(w, buf[:1], source, 7)
			if err = errors.Join(err, w.Barrier()); err != nil {
				return err
			}
			send := must.Get(cohort.Isend(w, make([]int, n), to, 7))
			_, err = recv.Wait()
			if !errors.Is(err, cohort.ErrTruncate) {
				return fmt.Errorf("%d numbers of rank %d for one: %v", n, source, err)
			}
			if buf[1] != -1 {
				return fmt.Errorf("%d numbers of rank %d: written past the buffer", n, source)
			}
			must.Get(send.Wait())
		}
	}
	return nil
}
