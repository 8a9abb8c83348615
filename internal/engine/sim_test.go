package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// The simulation runs a few engines in one goroutine, on two nodes: over simulated links, and over shared memory
// between ranks of one node; links are made at the start, or on demand. A seed decides everything: which rank starts
// which operation, which makes progress, how time passes, what is delayed, canceled, closed, broken, cut, stopped, or
// killed, and who leaves. A model of MPI's rules checks each result:
//
//   - every message is received at most once, unchanged, by a receive that it matches;
//   - messages of one sender with one tag are matched in the order sent, as if those that are canceled were never sent;
//   - an operation fails only for a reason that occurred, with the error for that reason;
//   - in bounded simulated time after the last event every operation has ended that can end;
//   - nothing is kept for a communicator that the rank has closed;
//   - no rank is lost before something has happened to one;
//   - every leaving ends, and nothing is left in any queue when all have left.
//
// COHORT_SIM_SEED runs one seed and prints what happens, COHORT_SIM_TIME sets how long seeds are explored.

// simRequest is one operation, and what the model knows of it.
type simRequest struct {
	backend.Request
	rank, ctx, post int // post: its place among the operations of the rank
	send            bool
	peer, tag       int // of a receive perhaps backend.AnySource, AnyTag
	seq, size       int // of a send
	buf             []byte
	late            bool // it was given up at a deadline
	canceled        bool
	matched         bool // it receives what Mprobe has taken
}

// simMatched is a message that a rank has taken with Mprobe. The place of its receive among the operations is that of
// the Mprobe.
type simMatched struct {
	ctx, post int
	matched   backend.Matched
	status    backend.Status
}

type simRank struct {
	e       *Engine
	comms   []*comm // by context; nil: closed, or not made
	reqs    []*simRequest
	held    []simMatched
	posts   int
	due     time.Time // of the next tick
	stopped bool
	dead    bool
	leaving *leaving
	left    bool
}

type sim struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	now     time.Time
	ranks   []*simRank
	links   [][]simEnd
	steps   int
	calm    bool // no more faults, and no new operations
	trace   []string
	tracing bool

	faults   bool // this seed has faults
	onDemand bool // links are made on demand
	cancels  bool
	flows    map[[4]int]*simFlow // by sender, receiver, context, tag
	sleepers []*simSleeper       // by rank
	over     bool
	memory   *simMemory
	kernel   bool       // the kernel copies between ranks of a node
	nodes    []int      // by rank
	events   []simEvent // to come
	ends     [][]simEnd // of all links that there were, by rank

	// The events so far. The model allows only the errors that they explain.
	faulty bool // any of those below
	loss   bool // a rank may be lost
	sure   bool // a rank is lost, and all that have not left learn it
	cuts   [][2]int
	broke  [2]bool
	gaveUp bool // a send was given up: its receive may end
	// A rank has left while another one was stopped, after waiting for it: what it last wrote is lost, such as why it
	// broke a communicator.
	unheard bool
	closed  [2][simRanks]bool // by context and rank
	leaves  bool
}

const (
	simBeat   = time.Second // heartbeat limit, in simulated time
	simEvents = 2000        // steps with new operations and faults
)

var simBegin = time.Unix(1e9, 0)

func newSim(t *testing.T, seed uint64, memory *simMemory) *sim {
	s := &sim{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), now: simBegin, flows: map[[4]int]*simFlow{}, memory: memory}
	s.faults, s.cancels = seed%2 == 1, seed%4 >= 2
	n := 2 + s.rng.IntN(simRanks-1)
	memory.reset()
	s.nodes, s.kernel, s.ends = make([]int, n), s.chance(2), make([][]simEnd, n)
	s.onDemand = seed%8 >= 4
	s.links = make([][]simEnd, n)
	for range n {
		s.sleepers = append(s.sleepers, newSimSleeper(s))
	}
	for a := range n {
		s.links[a], s.nodes[a] = make([]simEnd, n), s.rng.IntN(2)
		for b := range a {
			if !s.onDemand || b == 0 {
				s.connect(a, b)
			}
		}
	}
	peers := make([]Peer, n)
	for r := range peers {
		peers[r] = Peer{PID: r, Node: slices.Index(s.nodes, s.nodes[r])}
	}
	for r := range n {
		cfg := Config{Rank: r, Peers: peers, Runs: func(r int) bool { return !s.ranks[r].dead && !s.ranks[r].stopped }, Heartbeat: simBeat, Sleeper: s.sleepers[r], Manual: true, Now: func() time.Time { return s.now }}
		if s.onDemand {
			cfg.Dialer = simDialer{}
		}
		e := New(cfg)
		if s.onDemand {
			e.demand.try = func(p *peer, pause time.Duration) { s.attempt(r, p, pause) }
		}
		for p, l := range s.links[r] {
			if l != nil {
				e.Connect(p, l)
			}
		}
		world, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		s.ranks = append(s.ranks, &simRank{e: e, comms: []*comm{world.(*comm)}, due: s.now.Add(time.Duration(s.rng.IntN(100)) * time.Millisecond)})
	}
	// A second communicator, of all ranks in another order.
	order := s.rng.Perm(n)
	for _, r := range s.ranks {
		c, err := r.comms[0].Derive(nil, order, 1)
		if err != nil {
			t.Fatal(err)
		}
		r.comms = append(r.comms, c.(*comm))
		r.comms[0].Settled(2)
	}
	return s
}

