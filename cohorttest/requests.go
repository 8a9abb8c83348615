package cohorttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// Requests, and sets of requests (MPI-4.1 section 3.7).

// exchanged is a set of receives and sends between all ranks.
type exchanged struct {
	reqs  []*cohort.Request
	recvs map[int]func(st cohort.Status) // checks the result of the request with this index
}

// exchangeAll starts k messages of several lengths to other ranks and to itself, on communicators of the same ranks, and as
// many receives. The messages are sent in another order than the receives have, before them or after them. The tags begin
// with first.
func exchangeAll(r *Rank, rng *rand.Rand, k, first int, comms ...*cohort.Comm) *exchanged {
	x, size, me := &exchanged{recvs: make(map[int]func(cohort.Status))}, comms[0].Size(), comms[0].Rank()
	var recvs, sends []func() *cohort.Request
	for tag := first; tag < first+k; tag++ {
		c, m, by := comms[rng.IntN(len(comms))], []int{0, 1, 1, 200, 9000, 40000}[rng.IntN(6)], rng.IntN(size)
		to, from := (me+by)%size, (me+size-by)%size
		elem := func(rank int) func(i int) int32 { return func(i int) int32 { return int32(rank*100000 + tag + i) } }
		buf, view := make([]int32, m), cohort.Vector(1, m, m)
		if tag%3 == 1 {
			buf, view = make([]int32, 2*m), cohort.Vector(m, 1, 2)
		}
		got := cohort.ViewOf(buf, view)
		recvs = append(recvs, func() *cohort.Request {
			x.recvs[len(x.reqs)] = func(st cohort.Status) {
				status[int32](r, st, from, tag, m, "message %d", tag)
				all := make([]int32, m)
				r.OK(got.Pack(all))
				same(r, all, elem(from), "message %d", tag)
			}
			if tag%3 == 0 {
				return must(cohort.Irecv(c, buf, from, tag))
			}
			return must(cohort.IrecvView(c, got, from, tag))
		})
		sends = append(sends, func() *cohort.Request {
			msg := filled(m, elem(me))
			switch tag % 4 {
			case 0:
				return must(cohort.IsendView(c, viewOf(msg), to, tag))
			case 1:
				return must(cohort.Issend(c, msg, to, tag))
			}
			return must(cohort.Isend(c, msg, to, tag))
		})
	}
	rng.Shuffle(k, func(i, j int) { sends[i], sends[j] = sends[j], sends[i] })
	all := slices.Concat(recvs, sends)
	if rng.IntN(2) == 0 {
		all = slices.Concat(sends, recvs)
	}
	for _, start := range all {
		x.reqs = append(x.reqs, start())
	}
	return x
}

// completion is a way to complete the requests of a set.
type completion struct {
	name  string
	waits bool
	// complete returns which requests are complete now, and the status if it is one. left has those that were not before.
	complete func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error)
}

var completions = []completion{
	{"Wait", true, func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error) {
		st, err := reqs[left[0]].Wait()
		return one(left[0], st, true, err)
	}},
	{"Test", false, func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error) {
		st, done, err := reqs[left[0]].Test()
		return one(left[0], st, done, err)
	}},
	{"Done", true, func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error) {
		select {
		case <-reqs[left[0]].Done():
			return left[:1], nil, nil
		case <-reqs[left[len(left)-1]].Done():
			return left[len(left)-1:], nil, nil
		}
	}},
	{"WaitAny", true, func(reqs []*cohort.Request, _ []int) ([]int, *cohort.Status, error) {
		i, st, err := cohort.WaitAny(reqs...)
		return one(i, st, true, err)
	}},
	{"TestAny", false, func(reqs []*cohort.Request, _ []int) ([]int, *cohort.Status, error) {
		return one(cohort.TestAny(reqs...))
	}},
	{"WaitSome", true, func(reqs []*cohort.Request, _ []int) ([]int, *cohort.Status, error) {
		some, err := cohort.WaitSome(reqs...)
		return some, nil, err
	}},
	{"TestSome", false, func(reqs []*cohort.Request, _ []int) ([]int, *cohort.Status, error) {
		some, err := cohort.TestSome(reqs...)
		return some, nil, err
	}},
	{"WaitAll", true, func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error) {
		return slices.Clone(left), nil, cohort.WaitAll(reqs...)
	}},
	{"TestAll", false, func(reqs []*cohort.Request, left []int) ([]int, *cohort.Status, error) {
		done, err := cohort.TestAll(reqs...)
		if !done {
			return nil, nil, err
		}
		return slices.Clone(left), nil, err
	}},
}

