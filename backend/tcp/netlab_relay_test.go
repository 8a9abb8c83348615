//go:build linux || darwin

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
	"github.com/cohort-hpc/cohort/internal/test/soak"
)

// These tests have ranks whose connections go through a relay, which does to the bytes what a broken
// network does, and worse. The ranks are engines of this process, so that there can be many runs.

const relayRanks = 3

// relayRun is a job of which one connection is bad.
type relayRun struct {
	seed      uint64
	plans     [2]netlab.Plan // of the connection between ranks a and b, a < b: what a says, what b says
	a, b      int
	heartbeat time.Duration
	timeout   time.Duration // of each operation
	sums      bool          // Config.Checksum
	empty     bool          // the operations are messages without data: all that passes is headers
	ops       int
}

// relayEnd is how a rank has ended.
type relayEnd struct {
	err   error         // of the operation that failed, nil if none did
	wrong string        // the first result that was not what it must be
	took  time.Duration // how long the operation that failed has taken
}

// run does the job. It returns how the ranks ended, and how many of the faults have happened.
func (r *relayRun) run() (ends [relayRanks]relayEnd, hits int, err error) {
	var links [relayRanks][relayRanks]*net.TCPConn
	var joint *netlab.Joint
	for b := range relayRanks {
		for a := range b {
			plans := [2]netlab.Plan{}
			if a == r.a && b == r.b {
				plans = r.plans
			}
			ca, cb, j, err := netlab.Bent(plans[0], plans[1])
			if err != nil {
				return ends, 0, err
			}
			defer j.Close()
			if a == r.a && b == r.b {
				joint = j
			}
			links[a][b], links[b][a] = ca, cb
		}
	}
	var ranks sync.WaitGroup
	var failed [relayRanks]error
	for me := range relayRanks {
		var sockets [relayRanks]net.Conn
		for p := range relayRanks {
			if p != me {
				sockets[p] = links[me][p]
			}
		}
		w, err := over(me, sockets[:], r.heartbeat, r.sums)
		if err != nil {
			return ends, 0, err
		}
		ranks.Go(func() {
			ends[me] = r.play(w)
			failed[me] = w.Close()
		})
	}
	ranks.Wait()
	return ends, joint.Hit(), errors.Join(failed[:]...)
}

var relayInts = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}

// play is a rank's part: the operations that the seed says, until one fails.
func (r *relayRun) play(w backend.Comm) (e relayEnd) {
	dice := rand.New(rand.NewPCG(r.seed, 7)) // the same on all ranks
	runner := sched.New(w)
	bound := &backend.Bound{Timeout: r.timeout}
	sum := &backend.Op{Code: backend.OpSum, Commutative: true, Type: relayInts, Apply: kernel.For(backend.OpSum, backend.Int64)}
	n, me := w.Size(), w.Rank()
	value := func(k, rank, i int) int64 { return int64(k)<<40 + int64(rank)<<32 + int64(i)*2654435761%(1<<31) }
	for k := range r.ops {
		m := []int{0, 1, 100, 3000, 20000}[dice.IntN(5)]
		what, root := dice.IntN(6), dice.IntN(n)
		if r.empty {
			m, what = 0, 5
		}
		send, recv := make([]byte, 8*m*n), make([]byte, 8*m*n)
		put := func(b []byte, rank, from, count int) {
			for i := range count {
				binary.NativeEndian.PutUint64(b[8*i:], uint64(value(k, rank, from+i)))
			}
		}
		put(send, me, 0, m*n)
		call := backend.Call{Root: -1, Type: relayInts, Count: m, Send: send[:8*m], Recv: recv[:8*m], Seq: uint32(k)}
		want := func(int) int64 { return 0 } // element i of recv
		begun := time.Now()
		switch what {
		case 0:
			call = backend.Call{Coll: backend.Barrier, Root: -1, Seq: uint32(k)}
		case 1:
			call.Coll, call.Op = backend.Allreduce, sum
			want = func(i int) (s int64) {
				for p := range n {
					s += value(k, p, i)
				}
				return s
			}
		case 2:
			call.Coll, call.Root, call.Send = backend.Bcast, root, nil
			if me == root {
				call.Recv = send[:8*m]
				copy(recv, call.Recv)
			}
			want = func(i int) int64 { return value(k, root, i) }
		case 3:
			call.Coll, call.Recv = backend.Allgather, recv
			want = func(i int) int64 { return value(k, i/m, i%m) }
		case 4:
			call.Coll, call.Send, call.Recv = backend.Alltoall, send, recv
			want = func(i int) int64 { return value(k, i/m, me*m+i%m) }
		case 5: // around the ring
			call.Recv = recv[:8*m]
			left, right := (me+n-1)%n, (me+1)%n
			in, out := &backend.Request{}, &backend.Request{}
			in.Begin()
			out.Begin()
			w.Irecv(in, call.Recv, left, 5)
			w.Isend(out, call.Send, right, 5, backend.Mode{Synchronous: root%2 == 1})
			for _, q := range []*backend.Request{in, out} {
				if err := w.Await(bound, q); err != nil {
					return relayEnd{err: err, took: time.Since(begun)}
				}
				if q.Err != nil {
					return relayEnd{err: q.Err, took: time.Since(begun)}
				}
			}
			want = func(i int) int64 { return value(k, left, i) }
		}
		if what < 5 {
			if err := runner.Run(bound, &call, true); err != nil {
				return relayEnd{err: err, took: time.Since(begun), wrong: e.wrong}
			}
		}
		for i := range len(call.Recv) / 8 {
			if got := int64(binary.NativeEndian.Uint64(call.Recv[8*i:])); got != want(i) && e.wrong == "" {
				e.wrong = fmt.Sprintf("operation %d, kind %d of %d elements: element %d is %#x, want %#x", k, what, m, i, got, want(i))
			}
		}
	}
	return e
}

