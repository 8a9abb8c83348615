package cohorttest

import (
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// Probe and matched probe (MPI-4.1 section 3.8).

// iprobe finds nothing before a message is sent, and the message afterwards.
func iprobe(r *Rank) {
	_, found := must2(r.Comm.Iprobe(cohort.AnySource, cohort.AnyTag))
	equal(r, found, false, "Iprobe before anything was sent")
	r.OK(r.Comm.Barrier())
	for _, m := range []int{1, 40000} {
		req := must(cohort.Isend(r.Comm, make([]int32, m), r.next, 5))
		_, found := must2(r.Comm.Iprobe(r.prev, 6))
		equal(r, found, false, "Iprobe of another tag")
		for {
			if st, found := must2(r.Comm.Iprobe(r.prev, 5)); found {
				status[int32](r, st, r.prev, 5, m, "Iprobe")
				break
			}
			runtime.Gosched()
		}
		must(cohort.Recv(r.Comm, make([]int32, m), r.prev, 5))
		must(req.Wait())
	}
}

// matched takes the first of two messages with the same envelope out of the queue with Improbe, and receives the
// second before it.
func matched(r *Rank) {
	for tag, m := range []int{1, 600, 20000} {
		buf := make([]int, m)
		two := [2]*cohort.Request{}
		for k := range two {
			two[k] = must(cohort.Isend(r.Comm, filled(m, func(int) int { return k }), r.next, tag))
		}
		var msg *cohort.Message
		for msg == nil {
			m1, st, found, err := r.Comm.Improbe(r.prev, cohort.AnyTag)
			r.OK(err)
			if found {
				msg = m1
				status[int](r, st, r.prev, tag, m, "Improbe")
			}
			runtime.Gosched()
		}
		must(cohort.Recv(r.Comm, buf, r.prev, tag))
		same(r, buf, func(int) int { return 1 }, "Recv after Improbe, which has taken the first message")
		if _, _, found, err := r.Comm.Improbe(r.prev, tag); found || err != nil {
			r.Errorf("Improbe after both were taken: %v, %v", found, err)
		}
		status[int](r, must(cohort.MessageRecv(msg, buf)), r.prev, tag, m, "MessageRecv")
		same(r, buf, func(int) int { return 0 }, "MessageRecv")
		r.Is(errorOf(cohort.MessageRecv(msg, buf)), cohort.ErrRequest, "MessageRecv of a message that has been received")
		r.OK(cohort.WaitAll(two[:]...))
	}
}