// all completes the requests left. It calls completed with each, and with its status if the way returns that, and
// returns the errors joined.
func (way completion) all(r *Rank, reqs []*cohort.Request, left []int, completed func(i int, st *cohort.Status)) (failed error) {
	for ; len(left) > 0; runtime.Gosched() {
		indices, st, err := way.complete(reqs, left)
		failed = errors.Join(failed, err)
		if len(indices) == 0 && way.waits {
			r.OK(fmt.Errorf("%s returns none of %d requests", way.name, len(left)))
		}
		for _, i := range slices.Clone(indices) {
			at := slices.Index(left, i)
			if at < 0 {
				r.OK(fmt.Errorf("%s returns %d, for the second time or out of range", way.name, i))
			}
			left = slices.Delete(left, at, at+1)
			completed(i, st)
		}
	}
	return failed
}

// one is the result of a completion that completes one request, if there is one.
func one(i int, st cohort.Status, done bool, err error) ([]int, *cohort.Status, error) {
	if i == -1 || !done {
		return nil, nil, err
	}
	return []int{i}, &st, err
}

// requestSets completes sets of requests in all ways, in an order that differs from rank to rank.
func requestSets(r *Rank) {
	late := []*cohort.Request{
		must(cohort.Irecv(r.Comm, make([]int32, 1), r.prev, 500)),
		must(cohort.Isend(r.Comm, []int32{1}, r.next, 501)),
		must(cohort.Irecv(r.Comm, make([]int32, 1), r.prev, 501)),
	}
	for range 20 {
		equal(r, must(cohort.TestAll(late...)), false, "TestAll with a receive whose message was not sent")
	}
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{1}, r.next, 500))
	r.OK(cohort.WaitAll(late...))

	other, rng := r.dup(), seeded(fmt.Sprint(r.scenario, r.Rank), r.Size)
	for _, way := range completions {
		x := exchangeAll(r, seeded(r.scenario+way.name, r.Size), r.pick(20, 40), 0, r.Comm, other)
		r.OK(way.all(r, x.reqs, rng.Perm(len(x.reqs)), func(i int, st *cohort.Status) {
			again := must(x.reqs[i].Wait()) // returns its status again
			if st != nil && *st != again {
				r.Errorf("%s returns the status %+v, and Wait %+v", way.name, *st, again)
			}
			if check := x.recvs[i]; check != nil {
				check(again)
			}
		}))
		if indices, _, err := way.complete(x.reqs, []int{0, 1}); len(indices) != 0 && indices[0] > 1 || err != nil {
			r.Errorf("%s of complete requests: %v, %v", way.name, indices, err)
		}
	}
}

