//go:build linux

package jobtest

import (
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// A stepped operation is done by all ranks at once, and it is known which messages it takes: those of
// the schedule of a call, and those of the exchange of fingerprints.
type stepped struct {
	name string
	do   func(w *cohort.Comm) error

	call backend.Call // a collective, checked
	plan messages     // or messages of the user's
}

// messages are what each rank does, in rounds.
type messages [][]coll.Round

const (
	stepTimes = 5

	// The longest time that anything takes from one host to another. With it, operations take a minute.
	longestDelay = 64 * time.Millisecond
)

func steppedOperations() []stepped {
	f := &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}
	op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: f, Apply: func(_, _, _ []byte) {}}
	one := func() []float64 { return make([]float64, 1) }
	all := func(w *cohort.Comm) []float64 { return make([]float64, w.Size()) }
	to := func(peer, n int) coll.Round {
		return coll.Round{Comm: []coll.Action{{Kind: coll.SendTo, Peer: peer, A: coll.Region{N: n}}}}
	}
	from := func(peer int) coll.Round {
		return coll.Round{Comm: []coll.Action{{Kind: coll.RecvFrom, Peer: peer}}}
	}
	long := 100_000 // bytes: a rendezvous
	return []stepped{
		{name: "barrier", do: func(w *cohort.Comm) error { return w.Barrier() }, call: backend.Call{Coll: backend.Barrier, Root: -1}},
		{name: "bcast from 0", do: func(w *cohort.Comm) error { return cohort.Bcast(w, one(), 0) },
			call: backend.Call{Coll: backend.Bcast, Root: 0, Type: f, Count: 1}},
		{name: "bcast from 1", do: func(w *cohort.Comm) error { return cohort.Bcast(w, one(), 1) },
			call: backend.Call{Coll: backend.Bcast, Root: 1, Type: f, Count: 1}},
		{name: "reduce", do: func(w *cohort.Comm) error { return cohort.Reduce(w, one(), one(), cohort.Sum, 0) },
			call: backend.Call{Coll: backend.Reduce, Root: 0, Op: op, Type: f, Count: 1}},
		{name: "allreduce", do: func(w *cohort.Comm) error { return cohort.Allreduce(w, one(), one(), cohort.Sum) },
			call: backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: f, Count: 1}},
		{name: "allreduce 4 KiB", do: func(w *cohort.Comm) error {
			return cohort.Allreduce(w, make([]float64, 512), make([]float64, 512), cohort.Sum)
		}, call: backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: f, Count: 512}},
		{name: "allgather", do: func(w *cohort.Comm) error { return cohort.Allgather(w, one(), all(w)) },
			call: backend.Call{Coll: backend.Allgather, Root: -1, Type: f, Count: 1}},
		{name: "gather", do: func(w *cohort.Comm) error { return cohort.Gather(w, one(), all(w), 0) },
			call: backend.Call{Coll: backend.Gather, Root: 0, Type: f, Count: 1}},
		{name: "scatter", do: func(w *cohort.Comm) error { return cohort.Scatter(w, all(w), one(), 0) },
			call: backend.Call{Coll: backend.Scatter, Root: 0, Type: f, Count: 1}},
		{name: "alltoall", do: func(w *cohort.Comm) error { return cohort.Alltoall(w, all(w), all(w)) },
			call: backend.Call{Coll: backend.Alltoall, Root: -1, Type: f, Count: 1}},
		{name: "scan", do: func(w *cohort.Comm) error { return cohort.Scan(w, one(), one(), cohort.Sum) },
			call: backend.Call{Coll: backend.Scan, Root: -1, Op: op, Type: f, Count: 1}},
		{name: "there, back, there", do: pingPong(1, cohort.Send[float64]),
			plan: messages{{to(1, 8), from(1), to(1, 8)}, {from(0), to(0, 8), from(0)}}},
		// RTS, CTS, and data: three messages that wait for each other.
		{name: "there, back, 100 kB", do: pingPong(long/8, cohort.Send[float64]), plan: messages{
			{to(1, 0), from(1), to(1, long), from(1), to(1, 0), from(1), to(1, 8)},
			{from(0), to(0, 0), from(0), to(0, 0), from(0), to(0, long), from(0)}}},
		{name: "there, back, there, ssend", do: pingPong(1, cohort.Ssend[float64]), plan: messages{
			{to(1, 0), from(1), to(1, 8), from(1), to(1, 0), from(1), to(1, 0), from(1), to(1, 8)},
			{from(0), to(0, 0), from(0), to(0, 0), from(0), to(0, 8), from(0), to(0, 0), from(0)}}},
	}
}