// A relayHarm is a kind of fault, and what ranks may see of it.
type relayHarm struct {
	name      string
	plan      func(dice *rand.Rand) [2]netlab.Plan
	heartbeat time.Duration
	timeout   time.Duration
	may       []error // nothing else is allowed, but a right result; nil: every one of the package's own
	must      bool    // no rank may get an error
	changes   bool    // bytes are not what was sent: without a checksum of the payload no rank need notice
	sums      bool    // there is one
	empty     bool    // relayRun.empty
}

// relayOnce makes a plan with one fault somewhere in the first bytes of one direction.
func relayOnce(f func(dice *rand.Rand) netlab.Fault) func(dice *rand.Rand) [2]netlab.Plan {
	return func(dice *rand.Rand) (plans [2]netlab.Plan) {
		fault := f(dice)
		fault.At = dice.Int64N(1 << (4 + dice.IntN(15)))
		plans[dice.IntN(2)].Faults = []netlab.Fault{fault}
		return plans
	}
}

// badHeader makes a plan with something wrong in one of the first headers, where nothing but headers passes.
func badHeader(headers int64) func(dice *rand.Rand) [2]netlab.Plan {
	return func(dice *rand.Rand) (plans [2]netlab.Plan) {
		what := []netlab.Action{netlab.Flip, netlab.Drop, netlab.Duplicate}[dice.IntN(3)]
		at := 1 + dice.Int64N(headers*frame.HeaderSize-1)
		plans[dice.IntN(2)].Faults = []netlab.Fault{{Do: what, At: at, N: 1 + dice.IntN(int(min(at, frame.HeaderSize-1)))}}
		return plans
	}
}

const (
	relayPatient = time.Minute // a deadline that is there to end what hangs
	relayHasty   = 300 * time.Millisecond
)

func relayHarms() []relayHarm {
	lost, late := backend.ErrPeerLost, backend.ErrTimeout
	do := func(what netlab.Action) func(dice *rand.Rand) [2]netlab.Plan {
		return relayOnce(func(dice *rand.Rand) netlab.Fault {
			return netlab.Fault{Do: what, N: 1 + dice.IntN(64), For: time.Duration(dice.IntN(100)) * time.Millisecond}
		})
	}
	both := func(dice *rand.Rand) (plans [2]netlab.Plan) {
		for i := range plans {
			plans[i].Faults = []netlab.Fault{{Do: netlab.Silence, At: dice.Int64N(1 << (4 + dice.IntN(15)))}}
		}
		return plans
	}
	return []relayHarm{
		{name: "small pieces", plan: func(dice *rand.Rand) [2]netlab.Plan {
			return [2]netlab.Plan{{Chunk: 1 + dice.IntN(2000)}, {Chunk: 1 + dice.IntN(2000)}}
		}, timeout: relayPatient, must: true},
		{name: "a pause", plan: do(netlab.Pause), timeout: relayPatient, must: true},
		{name: "a reset", plan: do(netlab.Reset), timeout: relayPatient, may: []error{lost}},
		{name: "an end in the middle", plan: do(netlab.End), timeout: relayPatient, may: []error{lost}},
		{name: "one direction falls silent, heartbeat", plan: do(netlab.Silence), heartbeat: relayHasty, timeout: relayPatient, may: []error{lost}},
		{name: "both fall silent, heartbeat", plan: both, heartbeat: relayHasty, timeout: relayPatient, may: []error{lost}},
		{name: "one direction falls silent, deadline", plan: do(netlab.Silence), heartbeat: -1, timeout: relayHasty, may: []error{late, lost}},
		{name: "both fall silent, deadline", plan: both, heartbeat: -1, timeout: relayHasty, may: []error{late, lost}},
		// Headers have a checksum, with a sum of the payload or without.
		{name: "a first header that is not right", plan: badHeader(1), heartbeat: time.Second, timeout: relayPatient, may: []error{lost}},
		{name: "a later header that is not right", plan: badHeader(20), heartbeat: time.Second, timeout: relayPatient, may: []error{lost}, empty: true},
		{name: "a flipped bit", plan: do(netlab.Flip), heartbeat: time.Second, timeout: 2 * time.Second, changes: true},
		{name: "bytes left out", plan: do(netlab.Drop), heartbeat: time.Second, timeout: 2 * time.Second, changes: true},
		{name: "bytes that come twice", plan: do(netlab.Duplicate), heartbeat: time.Second, timeout: 2 * time.Second, changes: true},
	}
}

