package engine

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
)

var (
	patient  = &backend.Bound{Timeout: time.Minute}
	float64s = &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}
)

// mesh returns the ranks of a job, all in this process, with a link between every two.
func mesh(t *testing.T, n int) []*comm { return job(t, n, nil, 0) }

// onDemand returns the ranks of a job, all in this process, that make links when they first need them.
// They have links with rank 0.
func onDemand(t *testing.T, n int, heartbeat time.Duration) []*comm {
	return job(t, n, make([]*testDialer, n), heartbeat)
}

func job(t *testing.T, n int, dialers []*testDialer, heartbeat time.Duration) []*comm {
	t.Helper()
	engines, bells := make([]*Engine, n), make([]*testSleeper, n)
	for r := range n {
		bells[r] = newTestSleeper()
		cfg := Config{Rank: r, Peers: make([]Peer, n), Heartbeat: heartbeat, Sleeper: bells[r]}
		for s := range n {
			cfg.Peers[s] = Peer{PID: 1000 + s, Host: "here", Node: s}
		}
		if dialers != nil {
			dialers[r] = &testDialer{rank: r, all: dialers, bell: bells[r]}
			cfg.Dialer = dialers[r]
		}
		engines[r] = New(cfg)
		for s := range r {
			if dialers == nil || s == 0 {
				a, b := testPair(bells[r], bells[s])
				engines[r].Connect(s, a)
				engines[s].Connect(r, b)
			}
		}
	}
	ranks := make([]*comm, n)
	t.Cleanup(func() { closeAll(ranks) })
	for r, e := range engines {
		c, err := e.Start()
		if err != nil {
			t.Fatal(err)
		}
		ranks[r] = c.(*comm)
	}
	return ranks
}

func closeAll(ranks []*comm) {
	var all sync.WaitGroup
	for _, c := range ranks {
		if c != nil {
			all.Go(func() { c.Close() })
		}
	}
	all.Wait()
}

// raw returns rank 0 of a job of 2, and the other end of its link, which has no engine. write writes a
// frame to it, or bytes alone if the frame has no kind.
func raw(t *testing.T, heartbeat time.Duration) (c *comm, write func(h frame.Header, body []byte), other *testLink) {
	t.Helper()
	bell := newTestSleeper()
	e := New(Config{Peers: []Peer{{}, {PID: 7, Host: "there", Node: 1}}, Heartbeat: heartbeat, Sleeper: bell})
	end, other := testPair(bell, newTestSleeper())
	e.Connect(1, end)
	write = func(h frame.Header, body []byte) {
		t.Helper()
		if h.Kind != 0 {
			var head [frame.HeaderSize]byte
			h.Length = max(h.Length, uint64(len(body)))
			other.enc.Encode(&head, &h)
			body = append(head[:], body...)
		}
		if n, err := other.put(body); n < len(body) {
			t.Fatalf("%d bytes of %d are written: %v", n, len(body), err)
		}
	}
	w, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !other.closed {
			other.Close()
		}
		w.Close()
	})
	return w.(*comm), write, other
}

// single is raw with the default heartbeat.
func single(t *testing.T) (*comm, func(h frame.Header, body []byte)) {
	t.Helper()
	c, write, _ := raw(t, 0)
	return c, write
}

// kill ends a rank as the kernel does: its links are closed, and it sends nothing.
func kill(c *comm) {
	c.e.mu.Lock()
	killLocked(c)
}

// killLocked is kill. It releases the lock.
func killLocked(c *comm) {
	e := c.e
	for _, p := range e.peers {
		if p != nil {
			p.closeLink()
		}
	}
	e.due, e.linksClosed = nil, len(e.membership.LostList)
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "killed"})
	e.membership.End()
	e.mu.Unlock()
	if e.demand != nil {
		e.demand.end() // no rank listens any more
	}
}

// until polls until something holds.
func until(t *testing.T, what string, c *comm, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); c.Poll() {
		if time.Now().After(end) {
			t.Fatalf("rank %d: not %s after a minute", c.e.me, what)
		}
		runtime.Gosched()
	}
}

// locked calls a function with an engine's lock held.
func locked(c *comm, f func(e *Engine) bool) bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return f(c.e)
}

// lostIs waits until exactly these ranks are lost for c.
func lostIs(t *testing.T, c *comm, want ...int) {
	t.Helper()
	var got []int
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if got = c.Failed(); len(got) >= len(want) {
			break
		}
		c.Await(&backend.Bound{Timeout: 10 * time.Millisecond}, &flag{}) // other ranks need the processor too
	}
	if !slices.Equal(got, want) {
		t.Fatalf("rank %d: ranks %v are lost, want %v", c.e.me, got, want)
	}
}

// flag is something to wait for.
type flag struct{ set atomic.Bool }

func (f *flag) Ready() bool { return f.set.Load() }

// isLost checks an error that names a lost rank.
func isLost(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, backend.ErrPeerLost) {
		t.Errorf("%s: %v, want ErrPeerLost", what, err)
		return
	}
	if strings.Count(err.Error(), "was declared lost") > 1 {
		t.Errorf("%s: %v says twice that a rank was declared lost", what, err)
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

func isend(c *comm, n, dest, tag int) *backend.Request {
	q := &backend.Request{}
	q.Begin()
	c.Isend(q, make([]byte, n), dest, tag, backend.Standard)
	return q
}

func await(t *testing.T, c *comm, q *backend.Request) error {
	t.Helper()
	if err := c.Await(patient, q); err != nil {
		t.Fatalf("rank %d: %v", c.e.me, err)
	}
	return q.Err
}

// pass sends an empty message from one rank to another.
func pass(t *testing.T, from, to *comm) {
	t.Helper()
	if err := from.Send(patient, nil, to.rank, 1, backend.Standard); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Recv(patient, nil, from.rank, 1); err != nil {
		t.Fatal(err)
	}
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
		d, err := ranks[m].Derive(nil, members, id)
		if err != nil {
			t.Fatal(err)
		}
		made[i] = d.(*comm)
	}
	return made
}

// control makes control communicators.
func control(t *testing.T, id uint32, ranks ...*comm) (made []*comm) {
	t.Helper()
	for _, c := range ranks {
		s, err := c.Control(id)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, s.(*comm))
	}
	return made
}