func (s *sim) chance(one int) bool { return s.rng.IntN(one) == 0 }

func (s *sim) say(format string, facts ...any) {
	if s.tracing {
		s.trace = append(s.trace, fmt.Sprintf("%12v  %s", s.now.Sub(simBegin), fmt.Sprintf(format, facts...)))
	}
}

// fail ends a simulation. The seed runs once more to say what happened.
func (s *sim) fail(format string, facts ...any) {
	s.t.Helper()
	if !s.tracing {
		again := newSim(s.t, s.seed, s.memory)
		again.tracing = true
		again.run(simEvents)
	}
	last := s.trace
	if os.Getenv("COHORT_SIM_SEED") == "" {
		last = last[max(0, len(last)-40):]
	}
	s.t.Fatalf("seed %d, step %d: %s; the last events were:\n%s\nCOHORT_SIM_SEED=%d runs it alone, with all events",
		s.seed, s.steps, fmt.Sprintf(format, facts...), strings.Join(last, "\n"), s.seed)
}

// run is one simulation: a time with events, then a calm time in which everything ends, then all leave.
func (s *sim) run(events int) {
	defer func() {
		if v := recover(); v != nil {
			s.fail("panic: %v\n%s", v, debug.Stack())
		}
	}()
	defer s.rest()
	for range events {
		s.step()
	}
	s.calm = true
	for i, r := range s.ranks {
		for len(r.held) > 0 && !r.dead && !r.stopped {
			s.receiveMatched(i)
		}
	}
	stopped, stays, running := false, false, false
	for i, r := range s.ranks {
		if r.stopped && s.chance(2) {
			s.goOn(i)
		}
		stopped = stopped || r.stopped
		running = running || s.runs(i)
		stays = stays || r.stopped && r.leaving == nil
	}
	s.loss = s.loss || stopped
	s.sure = s.sure || stays && running
	for _, pair := range s.cuts { // a link on demand may not have been in use
		s.sure = s.sure || !s.onDemand && s.ranks[pair[0]].leaving == nil && s.ranks[pair[1]].leaving == nil
	}
	s.wait()
	if stopped {
		s.settle()
		for i := range s.ranks {
			s.goOn(i)
		}
		s.wait()
	}
	s.settle()
	s.leave()
}

// goOn ends the standstill of a rank.
func (s *sim) goOn(i int) {
	if r := s.ranks[i]; r.stopped {
		s.say("rank %d goes on", i)
		r.stopped = false
	}
}

// wait lets everything happen that is to happen.
func (s *sim) wait() {
	for end := s.now.Add(5 * simBeat); s.now.Before(end) && !s.quiet(); {
		s.step()
	}
}

// quiet reports whether nothing is in flight, and no tick is due that would change that.
func (s *sim) quiet() bool {
	if s.faulty || slices.ContainsFunc(s.sleepers, (*simSleeper).called) {
		return false
	}
	for _, row := range s.links {
		for _, l := range row {
			if l != nil && l.inFlight() {
				return false
			}
		}
	}
	for i, r := range s.ranks {
		for _, p := range r.e.peers {
			if p != nil && (p.waits() || p.first != nil && !p.linkOver()) { // a link may be on its way
				return false
			}
		}
		for _, x := range r.e.slots {
			if x.op != nil && s.copies(i, x.op) {
				return false
			}
		}
	}
	return true
}