func pingPong(n int, send func(*cohort.Comm, []float64, int, int) error) func(*cohort.Comm) error {
	return func(w *cohort.Comm) error {
		buf := make([]float64, n)
		if w.Rank() > 1 {
			return nil
		}
		// The answer is there so that what was sent before has left when the operation ends.
		for turn, part := range [][]float64{buf, buf, buf[:1]} {
			if turn%2 == w.Rank() {
				if err := send(w, part, 1-w.Rank(), 3); err != nil {
					return err
				}
			} else if _, err := cohort.Recv(w, part, 1-w.Rank(), 3); err != nil {
				return err
			}
		}
		return nil
	}
}

// expected is what an operation takes.
type expected struct {
	steps int
	bytes map[[2]int]int
}

// expect says what an operation of n ranks takes, by the documentation: a frame has a header of 40
// bytes; the fingerprints go, beside the data, in ceil(log2 n) rounds (docs/adr/0002) to the ranks
// 1, 2, 4, … above; the data by the schedule.
func (s *stepped) expect(t *testing.T, n int) expected {
	x := expected{bytes: map[[2]int]int{}}
	plan := s.plan
	if plan == nil {
		for dist := 1; dist < n; dist *= 2 {
			for r := range n {
				x.bytes[[2]int{r, (r + dist) % n}] += frame.HeaderSize + backend.SeenSize
			}
		}
		x.steps = bits.Len(uint(n - 1))
		if s.call.Coll == backend.Barrier {
			return x // the exchange is one
		}
		for r := range n {
			schedule, err := coll.Build(&s.call, r, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			plan = append(plan, schedule.Rounds)
		}
	}
	for r, rounds := range plan {
		for _, round := range rounds {
			for _, a := range round.Comm {
				if a.Kind == coll.SendTo {
					x.bytes[[2]int{r, a.Peer}] += frame.HeaderSize + a.A.N
				}
			}
		}
	}
	x.steps = max(x.steps, plan.steps(t))
	return x
}

// steps is the length of the longest chain of messages that wait for each other.
func (m messages) steps(t *testing.T) int {
	under := map[[2]int][]int{} // messages on their way: how many came before each, with itself
	next, depth := make([]int, len(m)), make([]int, len(m))
	begun := make([]bool, len(m))
	for moved := true; moved; {
		moved = false
		for r := range m {
			if next[r] == len(m[r]) {
				continue
			}
			comm := m[r][next[r]].Comm
			ready, need := true, map[int]int{}
			for _, a := range comm {
				switch {
				case a.Kind == coll.SendTo && !begun[r]:
					under[[2]int{r, a.Peer}] = append(under[[2]int{r, a.Peer}], depth[r]+1)
				case a.Kind == coll.RecvFrom:
					need[a.Peer]++
				}
			}
			begun[r] = true
			for peer, k := range need {
				ready = ready && len(under[[2]int{peer, r}]) >= k
			}
			if !ready {
				continue
			}
			for peer, k := range need {
				way := [2]int{peer, r}
				depth[r] = max(depth[r], slices.Max(under[way][:k]))
				under[way] = under[way][k:]
			}
			next[r]++
			begun[r], moved = false, true
		}
	}
	for r := range m {
		if next[r] < len(m[r]) {
			t.Fatalf("rank %d waits forever in round %d", r, next[r])
		}
	}
	return slices.Max(depth)
}

// delayVariable tells ranks the delay of the network.
const delayVariable = "NETLAB_DELAY"

// stepper is a rank's part: every operation a few times, with marks in the network's trace. Rank 0
// prints what each took, the slowest rank's time.
//
// The ranks begin each at a time that they have agreed on, by the clock that they share. A barrier
// would keep the distance that they have.
func stepper(w *cohort.Comm) error {
	delay, err := time.ParseDuration(os.Getenv(delayVariable))
	if err != nil {
		return err
	}
	mark, end, err := netlab.Marker()
	if err != nil {
		return err
	}
	defer end()
	ways := func(d time.Duration) float64 { return float64(d) / float64(delay) }
	for _, s := range steppedOperations() {
		var took []time.Duration
		for k := range stepTimes {
			at, err := cohort.BcastOne(w, time.Now().Add(4*delay).UnixNano(), 0)
			if err != nil {
				return err
			}
			time.Sleep(time.Until(time.Unix(0, at))) // on purpose: all ranks begin at the same moment
			if err := mark(fmt.Sprintf("%s #%d", s.name, k)); err != nil {
				return err
			}
			if err := s.do(w); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			done := time.Now().UnixNano()
			time.Sleep(delay / 2) // on purpose: what has been written leaves piece by piece, as the network takes it
			if err := mark(""); err != nil {
				return err
			}
			last, err := cohort.AllreduceOne(w, done, cohort.Max)
			if err != nil {
				return err
			}
			took = append(took, time.Duration(last-at))
		}
		if w.Rank() == 0 {
			slices.Sort(took)
			fmt.Printf("%-28s %6.2f (%.2f to %.2f)\n", s.name, ways(took[stepTimes/2]), ways(took[0]), ways(took[stepTimes-1]))
		}
	}
	return nil
}

// TestRanksWaitOnlyForWhatTheyNeed checks, on hosts between which everything takes a while, that an operation is as many
// messages one after the other as its schedule says, and that the bytes between each two ranks are
// those of its messages, fingerprints included.
//
// The trace is asked, not the clock. On a machine that is too busy a rank is so late that it sends
// after it has got what it need not have waited for, or makes its mark before its last frame has left;
// so it has to be right once of some times, and if it never is, the test is made again, with longer ways.
func TestRanksWaitOnlyForWhatTheyNeed(t *testing.T) {
	asRank(t, stepper)
	if !needHosts(t) {
		return
	}
	sizes := []int{2, 3, 4}
	if testing.Short() {
		sizes = []int{3}
	}
	for _, ranks := range sizes {
		t.Run(fmt.Sprintf("%dranks", ranks), func(t *testing.T) {
			for delay := time.Millisecond; ; delay *= 4 {
				wrong := stepsWith(t, ranks, delay, delay == longestDelay)
				if wrong == "" || t.Failed() {
					return
				}
				t.Logf("delay %v: %s", delay, wrong)
			}
		})
	}
}

// stepsWith checks all operations with one delay. It returns which were never as expected; at last they
// fail the test.
func stepsWith(t *testing.T, ranks int, delay time.Duration, last bool) (wrong string) {
	n, err := netlab.New(netlab.Config{Hosts: ranks + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Set(-1, -1, netlab.Path{Delay: delay})
	n.Record()
	// Heartbeats are messages too.
	for r, o := range startRanks(t, n, ranks, "COHORT_HEARTBEAT=off", delayVariable+"="+delay.String())() {
		if o.err != nil {
			t.Fatalf("rank %d: %v\n%s", r, o.err, o.text)
		}
		if r == 0 {
			t.Logf("%d ranks, in delays of %v, half of the times (the shortest and the longest):\n%s", ranks, delay, o.text)
		}
	}
	ops := n.Trace().Operations()
	for _, s := range steppedOperations() {
		want := s.expect(t, ranks)
		var seen []string
		for k := range stepTimes {
			got := ops[fmt.Sprintf("%s #%d", s.name, k)]
			if got == nil {
				t.Fatalf("%s left no trace", s.name)
			}
			if got.Steps == want.steps && maps.Equal(got.Bytes, want.bytes) {
				seen = nil
				break
			}
			seen = append(seen, fmt.Sprintf("%d, bytes %v", got.Steps, got.Bytes))
		}
		if seen != nil {
			wrong += fmt.Sprintf("%s: want %d messages one after the other, and bytes %v; there were\n%s\n",
				s.name, want.steps, want.bytes, strings.Join(seen, "\n"))
		}
	}
	if last && wrong != "" {
		t.Error(wrong)
	}
	return wrong
}
