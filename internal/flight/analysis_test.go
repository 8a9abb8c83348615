package flight

import (
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// at is a time some seconds after noon.
func at(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }

// dump is a rank of a world of size that has dumped 40 s after noon.
func dump(rank, size int, ops ...Operation) *Dump {
	for i := range ops {
		ops[i].Ticket = uint64(i + 1)
	}
	return &Dump{Rank: rank, Size: size, Dumped: at(40), Cause: Timeout, Comms: []CommName{{0, "world", size, rank, 0}}, Ops: ops}
}

func coll(c backend.Coll, seq uint32, began float64, state State) Operation {
	return Operation{Kind: Kind(c), Seq: seq, Peer: -1, Type: uint32(backend.Float64), Count: 4, Begun: at(began), State: state}
}

func p2p(k Kind, peer, tag int, began float64, state State) Operation {
	return Operation{Kind: k, Peer: peer, Tag: tag, Type: uint32(backend.Float64), Count: 32, Begun: at(began), State: state}
}

func failed(o Operation, code error, ended float64) Operation {
	o.State, o.Code, o.Since = Failed, backend.Code(code), at(ended)
	return o
}

// unknown takes the operation's time away, but for that of an earlier one.
func unknown(o Operation, after float64) Operation {
	o.Begun, o.After = time.Time{}, at(after)
	return o
}

func count(o Operation, n int64) Operation {
	o.Count = n
	return o
}

func root(o Operation, r int) Operation {
	o.Peer = r
	return o
}

// in makes the operation one of a communicator of ranks 2 and 3.
func in(o Operation) Operation {
	o.Comm = 5
	return o
}

func member(d *Dump, rank int) *Dump {
	d.Comms = append(d.Comms, CommName{5, "world.split1", 2, rank, 2})
	return d
}

func left(d *Dump, s float64) *Dump {
	d.Dumped, d.Left = time.Time{}, at(s)
	return d
}

func programFailed(d *Dump, s float64) *Dump {
	d.Cause, d.Reason, d.Dumped = ProgramFailed, fmt.Sprintf("rank %d failed: out of luck", d.Rank), at(s)
	return d
}

func withoutDump(d *Dump) *Dump {
	d.Dumped = time.Time{}
	return d
}

func TestAnalyzeFindsCause(t *testing.T) {
	allreduce := func(state State) Operation { return coll(backend.Allreduce, 118, 9, state) }
	before := coll(backend.Allreduce, 117, 5, Done)
	iallreduce := func(state State) Operation {
		o := coll(backend.Allreduce, 118, 9, state)
		o.Form, o.Begun, o.Since = backend.Nonblocking, time.Time{}, at(10)
		return o
	}
	irecv := p2p(Recv, 1, 7, 0, Waiting)
	irecv.Form, irecv.Begun, irecv.Since = backend.Nonblocking, time.Time{}, at(10)
	started := coll(backend.Allreduce, 3, 9, Open)
	started.Form, started.Tag, started.State, started.Since = backend.Persistent, 12, Waiting, at(9)
	posted := p2p(Recv, 1, 7, 0, Open)
	posted.Form = backend.Nonblocking
	for _, c := range []struct {
		name  string
		dumps []*Dump
		want  string
		fine  bool
	}{
		{"another collective", []*Dump{
			dump(0, 4, before, allreduce(Open)), dump(1, 4, before, allreduce(Open)),
			dump(2, 4, before, root(coll(backend.Bcast, 118, 12, Open), 0)), dump(3, 4, before, allreduce(Open)),
		}, "rank 2 is in Bcast #118 while 0, 1, 3 are in Allreduce #118, waiting 31 s", false},
		{"it has ended with an error", []*Dump{
			dump(0, 4, before, failed(allreduce(Open), backend.ErrMismatch, 10)), dump(1, 4, before, failed(allreduce(Open), backend.ErrMismatch, 10)),
			dump(2, 4, before, failed(coll(backend.Bcast, 118, 9, Open), backend.ErrMismatch, 10)), dump(3, 4, before, failed(allreduce(Open), backend.ErrMismatch, 10),
				failed(coll(backend.Barrier, 119, 11, Open), backend.ErrBroken, 11)),
		}, "rank 2 was in Bcast #118 while 0, 1, 3 were in Allreduce #118, waiting 1.0 s", false},
		{"another count", []*Dump{
			dump(0, 3, allreduce(Open)), dump(1, 3, count(allreduce(Open), 5)), dump(2, 3, allreduce(Open)),
		}, "rank 1 is in Allreduce #118 (float64, count 5) while 0, 2 are in Allreduce #118 (float64, count 4), waiting 31 s", false},
		{"another root", []*Dump{
			dump(0, 3, root(coll(backend.Bcast, 4, 10, Open), 0)), dump(1, 3, root(coll(backend.Bcast, 4, 10, Open), 0)), dump(2, 3, root(coll(backend.Bcast, 4, 10, Open), 2)),
		}, "rank 2 is in Bcast #4 (float64, count 4, root 2) while 0, 1 are in Bcast #4 (float64, count 4, root 0), waiting 30 s", false},
		{"computing", []*Dump{
			dump(0, 3, before, allreduce(Open)), dump(1, 3, before), dump(2, 3, before, allreduce(Open)),
		}, "rank 1 has not reached Allreduce #118, where ranks 0, 2 have waited 31 s: it is in no operation, after Allreduce #117, which began 35 s before", false},
		{"computing, its time not known", []*Dump{
			dump(0, 3, before, allreduce(Open)), dump(1, 3, unknown(before, 4)), dump(2, 3, before, allreduce(Open)),
		}, "rank 1 has not reached Allreduce #118, where ranks 0, 2 have waited 31 s: it is in no operation, after Allreduce #117, which began at most 36 s before", false},
		{"in a message", []*Dump{
			dump(0, 3, before, allreduce(Open)), dump(1, 3, before, p2p(Recv, 0, 5, 6, Open)), dump(2, 3, before, allreduce(Open)),
		}, "rank 1 has not reached Allreduce #118, where ranks 0, 2 have waited 31 s: it is in Recv from 0, tag 5, waiting 34 s", false},
		{"in the collective before", []*Dump{
			dump(0, 2, before, allreduce(Open)), dump(1, 2, coll(backend.Allreduce, 117, 20, Open)),
		}, "rank 1 is in Allreduce #117, which rank 0 has been through, waiting 20 s", false},
		{"left", []*Dump{
			dump(0, 2, before, allreduce(Open)), left(dump(1, 2, before), 8),
		}, "rank 1 has not reached Allreduce #118, where rank 0 has waited 31 s: it has left the job in good order, after Allreduce #117", false},
		{"failed", []*Dump{
			dump(0, 3, before, failed(allreduce(Open), backend.ErrPeerLost, 10)), programFailed(dump(1, 3, before), 8), programFailed(dump(2, 3), 9),
		}, "rank 1 failed: out of luck, after Allreduce #117, which began 3.0 s before", false},
		{"no record", []*Dump{
			dump(0, 4, allreduce(Open)), dump(3, 4, allreduce(Open)),
		}, "ranks 1, 2 have not reached Allreduce #118, where ranks 0, 3 have waited 31 s: ranks 1, 2: has left no record", false},
		{"killed", []*Dump{
			dump(0, 3, before, failed(allreduce(Open), backend.ErrPeerLost, 10)), withoutDump(dump(1, 3, before)), dump(2, 3, before, failed(allreduce(Open), backend.ErrPeerLost, 10)),
		}, "rank 1 has not reached Allreduce #118, where ranks 0, 2 had waited 1.0 s: it is in no operation, or has ended, after Allreduce #117, which began 35 s before", false},
		{"late", []*Dump{ // as one that was stopped, and continued to be ended
			dump(0, 3, before, failed(allreduce(Open), backend.ErrTimeout, 39)), withoutDump(dump(1, 3, before, coll(backend.Allreduce, 118, 39.5, Open))),
			dump(2, 3, before, failed(allreduce(Open), backend.ErrTimeout, 39)),
		}, "rank 1 has not reached Allreduce #118, where ranks 0, 2 had waited 30 s: it came 500 ms after that", false},
		{"late, with an error of its own", []*Dump{
			dump(0, 2, failed(allreduce(Open), backend.ErrTimeout, 29)), dump(1, 2, failed(coll(backend.Allreduce, 118, 32, Open), backend.ErrBroken, 32)),
		}, "rank 1 has not reached Allreduce #118, where rank 0 had waited 20 s: it came 3.0 s after that", false},
		{"begun and not waited for", []*Dump{
			dump(0, 3, before, iallreduce(Waiting)), dump(1, 3, before, iallreduce(Open)), dump(2, 3, before, iallreduce(Waiting)),
		}, "rank 1 has begun Iallreduce #118, where ranks 0, 2 have waited 30 s, without waiting for it: it is in no operation, after Iallreduce #118", false},
		{"in an agreement", []*Dump{ // of the number of a collective that has ended
			dump(0, 4, before, p2p(Agree, -1, 0, 10, Open)), dump(1, 4, before, failed(p2p(Agree, -1, 0, 9, Open), backend.ErrTimeout, 11), p2p(Agree, -1, 0, 12, Open)),
			dump(2, 4, before, failed(allreduce(Open), backend.ErrPeerLost, 12)), dump(3, 4, before, allreduce(Open)),
		}, "ranks 2, 3 have not reached Agree #0, where ranks 0, 1 have waited 30 s: " +
			`rank 2: was in Allreduce #118, which ended with "peer lost", waiting 3.0 s; rank 3: is in Allreduce #118, waiting 31 s`, false},
		{"another agreement", []*Dump{
			dump(0, 3, failed(p2p(Agree, -1, 0, 10, Open), backend.ErrMismatch, 12)), dump(1, 3, failed(p2p(Shrink, -1, 0, 11, Open), backend.ErrMismatch, 12)),
			dump(2, 3, failed(p2p(Agree, -1, 0, 11, Open), backend.ErrMismatch, 12)),
		}, "rank 1 was in Shrink #0 while 0, 2 were in Agree #0, waiting 2.0 s", false},
		{"through an agreement", []*Dump{
			dump(0, 2, before, p2p(Shrink, -1, 0, 10, Done)), dump(1, 2, before, p2p(Shrink, -1, 0, 11, Open)),
		}, "rank 1 is in Shrink #0, which rank 0 has been through, waiting 29 s", false},
		{"two wait for each other", []*Dump{
			dump(0, 2, p2p(Recv, 1, 5, 10, Open)), dump(1, 2, p2p(Recv, 0, 6, 12, Open)),
		}, "rank 0 is in Recv from 1, tag 5, rank 1 is in Recv from 0, tag 6: each waits for the next, waiting 30 s", false},
		{"two wait for another tag than was sent", []*Dump{
			dump(0, 2, p2p(Send, 1, 8, 9, Done), p2p(Recv, 1, 5, 10, Open)), dump(1, 2, p2p(Recv, 0, 7, 10, Open)),
		}, "rank 0 is in Recv from 1, tag 5, rank 1 is in Recv from 0, tag 7: rank 1 waits for tag 7 from rank 0, which sent tag 8, waiting 30 s", false},
		{"two wait for each other, and the message before was received", []*Dump{
			dump(0, 2, p2p(Send, 1, 8, 8, Done), p2p(Recv, 1, 5, 10, Open)), dump(1, 2, p2p(Recv, 0, 8, 9, Done), p2p(Recv, 0, 7, 10, Open)),
		}, "rank 0 is in Recv from 1, tag 5, rank 1 is in Recv from 0, tag 7: each waits for the next, waiting 30 s", false},
		{"a wrong argument", []*Dump{
			dump(0, 3, failed(allreduce(Open), backend.ErrMismatch, 9)), dump(1, 3, failed(allreduce(Open), backend.ErrCount, 9)), dump(2, 3, failed(allreduce(Open), backend.ErrMismatch, 9)),
		}, "rank 1 called Allreduce #118 with an argument error (invalid count)", false},
		{"a circle in a part", []*Dump{
			dump(0, 4, before), dump(1, 4, before),
			member(dump(2, 4, before, in(p2p(Ssend, 1, 5, 10, Open))), 0), member(dump(3, 4, before, in(p2p(Ssend, 0, 5, 10, Open))), 1),
		}, "rank 2 is in Ssend to 1, tag 5 of world.split1, rank 3 is in Ssend to 0, tag 5 of world.split1: each waits for the next, waiting 30 s", false},
		{"collective of a part", []*Dump{
			dump(0, 4, before), dump(1, 4, before),
			member(dump(2, 4, before, in(coll(backend.Scan, 2, 10, Open))), 0), member(dump(3, 4, before), 1),
		}, "rank 3 has not reached Scan #2 of world.split1, where rank 2 has waited 30 s: it is in no operation, after Allreduce #117, which began 35 s before", false},
		{"a chain", []*Dump{
			dump(0, 5, p2p(Recv, 3, 5, 10, Open)), dump(1, 5, before), dump(2, 5, p2p(Recv, 1, 5, 12, Open)), dump(3, 5, p2p(Recv, 2, 5, 11, Open)), dump(4, 5, p2p(Recv, 0, 5, 13, Open)),
		}, "rank 0 is in Recv from 3, tag 5, waiting 30 s; 3 waits for 2, 2 for 1; rank 1 is in no operation, after Allreduce #117, which began 35 s before; " +
			"rank 4 is in an operation as well", false},
		{"a long chain", []*Dump{
			dump(0, 7, p2p(Recv, 1, 5, 10, Open)), dump(1, 7, p2p(Recv, 2, 5, 11, Open)), dump(2, 7, p2p(Recv, 3, 5, 12, Open)), dump(3, 7, p2p(Recv, 4, 5, 11, Open)),
			dump(4, 7, p2p(Recv, 5, 5, 13, Open)), dump(5, 7, p2p(Recv, 6, 5, 13, Open)), dump(6, 7, before),
		}, "rank 0 is in Recv from 1, tag 5, waiting 30 s; 1 waits for 2, and so on over 3 ranks, 5 for 6; rank 6 is in no operation, after Allreduce #117, which began 35 s before", false},
		{"waiting for a request", []*Dump{
			dump(0, 2, irecv), dump(1, 2, before),
		}, "rank 0 is in Irecv from 1, tag 7, waiting 30 s; rank 1 is in no operation, after Allreduce #117, which began 35 s before", false},
		{"a start", []*Dump{
			dump(0, 2, started), dump(1, 2, before),
		}, "rank 1 has not reached persistent Allreduce #3 (start 12), where rank 0 has waited 31 s: it is in no operation, after Allreduce #117, which began 35 s before", false},
		{"a long list", []*Dump{
			dump(0, 6, before, allreduce(Open)), dump(1, 6, before, allreduce(Open)), dump(2, 6, before, allreduce(Open)),
			dump(3, 6, before, allreduce(Open)), dump(4, 6, coll(backend.Barrier, 118, 9, Open)), dump(5, 6, before, allreduce(Open)),
		}, "rank 4 is in Barrier #118 while 0-3, 5 are in Allreduce #118, waiting 31 s", false},
		{"all there", []*Dump{
			dump(0, 2, allreduce(Open)), dump(1, 2, allreduce(Open)),
		}, "all ranks are in Allreduce #118, waiting 31 s", false},
		{"nothing wrong", []*Dump{dump(0, 2, before, posted), dump(1, 2, before)}, "all ranks have finished the same operations", true},
		{"all left", []*Dump{left(dump(0, 2, before), 8), left(dump(1, 2, before), 9)}, "all ranks have finished the same operations and left the job", true},
		{"not equally far", []*Dump{dump(0, 2, before), dump(1, 2, coll(backend.Allreduce, 116, 4, Done))},
			"no rank is in an operation, and they have not got equally far: rank 0 after Allreduce #117, which began 35 s before; rank 1 after Allreduce #116, which began 36 s before", false},
		{"one file of two", []*Dump{dump(0, 2, before)}, "rank 1 has left no record; the others are in no operation", false},
	} {
		f := Analyze(c.dumps)
		if f.Line != c.want || f.Trouble == c.fine {
			t.Errorf("%s:\n got %s (trouble %v)\nwant %s", c.name, f.Line, f.Trouble, c.want)
		}
	}
}

// TestAnalyzeIncompleteOrDamagedFiles has files from which something is missing, or that are damaged.
func TestAnalyzeIncompleteOrDamagedFiles(t *testing.T) {
	waits := coll(backend.Allreduce, 118, 9, Open)
	for _, c := range []struct {
		name  string
		dumps []*Dump
		want  string
	}{
		{"a communicator whose name had no room", []*Dump{dump(0, 2, in(waits)), dump(1, 2, in(waits))},
			"all ranks are in Allreduce #118, waiting 31 s"},
		{"an operation that failed before it began", []*Dump{dump(0, 1, failed(waits, backend.ErrTimeout, 8))},
			"all ranks were in Allreduce #118"},
	} {
		if f := Analyze(c.dumps); f.Line != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, f.Line, c.want)
		}
	}
}
