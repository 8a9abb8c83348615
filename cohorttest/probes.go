package cohorttest

import (
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// Probe and matched probe (MPI-4.1 section 3.8).

func probeScenarios() []scenario {
	return []scenario{
		{name: "probe/iprobe", body: iprobe},
		{name: "probe/matched", body: matched},
		{name: "probe/matched-order", body: matchedOrder},
		{name: "probe/alloc-any", body: allocAny},
	}
}

// iprobe finds nothing before a message is sent, and the message afterwards.
func iprobe(r *Rank) {
	if _, found, err := r.Comm.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("Iprobe before anything was sent: %v, %v", found, err)
	}
	r.OK(r.Comm.Barrier())
	for _, m := range []int{1, 40000} {
		req := must(cohort.Isend(r.Comm, make([]int32, m), r.next, 5))
		if _, found, err := r.Comm.Iprobe(r.prev, 6); found || err != nil {
			r.Errorf("Iprobe of another tag: %v, %v", found, err)
		}
		for {
			if st, found := must2(r.Comm.Iprobe(r.prev, 5)); found {
				if cohort.Count[int32](st) != m || st.Source != r.prev || st.Tag != 5 {
					r.Errorf("Iprobe: %+v, %d elements", st, cohort.Count[int32](st))
				}
				break
			}
			runtime.Gosched()
		}
		must(cohort.Recv(r.Comm, make([]int32, m), r.prev, 5))
		must(req.Wait())
	}
}

// matched takes a message out of the queue with Mprobe and receives another with the
// same envelope before it.
func matched(r *Rank) {
	for _, m := range []int{1, 600, 20000} {
		buf := make([]int, m)
		two := [2]*cohort.Request{}
		for k := range two {
			two[k] = must(cohort.Isend(r.Comm, filled(m, func(int) int { return k }), r.next, 8))
		}
		msg, st := must2(r.Comm.Mprobe(cohort.AnySource, 8))
		status[int](r, st, r.prev, 8, m, "Mprobe")
		must(cohort.Recv(r.Comm, buf, r.prev, 8))
		same(r, buf, func(int) int { return 1 }, "Recv after Mprobe, which has taken the first message")
		status[int](r, must(cohort.MessageRecv(msg, buf)), r.prev, 8, m, "MessageRecv")
		same(r, buf, func(int) int { return 0 }, "MessageRecv")
		r.Is(errorOf(cohort.MessageRecv(msg, buf)), cohort.ErrRequest, "MessageRecv of a message that has been received")
		r.OK(cohort.WaitAll(two[:]...))
	}
}

// matchedOrder takes messages with Improbe, in the order sent, and receives them
// in reverse.
func matchedOrder(r *Rank) {
	const k = 10
	var reqs []*cohort.Request
	for i := range k {
		reqs = append(reqs, must(cohort.Isend(r.Comm, []int32{int32(i)}, r.next, 2)))
	}
	var msgs []*cohort.Message
	for len(msgs) < k {
		msg, st, found, err := r.Comm.Improbe(r.prev, cohort.AnyTag)
		r.OK(err)
		if !found {
			runtime.Gosched()
			continue
		}
		if st.Source != r.prev || st.Tag != 2 {
			r.Errorf("Improbe: %+v", st)
		}
		msgs = append(msgs, msg)
	}
	if _, _, found, err := r.Comm.Improbe(r.prev, cohort.AnyTag); found || err != nil {
		r.Errorf("Improbe after all were taken: %v, %v", found, err)
	}
	for i := k - 1; i >= 0; i-- {
		buf := make([]int32, 1)
		must(cohort.MessageRecv(msgs[i], buf))
		if buf[0] != int32(i) {
			r.Errorf("message %d holds %d", i, buf[0])
		}
	}
	r.OK(cohort.WaitAll(reqs...))
}

// allocAny receives messages of unknown source, tag and length.
func allocAny(r *Rank) {
	c, n := r.Comm, r.Size
	var reqs []*cohort.Request
	for to := range n {
		msg := filled(r.Rank*300+to, func(i int) float32 { return float32(r.Rank + i) })
		reqs = append(reqs, must(cohort.Isend(c, msg, to, r.Rank)))
	}
	seen := make([]bool, n)
	for range n {
		got, st := must2(cohort.RecvAppend[float32](c, nil, cohort.AnySource, cohort.AnyTag))
		if st.Source < 0 || st.Source >= n || seen[st.Source] || st.Tag != st.Source || len(got) != st.Source*300+r.Rank {
			r.Errorf("RecvAppend: %+v, %d elements", st, len(got))
			continue
		}
		seen[st.Source] = true
		same(r, got, func(i int) float32 { return float32(st.Source + i) }, "RecvAppend from %d", st.Source)
	}
	r.OK(cohort.WaitAll(reqs...))
}