// cancel cancels a receive that has not matched, and tries to cancel one that has.
func cancel(r *Rank) {
	recv := newBuffer(int32s, 4)
	req := must(cohort.Irecv(r.Comm, recv.data, r.prev, 11))
	r.OK(req.Cancel())
	r.Is(errorOf(req.Wait()), cohort.ErrCanceled, "Wait for a receive that was canceled")
	r.OK(req.Cancel())
	// A message sent now goes to the next receive, not to the canceled one.
	r.OK(r.Comm.Barrier())
	r.OK(cohort.Send(r.Comm, []int32{9}, r.next, 11))
	got := make([]int32, 1)
	must(cohort.Recv(r.Comm, got, r.prev, 11))
	recv.is(r, newBuffer(int32s, 4), "the buffer of a receive that was canceled")
	equal(r, got[0], 9, "the receive after it")
	// An exchange cannot be canceled.
	req = must(cohort.Isendrecv(r.Comm, []int32{3}, r.next, 13, got, r.prev, 13))
	if err := req.Cancel(); err != nil {
		r.Is(err, cohort.ErrNotSupported, "Cancel of an Isendrecv")
	}
	must(req.Wait())
	equal(r, got[0], 3, "an exchange that was not canceled")
	// A receive that is complete stays so.
	req = must(cohort.Irecv(r.Comm, got, r.prev, 12))
	r.OK(cohort.Ssend(r.Comm, []int32{10}, r.next, 12))
	r.OK(r.Comm.Barrier()) // the neighbor's Ssend has returned: it has matched
	r.OK(req.Cancel())
	must(req.Wait())
	equal(r, got[0], 10, "a receive canceled after it matched")
}

// errorsInSets has one request of a set fail: each way returns its error, and completes the other requests.
func errorsInSets(r *Rank) {
	for _, way := range completions {
		var reqs []*cohort.Request
		for i, room := range []int{3, 1, 3} { // the second is too short
			reqs = append(reqs, must(cohort.Irecv(r.Comm, make([]int32, room), r.prev, i)))
		}
		for i := range reqs {
			r.OK(cohort.Send(r.Comm, []int32{1, 2, 3}, r.next, i))
		}
		err := way.all(r, reqs, []int{0, 1, 2}, func(int, *cohort.Status) {})
		if way.name != "Done" { // which returns no errors
			r.Is(err, cohort.ErrTruncate, "%s with a truncated receive", way.name)
		}
		for i, q := range reqs {
			if st, err := q.Wait(); i == 1 {
				r.Is(err, cohort.ErrTruncate, "Wait after %s", way.name)
			} else {
				r.OK(err)
				status[int32](r, st, r.prev, i, 3, "Wait after %s", way.name)
			}
		}
	}
}

// requestsDone waits for channels of Done: of a nil request, of collectives to which one rank comes late, beside goroutines
// that wait for the same request in other ways, and of a receive whose communicator is closed.
func requestsDone(r *Rank) {
	var none *cohort.Request
	<-none.Done()
	isOpen := func(q *cohort.Request, what string) {
		select {
		case <-q.Done():
			r.Errorf("Done of %s is closed too early", what)
		default:
		}
	}
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
				isOpen(q, "an Iallreduce that a rank has not called")
				r.OK(cohort.Send(r.Comm, []int32{0}, late, 1))
			}
			<-done
			must(q.Wait())
			equal(r, recv[m-1], int64(r.Size*(r.Size-1)/2), "Iallreduce of %d", m)
		}
	}
	for k := range 20 {
		buf := make([]int32, 1)
		q := must(cohort.Irecv(r.Comm, buf, r.prev, k))
		errs := make(chan error, 3)
		go func() { <-q.Done(); errs <- nil }()
		go func() { <-q.Done(); errs <- errorOf(q.Wait()) }()
		go func() { errs <- errorOf(q.Wait()) }()
		isOpen(q, "a receive whose message was not sent")
		r.OK(r.Comm.Barrier())
		r.OK(cohort.Send(r.Comm, []int32{int32(k)}, r.next, k))
		for range cap(errs) {
			r.OK(<-errs)
		}
		status[int32](r, must(q.Wait()), r.prev, k, 1, "message %d", k)
		equal(r, buf[0], int32(k), "message %d", k)
	}
	d := must(r.Comm.Dup())
	q := must(cohort.Irecv(d, make([]int32, 1), r.prev, 1))
	done := q.Done()
	r.OK(d.Close())
	<-done
	if _, err := q.Wait(); err == nil {
		r.Errorf("a receive without a message is complete after Close")
	}
}