// TestHarmedConnectionsGiveResultsOrErrors does random runs of every harm. Every rank gets right results or the
// errors that are due, no run hangs, and nothing is left. A harm that changes bytes is tried without checksums of
// the payloads, when the data may be wrong, and with them, when they may not. COHORT_SOAK=n makes n runs of each,
// and COHORT_SOAK=m-n those from m to n.
func TestHarmedConnectionsGiveResultsOrErrors(t *testing.T) {
	runs := 24
	if testing.Short() {
		runs = 6
	}
	first, last := soak.Runs(t, runs)
	for _, h := range relayHarms() {
		t.Run(h.name, func(t *testing.T) { relayRuns(t, &h, first, last) })
		if h.changes {
			h.name, h.sums, h.timeout, h.may = h.name+", checksum", true, relayPatient, []error{backend.ErrPeerLost}
			t.Run(h.name, func(t *testing.T) { relayRuns(t, &h, first, last) })
		}
	}
}

// relayRuns does runs of one harm, several at a time: most of them wait.
func relayRuns(t *testing.T, h *relayHarm, first, last int) {
	dog := time.AfterFunc(10*time.Minute, func() {
		debug.SetTraceback("all")
		panic("no end of " + t.Name())
	})
	defer dog.Stop()
	files, routines := relayFiles(t), runtime.NumGoroutine()
	var mu sync.Mutex
	var workers sync.WaitGroup
	var took []time.Duration
	hit, wrong, kinds, next := 0, 0, map[string]int{}, first
	for range 6 {
		workers.Go(func() {
			for {
				mu.Lock()
				seed := uint64(next)
				next++
				mu.Unlock()
				if seed > uint64(last) {
					return
				}
				dice := rand.New(rand.NewPCG(seed, 3))
				r := relayRun{seed: seed, plans: h.plan(dice), b: 1 + dice.IntN(relayRanks-1), heartbeat: h.heartbeat, timeout: h.timeout, sums: h.sums, empty: h.empty, ops: 20}
				r.a = dice.IntN(r.b)
				ends, hits, err := r.run()
				mu.Lock()
				hit += min(hits, 1)
				if err != nil && (!errors.Is(err, backend.ErrTimeout) || !slices.Contains(h.may, backend.ErrTimeout)) { // of Close
					t.Errorf("run %d: %v", seed, err)
				}
				// A slow machine may be late without any fault, and then a rank leaves that another one waits for.
				late := h.timeout > 0 && slices.ContainsFunc(ends[:], func(e relayEnd) bool { return errors.Is(e.err, backend.ErrTimeout) })
				for rank, e := range ends {
					say := func(format string, args ...any) {
						t.Errorf("run %d, plan %v between %d and %d, rank %d: %s", seed, r.plans, r.a, r.b, rank, fmt.Sprintf(format, args...))
					}
					switch {
					case e.wrong != "" && h.changes && !h.sums:
						wrong++
					case e.wrong != "":
						say("%s", e.wrong)
					}
					if e.err == nil {
						continue
					}
					took = append(took, e.took)
					kinds[sentinelsOf(e.err)]++
					if h.must || hits == 0 && !late || !relayPermits(e.err, h.may) {
						say("after %v: %v", e.took, e.err)
					}
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	runs := last - first + 1
	if h.plan(rand.New(rand.NewPCG(1, 1)))[0].Chunk == 0 && hit == 0 {
		t.Errorf("none of %d faults has happened", runs)
	}
	for begun := time.Now(); relayFiles(t) > files || runtime.NumGoroutine() > routines; runtime.Gosched() {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d descriptors and %d goroutines are left, %d and %d before", relayFiles(t), runtime.NumGoroutine(), files, routines)
		}
	}
	slices.Sort(took)
	line := fmt.Sprintf("%d runs, in %d it happened; errors %v", runs, hit, kinds)
	if len(took) > 0 {
		line += fmt.Sprintf(", half of them within %v of the call, all within %v", took[len(took)/2].Round(time.Millisecond/10), took[len(took)-1].Round(time.Millisecond))
	}
	if h.changes && !h.sums {
		line += fmt.Sprintf("; %d ranks got wrong data", wrong)
	}
	t.Log(line)
}

func relayPermits(err error, may []error) bool {
	if may == nil {
		return sentinelsOf(err) != ""
	}
	return slices.ContainsFunc(may, func(m error) bool { return errors.Is(err, m) })
}

// sentinelsOf names what an error is; "" if it is none of the package's own.
func sentinelsOf(err error) string {
	var names []string
	for code := byte(1); code < 255; code++ {
		s := backend.Sentinel(code)
		if s != nil && errors.Is(err, s) && !slices.Contains(names, s.Error()) {
			names = append(names, s.Error())
		}
	}
	return strings.Join(names, "+")
}

func relayFiles(t *testing.T) int {
	d, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
