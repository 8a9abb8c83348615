package cohorttest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
)

// The order of messages, and many of them at once.

// p2pOrder checks that messages of one sender, communicator and tag are received in
// the order sent, whatever their lengths, and whether the receives are posted before
// or after.
func p2pOrder(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	lens := []int{1, 20000, 0, 3, 5000, 1, 1, 9000, 2, 64}
	for _, before := range []bool{true, false} {
		var reqs []*cohort.Request
		bufs := make([][]int32, len(lens))
		post := func() {
			for i := range lens {
				bufs[i] = make([]int32, 20000)
				source := prev
				if i%3 == 1 {
					source = cohort.AnySource
				}
				req := must(cohort.Irecv(c, bufs[i], source, 9))
				reqs = append(reqs, req)
			}
		}
		if before {
			post()
			r.OK(c.Barrier())
		}
		var sends []*cohort.Request
		for i, n := range lens {
			msg := filled(n, func(j int) int32 { return int32(i*100000 + j) })
			req := must(cohort.Isend(c, msg, next, 9))
			sends = append(sends, req)
		}
		if !before {
			r.OK(c.Barrier())
			post()
		}
		for i, req := range reqs {
			st := must(req.Wait())
			n := cohort.Count[int32](st)
			if n != lens[i] || n > 0 && (bufs[i][0] != int32(i*100000) || bufs[i][n-1] != int32(i*100000+n-1)) {
				r.Errorf("message %d has %d elements, want %d; it begins with %d", i, n, lens[i], bufs[i][0])
			}
		}
		r.OK(cohort.WaitAll(sends...))
	}
}

// p2pOvertaking receives messages by tag in another order than sent.
func p2pOvertaking(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	for _, m := range []int{1, 30000} {
		const k = 20
		var sends []*cohort.Request
		for tag := range k {
			msg := make([]int32, m)
			msg[0], msg[m-1] = int32(tag), int32(tag)
			req := must(cohort.Isend(c, msg, next, tag))
			sends = append(sends, req)
		}
		buf := make([]int32, m)
		for _, tag := range seeded(r.scenario, r.Size).Perm(k) {
			if st := must(cohort.Recv(c, buf, prev, tag)); st.Tag != tag || buf[0] != int32(tag) || buf[m-1] != int32(tag) {
				r.Errorf("receiving tag %d got %d of tag %d", tag, buf[0], st.Tag)
			}
		}
		r.OK(cohort.WaitAll(sends...))
	}
}

// anySourceFair checks that receives from any source serve every sender while all of
// them keep sending. Each sender waits for an answer before it sends its next message,
// and the receiver receives only when a message of every sender is there. Without
// fairness, some senders would never be served.
func anySourceFair(r *Rank) {
	c := r.Comm
	const ask, answer = 1, 2
	rounds := 200
	if r.Short {
		rounds = 60
	}
	if r.Rank != 0 {
		for more := []int32{1}; more[0] != 0; {
			r.OK(cohort.Send(c, []int32{int32(r.Rank)}, 0, ask))
			must(cohort.Recv(c, more, 0, answer))
		}
		return
	}
	served := make([]int, r.Size)
	buf := make([]int32, 1)
	for range rounds * (r.Size - 1) {
		for s := 1; s < r.Size; s++ {
			must(c.Probe(s, ask))
		}
		st := must(cohort.Recv(c, buf, cohort.AnySource, ask))
		if int(buf[0]) != st.Source {
			r.Errorf("a message with source %d comes from rank %d", st.Source, buf[0])
		}
		served[st.Source]++
		r.OK(cohort.Send(c, []int32{1}, st.Source, answer))
	}
	for s, n := range served[1:] {
		if n < rounds/10 {
			r.Errorf("of %d messages from any of %d sources, rank %d sent %d: %v", rounds*(r.Size-1), r.Size-1, s+1, n, served[1:])
		}
	}
	for range r.Size - 1 { // the last message of each sender
		st := must(cohort.Recv(c, buf, cohort.AnySource, ask))
		r.OK(cohort.Send(c, []int32{0}, st.Source, answer))
	}
}

// allToAllUnordered has every rank send to every rank at once, itself included.
func allToAllUnordered(r *Rank) {
	c, n := r.Comm, r.Size
	for _, m := range []int{1, 3000} {
		for round := range 5 {
			var reqs []*cohort.Request
			recv := make([]int32, n*m)
			for i := range n {
				from, to := (r.Rank+i)%n, (r.Rank+n-i)%n
				req := must(cohort.Irecv(c, recv[from*m:(from+1)*m], from, round))
				reqs = append(reqs, req)
				msg := filled(m, func(j int) int32 { return int32(r.Rank*1000 + to) })
				req = must(cohort.Isend(c, msg, to, round))
				reqs = append(reqs, req)
			}
			r.OK(cohort.WaitAll(reqs...))
			same(r, recv, func(i int) int32 { return int32(i/m*1000 + r.Rank) }, "round %d, blocks of %d", round, m)
		}
	}
}

// goroutines has several goroutines of every rank exchange messages at once, each with
// its own tag, as MPI_THREAD_MULTIPLE allows.
func goroutines(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	const workers = 4
	rounds := 60
	if r.Short {
		rounds = 18
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range workers {
		wg.Go(func() {
			buf := make([]int64, 2000)
			for k := range rounds {
				m := 1 + k%3*900
				send := filled(m, func(i int) int64 { return int64(r.Rank*1000000 + w*1000 + k) })
				var st cohort.Status
				var err error
				if k%2 == 0 {
					st, err = cohort.Sendrecv(c, send, next, w, buf, prev, w)
				} else {
					var rr, sr *cohort.Request
					rr, e1 := cohort.Irecv(c, buf, prev, w)
					sr, e2 := cohort.Issend(c, send, next, w)
					if err = errors.Join(e1, e2); err == nil {
						st, err = rr.Wait()
						_, e2 = sr.Wait()
						err = errors.Join(err, e2)
					}
				}
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				want := int64(prev*1000000 + w*1000 + k)
				if n := cohort.Count[int64](st); n != m || buf[0] != want || buf[m-1] != want {
					r.Errorf("goroutine %d, round %d: %d elements of %d, want %d of %d", w, k, n, buf[0], m, want)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		r.OK(*err)
	}
}
