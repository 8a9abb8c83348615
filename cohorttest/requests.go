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
func open(r *Rank, k int) (reqs []*cohort.Request, recvs map[int]pair) {
	comms := []*cohort.Comm{r.Comm, r.Comm, r.dup()}
	recvs = map[int]pair{}
	rng := seeded(r.scenario, r.Size)
	for tag := range k {
		c, m := comms[rng.IntN(3)], []int{1, 1, 200, 9000}[rng.IntN(4)]
		msg := filled(m, func(int) int32 { return int32(r.Rank*1000 + tag) })
		buf := make([]int32, m)
		recvs[len(reqs)] = pair{buf, int32(r.prev*1000 + tag)}
		reqs = append(reqs, must(cohort.Irecv(c, buf, r.prev, tag)), must(cohort.Isend(c, msg, r.next, tag)))
	}
	return reqs, recvs
}

// done checks the result of request i of a set.
func done(r *Rank, recvs map[int]pair, i int, st *cohort.Status) {
	p, ok := recvs[i]
	if !ok {
		return // a send
	}
	if st != nil && (st.Source != r.prev || cohort.Count[int32](*st) != len(p.buf)) {
		r.Errorf("request %d: %+v, %d elements, want %d from %d", i, *st, cohort.Count[int32](*st), len(p.buf), r.prev)
	}
	if p.buf[0] != p.want || p.buf[len(p.buf)-1] != p.want {
		r.Errorf("request %d received %d, want %d", i, p.buf[0], p.want)
	}
}

// randomOrder completes 100 outstanding requests in an order that differs from rank to
// rank.
func randomOrder(r *Rank) {
	reqs, recvs := open(r, 50)
	for _, i := range seeded(fmt.Sprint(r.scenario, r.Rank), r.Size).Perm(len(reqs)) {
		st := must(reqs[i].Wait())
		done(r, recvs, i, &st)
	}
}

// inSets completes a set with a function that returns the indices of those that are complete. It may return none only if
// empty. st is the status of the only one, if the function returns that.
func inSets(r *Rank, name string, empty bool, complete func(...*cohort.Request) (indices []int, st *cohort.Status, err error)) {
	reqs, recvs := open(r, 20)
	seen := make([]bool, len(reqs))
	for left := len(reqs); left > 0; {
		indices, st, err := complete(reqs...)
		r.OK(err)
		if len(indices) == 0 && !empty {
			r.Errorf("%s returns none of %d requests", name, left)
			return
		}
		for _, i := range indices {
			if i < 0 || i >= len(reqs) || seen[i] {
				r.Errorf("%s returns %d, for the second time or out of range", name, i)
				return
			}
			seen[i] = true
			left--
			done(r, recvs, i, st)
			again := must(reqs[i].Wait()) // returns its status again
			done(r, recvs, i, &again)
		}
		runtime.Gosched()
	}
	if indices, _, err := complete(reqs...); len(indices) != 0 || err != nil {
		r.Errorf("%s of complete requests: %v, %v", name, indices, err)
	}
}

func waitAny(r *Rank) {
	inSets(r, "WaitAny", false, func(reqs ...*cohort.Request) ([]int, *cohort.Status, error) {
		i, st, err := cohort.WaitAny(reqs...)
		if i == -1 {
			return nil, nil, err
		}
		return []int{i}, &st, err
	})
}

func testAny(r *Rank) {
	inSets(r, "TestAny", true, func(reqs ...*cohort.Request) ([]int, *cohort.Status, error) {
		i, st, ok, err := cohort.TestAny(reqs...)
		if !ok || i == -1 {
			return nil, nil, err
		}
		return []int{i}, &st, err
	})
}

func waitSome(r *Rank) {
	inSets(r, "WaitSome", false, func(reqs ...*cohort.Request) ([]int, *cohort.Status, error) {
		is, err := cohort.WaitSome(reqs...)
		return is, nil, err
	})
}

func testSome(r *Rank) {
	inSets(r, "TestSome", true, func(reqs ...*cohort.Request) ([]int, *cohort.Status, error) {
		is, err := cohort.TestSome(reqs...)
		return is, nil, err
	})
}

func testAll(r *Rank) {
	reqs, recvs := open(r, 20)
	// This one completes only after this rank's neighbor has sent to it.
	all := append(reqs, must(cohort.Irecv(r.Comm, make([]int32, 1), r.prev, 500)))
	for range 20 {
		equal(r, must(cohort.TestAll(all...)), false, "TestAll with a receive whose message was not sent")
	}
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{1}, r.next, 500))
	for !must(cohort.TestAll(all...)) {
		runtime.Gosched()
	}
	for i := range reqs {
		st := must(reqs[i].Wait())
		done(r, recvs, i, &st)
	}
}

// cancel cancels a receive that has not matched, and tries to cancel one that has.
func cancel(r *Rank) {
	recv := newBuffer(int32s, 4)
	image := newBuffer(int32s, 4)
	req := must(cohort.Irecv(r.Comm, recv.data, r.prev, 11))
	r.OK(req.Cancel())
	r.Is(errorOf(req.Wait()), cohort.ErrCanceled, "Wait for a receive that was canceled")
	r.OK(req.Cancel())
	// A message sent now goes to the next receive, not to the canceled one.
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{9}, r.next, 11))
	got := make([]int32, 1)
	must(cohort.Recv(r.Comm, got, r.prev, 11))
	if i, ok := recv.diff(image, nil); !ok || got[0] != 9 {
		r.Errorf("after Cancel: element %d of the canceled buffer was written, or got %d", i, got[0])
	}
	// An exchange cannot be canceled.
	req = must(cohort.Isendrecv(r.Comm, []int32{3}, r.next, 13, got, r.prev, 13))
	if err := req.Cancel(); err != nil {
		r.Is(err, cohort.ErrNotSupported, "Cancel of an Isendrecv")
	}
	if _, err := req.Wait(); err != nil || got[0] != 3 {
		r.Errorf("an exchange that was not canceled: %v, %d", err, got[0])
	}
	// A receive that is complete stays so.
	req = must(cohort.Irecv(r.Comm, got, r.prev, 12))
	r.OK(cohort.Ssend(r.Comm, []int32{10}, r.next, 12))
	r.OK(r.Comm.Barrier()) // the neighbor's Ssend has returned: it has matched
	r.OK(req.Cancel())
	if _, err := req.Wait(); err != nil || got[0] != 10 {
		r.Errorf("a receive canceled after it matched: %v, %d", err, got[0])
	}
}

// errorsInSets has one request of a set fail: the functions return its error and
// complete the other requests.
func errorsInSets(r *Rank) {
	open := func() []*cohort.Request {
		var reqs []*cohort.Request
		for i, room := range []int{3, 1, 3} { // the second is too short
			reqs = append(reqs, must(cohort.Irecv(r.Comm, make([]int32, room), r.prev, i)))
		}
		for i := range 3 {
			r.OK(cohort.Send(r.Comm, []int32{1, 2, 3}, r.next, i))
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
