package cohorttest

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Request.Done: no goroutine calls anything else on the communicator while a select waits.

func doneScenarios() []scenario {
	return []scenario{
		{name: "requests/done", body: doneInSelect},
		{name: "requests/done-and-wait", body: doneAndWait},
		{name: "requests/done-collective", body: doneOfCollectives},
		{name: "requests/done-deadline", body: doneAtDeadline},
		{name: "requests/done-closed", body: doneAtClose},
	}
}

// await waits for a channel of Done.
func await(r *Rank, q *cohort.Request, what string) {
	select {
	case <-q.Done():
	case <-time.After(r.patience / 2):
		r.OK(fmt.Errorf("the channel of %s was not closed within %v", what, r.patience/2))
	}
}

// isOpen checks that a channel of Done is not closed.
func isOpen(r *Rank, q *cohort.Request, what string) {
	select {
	case <-q.Done():
		r.Errorf("Done of %s is closed too early", what)
	default:
	}
}

// doneInSelect selects from two receives of all lengths, whose messages are sent only after that.
func doneInSelect(r *Rank) {
	var none *cohort.Request
	await(r, none, "a nil request")
	for _, m := range []int{0, 1, 1000, long} {
		var recvs, sends [2]*cohort.Request
		var done [2]<-chan struct{}
		var bufs [2][]int32
		for i := range recvs {
			bufs[i] = make([]int32, m)
			recvs[i] = must(cohort.Irecv(r.Comm, bufs[i], r.prev, i))
			if done[i] = recvs[i].Done(); done[i] != recvs[i].Done() {
				r.Errorf("two calls of Done return different channels")
			}
			isOpen(r, recvs[i], "a receive whose message was not sent")
		}
		r.OK(r.Comm.Barrier())
		for i := range sends {
			msg := filled(m, func(j int) int32 { return int32(100*r.Rank + i) })
			sends[i] = must(cohort.Issend(r.Comm, msg, r.next, i))
		}
		for range recvs {
			i := 0
			select {
			case <-done[0]:
			case <-done[1]:
				i = 1
			case <-time.After(r.patience / 2):
				r.OK(fmt.Errorf("no Done was closed within %v", r.patience/2))
			}
			done[i] = nil
			if st := must(recvs[i].Wait()); st.Tag != i || cohort.Count[int32](st) != m || m > 0 && bufs[i][m-1] != int32(100*r.prev+i) {
				r.Errorf("receive %d of %d elements: status %+v, or other elements", i, m, st)
			}
			await(r, recvs[i], "a request that was waited for")
		}
		for _, q := range sends {
			await(r, q, "a send")
			must(q.Wait())
		}
	}
}

// doneAndWait has goroutines wait for a request in all ways at once.
func doneAndWait(r *Rank) {
	for k := range 20 {
		buf := make([]int32, 1)
		q := must(cohort.Irecv(r.Comm, buf, r.prev, k))
		errs := make(chan error, 3)
		go func() { <-q.Done(); errs <- nil }()
		go func() { <-q.Done(); _, err := q.Wait(); errs <- err }()
		go func() { _, err := q.Wait(); errs <- err }()
		r.OK(cohort.Send(r.Comm, []int32{int32(k)}, r.next, k))
		for range cap(errs) {
			r.OK(<-errs)
		}
		if st := must(q.Wait()); buf[0] != int32(k) || st.Tag != k {
			r.Errorf("message %d: %d, status %+v", k, buf[0], st)
		}
	}
}

// doneOfCollectives selects from collectives, to which one rank comes late.
func doneOfCollectives(r *Rank) {
	for late := range r.Size {
		if r.Rank == late {
			for range r.Size - 1 { // the others have started
				must(cohort.Recv(r.Comm, make([]int32, 1), cohort.AnySource, 1))
			}
		}
		for _, m := range []int{1, long} {
			send, recv := make([]int64, m), make([]int64, m)
			send[m-1] = int64(r.Rank)
			q := must(cohort.Iallreduce(r.Comm, send, recv, cohort.Sum))
			done := q.Done()
			if m == 1 && r.Rank != late {
				isOpen(r, q, "an Iallreduce that a rank has not called")
				r.OK(cohort.Send(r.Comm, []int32{0}, late, 1))
			}
			<-done
			must(q.Wait())
			equal(r, recv[m-1], int64(r.Size*(r.Size-1)/2), "Iallreduce of %d", m)
		}
	}
}

// doneAtDeadline waits for operations that end at their deadline.
func doneAtDeadline(r *Rank) {
	c, begun, cancel := deadline(r.Comm)
	defer cancel()
	q := must(cohort.Irecv(c, make([]int32, 1), r.prev, 1))
	x := must(cohort.Isendrecv(c, []int32{1}, cohort.ProcNull, 2, make([]int32, 1), r.prev, 2))
	await(r, q, "a receive with a deadline")
	await(r, x, "an exchange with a deadline")
	_, err := q.Wait()
	timedOut(r, "Wait after Done", begun, err, "irecv")
	_, err = x.Wait()
	timedOut(r, "Wait for the exchange after Done", begun, err, "isendrecv", fmt.Sprint(r.prev))
}

// doneAtClose closes the communicator of a receive.
func doneAtClose(r *Rank) {
	d, err := r.Comm.Dup()
	r.OK(err)
	q := must(cohort.Irecv(d, make([]int32, 1), r.prev, 1))
	done := q.Done()
	r.OK(d.Close())
	<-done
	if _, err = q.Wait(); err == nil {
		r.Errorf("a receive without a message is complete after Close")
	}
}
