package cohorttest

import (
	"fmt"
	"runtime"

	"github.com/cohort-hpc/cohort"
)

// Requests, and sets of requests (MPI-4.1 section 3.7).

func requestScenarios() []scenario {
	return []scenario{
		{name: "requests/random-order", body: randomOrder},
		{name: "requests/wait-any", body: waitAny},
		{name: "requests/wait-some", body: waitSome},
		{name: "requests/test-any", body: testAny},
		{name: "requests/test-some", body: testSome},
		{name: "requests/test-all", body: testAll},
		{name: "requests/nothing-left", body: nothingLeft},
		{name: "requests/wait-again", body: waitAgain},
		{name: "requests/cancel", body: cancel},
		{name: "requests/errors-in-sets", body: errorsInSets},
		{name: "requests/forgotten", alone: true, body: forgotten},
		{name: "requests/not-waited-for", alone: true, body: notWaitedFor},
		{name: "requests/not-waited-for-derived", alone: true, body: notWaitedForDerived},
	}
}

// pair is a receive in a set, with the value that it must receive.
type pair struct {
	buf  []int32
	want int32
}

// open posts k receives on two communicators, with several lengths, and sends the next
// rank the messages that its receives wait for. recvs has the receives by their index
// in reqs.
func open(r *Rank, k int) (reqs []*cohort.Request, recvs map[int]pair, finish func()) {
	next, prev := r.ring()
	other := must(r.Comm.Dup())
	recvs = map[int]pair{}
	rng := seeded(r.scenario, r.Size)
	for tag := range k {
		c := r.Comm
		if rng.IntN(3) == 0 {
			c = other
		}
		m := []int{1, 1, 200, 9000}[rng.IntN(4)]
		msg := make([]int32, m)
		msg[0], msg[m-1] = int32(r.Rank*1000+tag), int32(r.Rank*1000+tag)
		req := must(cohort.Isend(c, msg, next, tag))
		reqs = append(reqs, req)
		buf := make([]int32, m)
		req = must(cohort.Irecv(c, buf, prev, tag))
		recvs[len(reqs)] = pair{buf, int32(prev*1000 + tag)}
		reqs = append(reqs, req)
	}
	return reqs, recvs, func() { r.OK(other.Close()) }
}

// done checks the result of request i of a set.
func done(r *Rank, recvs map[int]pair, i int, st *cohort.Status) {
	p, ok := recvs[i]
	if !ok {
		return // a send
	}
	_, prev := r.ring()
	if st != nil && (st.Source != prev || cohort.Count[int32](*st) != len(p.buf)) {
		r.Errorf("request %d: %+v, %d elements, want %d from %d", i, *st, cohort.Count[int32](*st), len(p.buf), prev)
	}
	if p.buf[0] != p.want || p.buf[len(p.buf)-1] != p.want {
		r.Errorf("request %d received %d, want %d", i, p.buf[0], p.want)
	}
}

// randomOrder completes 100 outstanding requests in an order that differs from rank to
// rank.
func randomOrder(r *Rank) {
	reqs, recvs, finish := open(r, 50)
	for _, i := range seeded(fmt.Sprint(r.scenario, r.Rank), r.Size).Perm(len(reqs)) {
		st := must(reqs[i].Wait())
		done(r, recvs, i, &st)
	}
	finish()
}

func waitAny(r *Rank) {
	reqs, recvs, finish := open(r, 20)
	seen := make([]bool, len(reqs))
	for range reqs {
		i, st := must2(cohort.WaitAny(reqs...))
		if i < 0 || i >= len(reqs) || seen[i] {
			r.Errorf("WaitAny returns %d, for the second time or out of range", i)
			break
		}
		seen[i] = true
		done(r, recvs, i, &st)
	}
	if i, st, err := cohort.WaitAny(reqs...); i != -1 || err != nil {
		r.Errorf("WaitAny of complete requests: %d, %+v, %v; want -1", i, st, err)
	}
	finish()
}

