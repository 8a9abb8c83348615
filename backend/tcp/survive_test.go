//go:build linux || darwin

package tcp

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// mesh returns the ranks of a job, all in this process.
func mesh(t *testing.T, n int) []*comm {
	t.Helper()
	conns := make([][]conn, n)
	for r := range n {
		conns[r] = make([]conn, n)
	}
	for r := range n {
		for s := range r {
			a, b := pair(t)
			for _, end := range []struct {
				at *conn
				fd func() (int, error)
			}{
				{&conns[r][s], func() (int, error) { return takeSocket(a) }},
				{&conns[s][r], func() (int, error) { return takeSocket(b) }},
			} {
				fd, err := end.fd()
				if err != nil {
					t.Fatal(err)
				}
				*end.at = conn{fd: fd, enc: &wire.Encoder{}, dec: &wire.Decoder{}}
			}
		}
	}
	ranks := make([]*comm, n)
	for r := range n {
		peers := make([]peer, n)
		for s := range peers {
			peers[s] = peer{pid: 1000 + s, host: "here", node: s}
		}
		c, err := newEngine(r, peers, conns[r], false, 0)
		if err != nil {
			t.Fatal(err)
		}
		ranks[r] = c.(*comm)
	}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for _, c := range ranks {
			all.Go(func() { c.Close() })
		}
		all.Wait()
	})
	return ranks
}

// kill ends a rank as the kernel does: its sockets are closed, and nothing is said.
func kill(c *comm) {
	e := c.e
	e.mu.Lock()
	for _, l := range e.links {
		if l != nil {
			l.cut()
		}
	}
	e.due, e.draining = nil, nil
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "killed"})
	e.isClosed = true
	e.unlock()
	if e.demand != nil {
		e.demand.end() // no rank listens any more
	}
}

var patient = &backend.Bound{Timeout: time.Minute}

// lostIs waits for c to know of exactly these losses.
func lostIs(t *testing.T, c *comm, want ...int) {
	t.Helper()
	var got []int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if got = c.Lost(); len(got) >= len(want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("rank %d knows that %v are lost, want %v", c.e.me, got, want)
	}
}

// isLost checks an error that is to name a lost rank.
func isLost(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("%s: %v, want ErrPeerLost", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", what, err, w)
		}
	}
}

func irecv(c *comm, n, source, tag int) (*backend.Request, []byte) {
	q, buf := &backend.Request{}, make([]byte, n)
	q.Begin()
	c.Irecv(q, buf, source, tag)
	return q, buf
}

func await(t *testing.T, c *comm, q *backend.Request) error {
	t.Helper()
	if err := c.Await(patient, q); err != nil {
		t.Fatalf("rank %d: %v", c.e.me, err)
	}
	return q.Err
}