// copies reports whether the message of an operation of a rank is being copied.
func (s *sim) copies(i int, o *op) bool {
	return o.state == opMoving || o.state == opCopying || o.state == opExposed && !s.ranks[o.peer].e.peers[i].mem.Announced(o.transfer.Token())
}

func (s *sim) step() {
	s.steps++
	s.happen()
	i := s.rng.IntN(len(s.ranks))
	r := s.ranks[i]
	switch k := s.rng.IntN(100); {
	case r.dead || r.stopped || r.left:
		s.pass(20)
	case k < 60 || s.calm && k < 80:
		if z := s.sleepers[i]; z.waiting != nil || s.chance(8) {
			s.sleep(i)
		}
		if s.sleepers[i].waiting != nil && (s.calm || !s.chance(10)) {
			// its waiter alone makes progress
		} else if r.leaving != nil {
			s.look(i)
		} else if r.e.poll() {
			s.check(i)
		}
		if !r.left && !r.due.After(s.now) {
			r.due = s.now.Add(r.e.heartbeat.every)
			r.e.beat()
			s.check(i)
		}
	case k < 80 || s.calm:
		s.pass(100)
	case k < 88:
		s.send(i)
	case k < 94:
		s.receive(i)
	case k < 96:
		s.probe(i)
	case k < 98 && s.cancels && s.faults && s.chance(8):
		s.deadline(i)
	case k < 98 && s.cancels:
		s.cancel(i)
	case k == 98 && s.chance(4):
		s.closeComm(i)
	case k == 98 && s.chance(8) && r.leaving == nil:
		s.depart(i)
	case k == 99 && s.faults && s.chance(8):
		s.fault(i)
	}
}

// pass lets up to most microseconds pass, now and then much more.
func (s *sim) pass(most int) {
	d := time.Duration(1+s.rng.IntN(most)) * time.Microsecond
	if s.calm || s.chance(50) {
		d *= 500
	}
	s.now = s.now.Add(d)
}

// leave lets all ranks leave, and checks that nothing is left.
func (s *sim) leave() {
	s.faulty, s.leaves = true, true
	for i, r := range s.ranks {
		if !r.dead && r.leaving == nil {
			s.depart(i)
		}
	}
	for end := s.now.Add(30 * time.Second); ; s.steps++ {
		done := true
		s.happen()
		for i, r := range s.ranks {
			if r.dead || r.left {
				continue
			}
			done = false
			s.look(i)
			if !r.left && !r.due.After(s.now) {
				r.due = s.now.Add(r.e.heartbeat.every)
				r.e.beat()
			}
		}
		if done {
			break
		}
		if s.now = s.now.Add(50 * time.Microsecond); s.now.After(end) {
			s.fail("not all ranks have left")
		}
	}
	for i, r := range s.ranks {
		if r.dead {
			continue
		}
		e := r.e
		if !s.loss && len(e.membership.LostList) > 0 {
			s.fail("rank %d has lost ranks %v, which have left in good order", i, e.membership.LostList)
		}
		open := 0
		for _, c := range e.comms {
			if !c.closed.Load() {
				open++
			}
		}
		if len(r.reqs) > 0 || e.posted.Len() > 0 || len(e.spares) != len(e.slots) || e.probes > 0 || len(e.mu.done) > 0 || open > 0 {
			s.fail("rank %d has left, and has %d operations, %d posted, %d of %d slots in use, %d communicators", i,
				len(r.reqs), e.posted.Len(), len(e.slots)-len(e.spares), len(e.slots), open)
		}
	}
}

// TestSimulationKeepsToTheModel explores seeds for a fixed time.
func TestSimulationKeepsToTheModel(t *testing.T) {
	if v := os.Getenv("COHORT_SIM_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s := newSim(t, seed, newSimMemory(t))
		s.tracing = true
		s.run(simEvents)
		t.Log(strings.Join(s.trace, "\n"))
		return
	}
	span := 3 * time.Second
	if !testing.Short() {
		span = 30 * time.Second
	}
	if v := os.Getenv("COHORT_SIM_TIME"); v != "" {
		var err error
		if span, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	steps, seeds := 0, 0
	begun, memory := time.Now(), newSimMemory(t)
	for seed := uint64(begun.UnixNano()); time.Since(begun) < span; seed++ {
		s := newSim(t, seed, memory)
		s.run(simEvents)
		steps += s.steps
		seeds++
	}
	t.Logf("%d simulations, %d steps, %.0f a second", seeds, steps, float64(steps)/time.Since(begun).Seconds())
}