// some completes a set with a function that returns indices.
func some(r *Rank, name string, complete func(...*cohort.Request) ([]int, error), mayBeEmpty bool) {
	reqs, recvs, finish := open(r, 20)
	seen := make([]bool, len(reqs))
	for left := len(reqs); left > 0; {
		indices := must(complete(reqs...))
		if len(indices) == 0 {
			if !mayBeEmpty {
				r.Errorf("%s returns none of %d requests", name, left)
				break
			}
			runtime.Gosched()
		}
		for _, i := range indices {
			if i < 0 || i >= len(reqs) || seen[i] {
				r.Errorf("%s returns %d, for the second time or out of range", name, i)
				return
			}
			seen[i] = true
			left--
			done(r, recvs, i, nil)
			st, err := reqs[i].Wait() // returns its status again
			r.OK(err)
			done(r, recvs, i, &st)
		}
	}
	if indices, err := complete(reqs...); len(indices) != 0 || err != nil {
		r.Errorf("%s of complete requests: %v, %v", name, indices, err)
	}
	finish()
}

func waitSome(r *Rank) { some(r, "WaitSome", cohort.WaitSome, false) }
func testSome(r *Rank) { some(r, "TestSome", cohort.TestSome, true) }

func testAny(r *Rank) {
	reqs, recvs, finish := open(r, 20)
	seen := make([]bool, len(reqs))
	for left := len(reqs); left > 0; {
		i, st, ok, err := cohort.TestAny(reqs...)
		r.OK(err)
		if !ok {
			runtime.Gosched()
			continue
		}
		if i < 0 || i >= len(reqs) || seen[i] {
			r.Errorf("TestAny returns %d, for the second time or out of range", i)
			break
		}
		seen[i] = true
		left--
		done(r, recvs, i, &st)
	}
	if i, _, ok, err := cohort.TestAny(reqs...); i != -1 || !ok || err != nil {
		r.Errorf("TestAny of complete requests: %d, %v, %v; want -1, true", i, ok, err)
	}
	finish()
}

func testAll(r *Rank) {
	reqs, recvs, finish := open(r, 20)
	// This one completes only after this rank's neighbor has sent to it.
	next, prev := r.ring()
	last := must(cohort.Irecv(r.Comm, make([]int32, 1), prev, 500))
	for range 20 {
		if ok, err := cohort.TestAll(append(reqs, last)...); ok || err != nil {
			r.Errorf("TestAll with a receive whose message was not sent: %v, %v", ok, err)
		}
	}
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{1}, next, 500))
	for {
		if ok := must(cohort.TestAll(append(reqs, last)...)); ok {
			break
		}
		runtime.Gosched()
	}
	for i := range reqs {
		st := must(reqs[i].Wait())
		done(r, recvs, i, &st)
	}
	finish()
}

// nothingLeft calls every function without requests and with nil requests.
func nothingLeft(r *Rank) {
	for _, reqs := range [][]*cohort.Request{nil, {nil, nil}} {
		r.OK(cohort.WaitAll(reqs...))
		if i, _, err := cohort.WaitAny(reqs...); i != -1 || err != nil {
			r.Errorf("WaitAny of nothing: %d, %v", i, err)
		}
		if is, err := cohort.WaitSome(reqs...); len(is) != 0 || err != nil {
			r.Errorf("WaitSome of nothing: %v, %v", is, err)
		}
		if ok, err := cohort.TestAll(reqs...); !ok || err != nil {
			r.Errorf("TestAll of nothing: %v, %v", ok, err)
		}
		if i, _, ok, err := cohort.TestAny(reqs...); i != -1 || !ok || err != nil {
			r.Errorf("TestAny of nothing: %d, %v, %v", i, ok, err)
		}
		if is, err := cohort.TestSome(reqs...); len(is) != 0 || err != nil {
			r.Errorf("TestSome of nothing: %v, %v", is, err)
		}
	}
	r.OK(cohort.StartAll())
	r.OK(cohort.WaitAllPersistent(nil, nil))
	var q *cohort.Request
	if _, err := q.Wait(); err != nil {
		r.Errorf("Wait of a nil request: %v", err)
	}
	if _, ok, err := q.Test(); !ok || err != nil {
		r.Errorf("Test of a nil request: %v, %v", ok, err)
	}
}