// works checks that the ranks of a communicator can add their numbers.
func works(t *testing.T, ranks []*comm) {
	t.Helper()
	op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: kernel.For(backend.OpSum, backend.Float64)}
	for _, n := range []int{1, 1000, 100000} {
		var all sync.WaitGroup
		for _, c := range ranks {
			all.Go(func() {
				in, out := make([]byte, 8*n), make([]byte, 8*n)
				call := &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s, Count: n, Send: in, Recv: out, Seq: uint32(n)}
				for i := range n {
					binary.LittleEndian.PutUint64(in[8*i:], math.Float64bits(1))
				}
				if err := sched.New(c).Run(patient, call, true); err != nil {
					t.Errorf("rank %d: allreduce of %d numbers: %v", c.e.me, n, err)
					return
				}
				for i := range n {
					if got := math.Float64frombits(binary.LittleEndian.Uint64(out[8*i:])); got != float64(len(ranks)) {
						t.Errorf("rank %d: the sum of %d ones is %v", c.e.me, len(ranks), got)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// without makes a communicator of the ranks that are left.
func without(t *testing.T, ranks []*comm, id uint32, lost ...int) []*comm {
	t.Helper()
	var members []int
	for r, w := range ranks[0].World {
		if !slices.Contains(lost, w) {
			members = append(members, r)
		}
	}
	var rest []*comm
	for _, c := range ranks {
		if slices.Contains(lost, c.e.me) {
			continue
		}
		d, err := c.Acknowledge(members, id, lost)
		if err != nil {
			t.Fatal(err)
		}
		rest = append(rest, d.(*comm))
	}
	return rest
}

func derive(t *testing.T, ranks []*comm, id uint32, members ...int) []*comm {
	t.Helper()
	made := make([]*comm, len(members))
	for i, m := range members {
		d, err := ranks[m].Derive(members, id)
		if err != nil {
			t.Fatal(err)
		}
		made[i] = d.(*comm)
	}
	return made
}

// A loss ends all communicators, with any members, and those made afterwards. Those that have
// acknowledged it work until the next loss.
func TestLossEndsCommunicatorsThatHaveNotAcknowledgedIt(t *testing.T) {
	world := mesh(t, 5)
	two := derive(t, world, 1, 0, 1)
	waiting, _ := irecv(two[0], 8, 1, 3)
	long := make([]byte, 2*eagerMax)
	pending := &backend.Request{}
	pending.Begin()
	world[1].Isend(pending, long, 4, 3, backend.Standard)
	probed := make(chan error, 1)
	go func() {
		_, _, err := world[2].Probe(patient, backend.AnySource, 9, true)
		probed <- err
	}()

	kill(world[4])
	isLost(t, "a receive between two others", await(t, two[0], waiting), "rank 4")
	isLost(t, "a send to the lost rank", await(t, world[1], pending), "rank 4")
	isLost(t, "a probe", <-probed, "rank 4")
	for _, c := range world[:4] {
		lostIs(t, c, 4)
		isLost(t, "a send afterwards", c.Send(patient, nil, c.rank, 1, backend.Standard), "rank 4")
	}
	late := derive(t, world, 2, 0, 1)
	_, err := late[0].Recv(patient, nil, 1, 1)
	isLost(t, "a communicator made afterwards", err, "rank 4")

	first := without(t, world[:4], 3, 4)
	works(t, first)
	child := derive(t, first, 4, 2, 1, 0)
	works(t, child)
	waiting, _ = irecv(child[0], 8, backend.AnySource, backend.AnyTag)
	kill(world[0])
	isLost(t, "a receive in what was derived", await(t, child[0], waiting), "rank 0")
	for _, c := range world[1:4] {
		lostIs(t, c, 0, 4)
	}
	isLost(t, "a communicator that has acknowledged the first loss only", first[1].Send(patient, nil, 1, 1, backend.Standard), "rank 0")
	second := without(t, first[1:], 5, 0)
	works(t, second)
	_, err = world[1].Recv(patient, nil, 2, 1)
	isLost(t, "the first communicator", err, "rank 4") // what ended it stays what it was
}

// Messages that a rank sent before its end can be received in a control communicator, also if another rank reported
// the end before the socket did; then its receives fail, and those from others go on. It does not
// matter whether the control communicator was made before or after.
func TestControlCommunicatorOutlivesLosses(t *testing.T) {
	const id = 1 << 31
	world := mesh(t, 4)
	dying, err := world[3].Control(id)
	if err != nil {
		t.Fatal(err)
	}
	before, err := world[1].Control(id)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		for _, to := range []int{0, 1} {
			if err := dying.Send(patient, []byte{byte(10*to + i)}, to, i, backend.Standard); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := &backend.Request{}
	long.Begin()
	dying.Isend(long, make([]byte, 2*eagerMax), 0, 77, backend.Standard) // is lost with its sender
	// Rank 0 hears of the loss from rank 2, and has read nothing of rank 3's.
	world[0].e.mu.Lock()
	world[2].Declare(3, errors.New("for the test"))
	world[0].e.links[2].pull()
	if world[0].e.losses[3] == nil {
		t.Error("rank 0 has no notice of the loss")
	}
	world[0].e.handleLosses()
	world[0].e.unlock()
	kill(world[3])

	world[0].Break(errors.New("so that the first communicator is broken too"))
	after, err := world[0].Control(id)
	if err != nil {
		t.Fatal(err)
	}
	third, err := world[2].Control(id)
	if err != nil {
		t.Fatal(err)
	}
	pending, _ := irecv(third.(*comm), 1, 0, 5)
	for to, c := range []backend.Comm{after, before} {
		for i := range 3 {
			got := make([]byte, 1)
			if _, err := c.Recv(patient, got, 3, i); err != nil || got[0] != byte(10*to+i) {
				t.Errorf("rank %d: message %d is %d, %v", to, i, got[0], err)
			}
		}
		_, err := c.Recv(patient, make([]byte, 1), 3, 3)
		isLost(t, "a message that was not sent", err, "rank 3", "for the test")
		isLost(t, "a send to the lost rank", c.Send(patient, nil, 3, 0, backend.Standard), "rank 3")
		if err := c.Broken(); err != nil {
			t.Errorf("rank %d: the control communicator is broken: %v", to, err)
		}
	}
	_, err = after.Recv(patient, make([]byte, 2*eagerMax), 3, 77)
	isLost(t, "a long message whose RTS has arrived", err, "rank 3")
	if pending.Ready() {
		t.Errorf("a receive from a rank that lives has ended: %v", pending.Err)
	}
	if err := after.Send(patient, []byte{99}, 2, 5, backend.Standard); err != nil {
		t.Error(err)
	}
	if err := await(t, world[2], pending); err != nil {
		t.Error(err)
	}
	// Abort ends controls too.
	if err := world[1].Abort(5); err != nil {
		t.Fatal(err)
	}
	_, err = after.Recv(patient, make([]byte, 1), 2, 5)
	isLost(t, "a receive after Abort", err, "rank 1", "code 5")
	isLost(t, "Broken after Abort", after.Broken(), "code 5")
	if _, err := world[0].Control(id + 1); !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("a control communicator after Abort: %v", err)
	}
}

// A rank that has closed a communicator does not use its control communicator either, whether it had
// made that or not.
func TestControlCommunicatorOfClosedOne(t *testing.T) {
	const id = 1 << 31
	world := mesh(t, 3)
	made := derive(t, world, 1, 0, 1, 2)
	var controls []*comm
	for _, c := range made[:2] {
		s, err := c.Control(id)
		if err != nil {
			t.Fatal(err)
		}
		controls = append(controls, s.(*comm))
	}
	waiting, _ := irecv(controls[0], 1, 2, 1)
	other, got := irecv(controls[0], 1, 1, 1)
	if err := controls[1].Send(patient, []byte{5}, 2, 1, backend.Standard); err != nil {
		t.Fatal(err)
	}
	made[2].Close()
	isLost(t, "a receive", await(t, controls[0], waiting), "rank 2 has closed this communicator")
	isLost(t, "a send", controls[0].Send(patient, nil, 2, 1, backend.Standard), "rank 2 has closed this communicator")
	if err := controls[1].Send(patient, []byte{6}, 0, 1, backend.Standard); err != nil {
		t.Error(err)
	}
	if err := await(t, controls[0], other); err != nil || got[0] != 6 {
		t.Errorf("a message of another rank: %d, %v", got[0], err)
	}
}

// A rank that is declared lost learns it, believes it, and says nothing about the others, whose
// links with it all end.
func TestDeclare(t *testing.T) {
	world := mesh(t, 4)
	last := world[3]
	waiting, _ := irecv(last, 8, backend.AnySource, 1)
	last.e.mu.Lock() // it is stopped
	world[1].Declare(3, errors.New("it has not moved"))
	world[1].Declare(3, errors.New("again"))
	for _, c := range world[:3] {
		lostIs(t, c, 3)
		_, err := c.Recv(patient, nil, (c.rank+1)%3, 1)
		isLost(t, "a receive", err, "rank 3 was declared lost by rank 1: it has not moved")
	}
	last.e.unlock()
	isLost(t, "the lost rank's receive", await(t, last, waiting), "rank 3 (this one) was declared lost by rank", "it has not moved")
	if _, err := last.Control(9); !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("a control communicator of a lost rank: %v", err)
	}
	last.Declare(0, errors.New("out of spite"))
	works(t, without(t, world[:3], 1, 3))
	for _, c := range world[:3] {
		lostIs(t, c, 3)
	}
	if err := last.Close(); err != nil {
		t.Error(err)
	}
}

// A rank that has left in good order is none that can be declared lost: who is without it goes on.
func TestDeclareLeft(t *testing.T) {
	world := mesh(t, 3)
	rest := derive(t, world, 1, 0, 1)
	world[2].Close()
	for end := time.Now().Add(time.Minute); !slices.Equal(world[0].Left(), []int{2}); {
		if time.Now().After(end) {
			t.Fatalf("rank 0 knows that %v have left, want 2", world[0].Left())
		}
	}
	if lost := world[0].Lost(); lost != nil {
		t.Errorf("rank 0 takes %v for lost", lost)
	}
	world[0].Declare(2, errors.New("it is gone"))
	world[1].Declare(2, errors.New("it is gone")) // which may not have read the goodbye
	works(t, rest)
	_, err := world[0].Recv(patient, nil, 2, 1)
	isLost(t, "a receive from it", err, "rank 2 has closed its communicator")
}

// A rank that declares itself lost is lost.
func TestDeclareSelf(t *testing.T) {
	world := mesh(t, 3)
	world[1].Declare(1, errors.New("bad memory"))
	isLost(t, "its own send", world[1].Send(patient, nil, 0, 1, backend.Standard), "rank 1", "bad memory")
	for _, c := range []*comm{world[0], world[2]} {
		lostIs(t, c, 1)
		_, err := c.Recv(patient, nil, 2-c.rank, 1)
		isLost(t, "a receive", err, "rank 1 was declared lost by rank 1: bad memory")
	}
}

// Nothing is left of communicators and of ranks that are lost one after the other.
func TestNoticesOfUnknownCommunicatorsAreBounded(t *testing.T) {
	const n = 12
	world := mesh(t, n)
	now := world
	id := uint32(1)
	var lost []int
	for victim := n - 1; victim >= 2; victim-- {
		var made []*comm
		for range 20 {
			all := make([]int, len(now))
			for i := range all {
				all[i] = i
			}
			made = append(made, derive(t, now, id, all...)...)
			id++
		}
		for _, c := range made[:len(made)/2] {
			c.Close()
		}
		// Receives, RTS, and messages that no receive matches.
		for _, c := range now[1:] {
			irecv(c, 10, 0, 1)
			q := &backend.Request{}
			q.Begin()
			c.Isend(q, make([]byte, 2*eagerMax), 0, 1, backend.Standard)
			c.Send(patient, make([]byte, 100), 0, 2, backend.Standard)
		}
		kill(now[len(now)-1])
		lost = append([]int{victim}, lost...)
		for _, c := range now[:len(now)-1] {
			lostIs(t, c, lost...)
		}
		var controls []*comm
		for _, c := range now[:len(now)-1] {
			s, err := c.Control(1<<31 + id)
			if err != nil {
				t.Fatal(err)
			}
			controls = append(controls, s.(*comm))
		}
		id++
		next := without(t, now, id, victim)
		id++
		for _, c := range append(append(made, controls...), now...) {
			if !c.isWorld && c.e.me < victim {
				c.Close()
			}
		}
		now = next
	}
	works(t, now)
	for _, c := range now {
		c.Close()
	}
	for _, c := range world[:2] {
		e := c.e
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			e.mu.Lock()
			e.progress()
			over := len(e.closing) == 0
			e.unlock()
			if over {
				break
			}
		}
		e.mu.Lock()
		if len(e.comms) != 1 || len(e.closing) != 0 || len(e.early) != 0 || e.posted.Len() != 0 || len(e.slots) != len(e.spares) ||
			len(e.due) != 0 || len(e.draining) != 0 || len(e.probes) != 0 || len(e.corks) != 0 {
			t.Errorf("rank %d has %d communicators, %d closing, %d early, %d receives, %d of %d slots free", e.me,
				len(e.comms), len(e.closing), len(e.early), e.posted.Len(), len(e.spares), len(e.slots))
		}
		e.unlock()
	}
}
