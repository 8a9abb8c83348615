package cohorttest

import (
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// Probe and matched probe (MPI-4.1 section 3.8).

func probeScenarios() []scenario {
	return []scenario{
		{name: "probe/probe", body: probe},
		{name: "probe/iprobe", body: iprobe},
		{name: "probe/matched", body: matched},
		{name: "probe/matched-order", body: matchedOrder},
		{name: "probe/alloc-any", body: allocAny},
	}
}

// probe finds out a message's length before receiving it.
func probe(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for k, m := range []int{0, 7, 300, 20000} {
		req := must(cohort.Isend(c, make([]int16, m), next, k))
		for _, source := range []int{prev, cohort.AnySource} {
			for _, tag := range []int{k, cohort.AnyTag} {
				if st := must(c.Probe(source, tag)); st.Source != prev || st.Tag != k || cohort.Count[int16](st) != m {
					r.Errorf("Probe(%d, %d): %+v, %d elements, want %d from %d, tag %d", source, tag, st, cohort.Count[int16](st), m, prev, k)
				}
			}
		}
		if st := must(cohort.Recv(c, make([]int16, m), prev, k)); cohort.Count[int16](st) != m {
			r.Errorf("received %d elements after a probe of %d", cohort.Count[int16](st), m)
		}
		must(req.Wait())
	}
}

// iprobe finds nothing before a message is sent, and the message afterwards.
func iprobe(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	if _, found, err := c.Iprobe(cohort.AnySource, cohort.AnyTag); found || err != nil {
		r.Errorf("Iprobe before anything was sent: %v, %v", found, err)
	}
	r.OK(c.Barrier())
	for _, m := range []int{1, 40000} {
		req := must(cohort.Isend(c, make([]int32, m), next, 5))
		if _, found, err := c.Iprobe(prev, 6); found || err != nil {
			r.Errorf("Iprobe of another tag: %v, %v", found, err)
		}
		for {
			if st, found := must2(c.Iprobe(prev, 5)); found {
				if cohort.Count[int32](st) != m || st.Source != prev || st.Tag != 5 {
					r.Errorf("Iprobe: %+v, %d elements", st, cohort.Count[int32](st))
				}
				break
			}
			runtime.Gosched()
		}
		must(cohort.Recv(c, make([]int32, m), prev, 5))
		must(req.Wait())
	}
}

// matched takes a message out of the queue with Mprobe and receives another with the
// same envelope before it.
func matched(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{1, 600, 20000} {
		var reqs []*cohort.Request
		for k := range 2 {
			msg := make([]int32, m)
			msg[0], msg[m-1] = int32(k+1), int32(k+1)
			req := must(cohort.Isend(c, msg, next, 8))
			reqs = append(reqs, req)
		}
		msg, st, err := c.Mprobe(cohort.AnySource, 8)
		r.OK(err)
		if st.Source != prev || cohort.Count[int32](st) != m {
			r.Errorf("Mprobe: %+v, %d elements, want %d from %d", st, cohort.Count[int32](st), m, prev)
		}
		buf := make([]int32, m)
		must(cohort.Recv(c, buf, prev, 8))
		if buf[0] != 2 || buf[m-1] != 2 {
			r.Errorf("Recv after Mprobe got message %d, want 2: Mprobe has taken the first", buf[0])
		}
		if m == 600 {
			st, err = must(cohort.ImessageRecv(msg, buf)).Wait()
		} else {
			st, err = cohort.MessageRecv(msg, buf)
		}
		r.OK(err)
		if buf[0] != 1 || buf[m-1] != 1 || st.Source != prev || st.Tag != 8 || cohort.Count[int32](st) != m {
			r.Errorf("MessageRecv got message %d, %+v", buf[0], st)
		}
		r.Is(errorOf(cohort.MessageRecv(msg, buf)), cohort.ErrRequest, "MessageRecv of a message that has been received")
		r.OK(cohort.WaitAll(reqs...))
	}
	// A buffer that is too short.
	req := must(cohort.Isend(c, make([]int32, 10), next, 9))
	msg, _ := must2(c.Mprobe(prev, 9))
	recv := newBuffer(int32s, 4)
	r.Is(errorOf(cohort.MessageRecv(msg, recv.data)), cohort.ErrTruncate, "MessageRecv into a short buffer")
	image := newBuffer(int32s, 4)
	copy(image.data, recv.data)
	if i, ok := recv.diff(image, nil); !ok {
		r.Errorf("MessageRecv has written element %d of 4", i)
	}
	must(req.Wait())
}

// matchedOrder takes messages with Improbe, in the order sent, and receives them
// in reverse.
func matchedOrder(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	const k = 10
	var reqs []*cohort.Request
	for i := range k {
		req := must(cohort.Isend(c, []int32{int32(i)}, next, 2))
		reqs = append(reqs, req)
	}
	var msgs []*cohort.Message
	for len(msgs) < k {
		msg, st, found, err := c.Improbe(prev, cohort.AnyTag)
		r.OK(err)
		if !found {
			runtime.Gosched()
			continue
		}
		if st.Source != prev || st.Tag != 2 {
			r.Errorf("Improbe: %+v", st)
		}
		msgs = append(msgs, msg)
	}
	if _, _, found, err := c.Improbe(prev, cohort.AnyTag); found || err != nil {
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
		req := must(cohort.Isend(c, msg, to, r.Rank))
		reqs = append(reqs, req)
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