// waitAgain waits for completed requests once more: they return the same status, and
// the sets ignore them.
func waitAgain(r *Rank) {
	next, prev := r.ring()
	req := must(cohort.Irecv(r.Comm, make([]int32, 3), prev, 4))
	r.OK(cohort.Send(r.Comm, []int32{1, 2}, next, 4))
	for range 3 {
		st := must(req.Wait())
		if st.Source != prev || st.Tag != 4 || cohort.Count[int32](st) != 2 {
			r.Errorf("Wait: %+v", st)
		}
		st, ok := must2(req.Test())
		if !ok || st.Source != prev || cohort.Count[int32](st) != 2 {
			r.Errorf("Test after Wait: %v, %+v", ok, st)
		}
	}
	if i, _, err := cohort.WaitAny(nil, req, nil); i != -1 || err != nil {
		r.Errorf("WaitAny of a request that was waited for: %d, %v, want -1", i, err)
	}
	r.OK(cohort.WaitAll(req, req))
}

// cancel cancels a receive that has not matched, and tries to cancel one that has.
func cancel(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	recv := newBuffer(int32s, 4)
	image := newBuffer(int32s, 4)
	req := must(cohort.Irecv(c, recv.data, prev, 11))
	r.OK(req.Cancel())
	r.Is(errorOf(req.Wait()), cohort.ErrCanceled, "Wait for a receive that was canceled")
	r.OK(req.Cancel())
	// A message sent now goes to the next receive, not to the canceled one.
	r.OK(c.Barrier())
	r.OK(cohort.Send(c, []int32{9}, next, 11))
	got := make([]int32, 1)
	must(cohort.Recv(c, got, prev, 11))
	if i, ok := recv.diff(image, nil); !ok || got[0] != 9 {
		r.Errorf("after Cancel: element %d of the canceled buffer was written, or got %d", i, got[0])
	}
	// An exchange cannot be canceled.
	req = must(cohort.Isendrecv(c, []int32{3}, next, 13, got, prev, 13))
	if err := req.Cancel(); err != nil {
		r.Is(err, cohort.ErrNotSupported, "Cancel of an Isendrecv")
	}
	if _, err := req.Wait(); err != nil || got[0] != 3 {
		r.Errorf("an exchange that was not canceled: %v, %d", err, got[0])
	}
	// A receive that is complete stays so.
	req = must(cohort.Irecv(c, got, prev, 12))
	r.OK(cohort.Ssend(c, []int32{10}, next, 12))
	r.OK(c.Barrier()) // the neighbor's Ssend has returned: it has matched
	r.OK(req.Cancel())
	if _, err := req.Wait(); err != nil || got[0] != 10 {
		r.Errorf("a receive canceled after it matched: %v, %d", err, got[0])
	}
}

// errorsInSets has one request of a set fail: the functions return its error and
// complete the other requests.
func errorsInSets(r *Rank) {
	c := r.Comm
	next, prev := r.ring()
	open := func() []*cohort.Request {
		var reqs []*cohort.Request
		for i, room := range []int{3, 1, 3} { // the second is too short
			req := must(cohort.Irecv(c, make([]int32, room), prev, i))
			reqs = append(reqs, req)
		}
		for i := range 3 {
			r.OK(cohort.Send(c, []int32{1, 2, 3}, next, i))
		}
		return reqs
	}
	r.Is(cohort.WaitAll(open()...), cohort.ErrTruncate, "WaitAll with a truncated receive")
	reqs := open()
	for range reqs {
		i, st, err := cohort.WaitAny(reqs...)
		switch {
		case i == 1:
			r.Is(err, cohort.ErrTruncate, "WaitAny of the truncated receive")
		case err != nil || cohort.Count[int32](st) != 3:
			r.Errorf("WaitAny of request %d: %+v, %v", i, st, err)
		}
	}
	reqs = open()
	truncated := false
	for left := len(reqs); left > 0; {
		indices, err := cohort.WaitSome(reqs...)
		if len(indices) == 0 {
			r.Errorf("WaitSome returns none of %d", left)
			break
		}
		left -= len(indices)
		if err != nil {
			truncated = r.Is(err, cohort.ErrTruncate, "WaitSome with the truncated receive").ok || truncated
		}
	}
	if !truncated {
		r.Errorf("WaitSome did not return the truncated receive's error")
	}
}
