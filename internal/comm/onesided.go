package comm

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/window"
)

// Onesided is a handle of a one-sided window. It may be nil.
type Onesided struct {
	c *Comm // limits its operations
	s *onesided
}

// onesided is a window that all ranks of a communicator read and update. The ranks of a node share the memory
// of their parts and access it in place (window.Cells). For a part on another node, a rank sends requests to the
// part's rank, which carries them out in the same way (onesidedserve.go). A rank always reaches a part in the same way, so
// its accesses stay in order.
type onesided struct {
	core   *core // of the communicator that it was made from
	name   string
	number int
	elem   *backend.Datatype
	counts []int          // the elements of every rank
	parts  []window.Cells // of the ranks of this node; those of other nodes are not mapped
	memory *Window        // this node's
	remote *Comm          // for messages to ranks of other nodes; nil if there are none
	node   *Comm          // of this node's ranks, if there are others

	origin gate                  // operations of this rank
	target gate                  // what serves the other ranks, until all have closed the window
	failed atomic.Pointer[error] // the error of every operation from now on
	done   chan struct{}         // closed with target

	mu        sync.Mutex    // guards the fields below
	held      []window.Kind // the locks that this rank holds or waits for, by rank
	spareTags []int
	lastTag   int

	requests []requests     // sent without an answer, by rank
	inFlight []atomic.Int32 // Rputs under way, by rank

	messages sync.Pool // of *message
	server   server
}

// requests counts the requests without an answer that were sent to a rank, and those that are known to be done.
type requests struct{ sent, done atomic.Uint32 }

// due returns how many requests are not known to be done.
func (r *requests) due() uint32 {
	done := r.done.Load()
	return r.sent.Load() - done
}

// finish notes that the first n requests are done. Another goroutine may have noted more.
func (r *requests) finish(n uint32) {
	for was := r.done.Load(); int32(n-was) > 0 && !r.done.CompareAndSwap(was, n); was = r.done.Load() {
	}
}

// gate counts the users of a window, until it is shut.
type gate struct{ n atomic.Int64 }

const shut = 1 << 62

// enter returns false if the gate is shut.
func (g *gate) enter() bool {
	if g.n.Add(1) >= shut {
		g.n.Add(-1)
		return false
	}
	return true
}

func (g *gate) leave() { g.n.Add(-1) }

// shut shuts the gate, and returns false if it was shut before.
func (g *gate) shut() bool { return g.n.Or(shut)&shut == 0 }

func (g *gate) isShut() bool { return g.n.Load() >= shut }

// empty reports whether the gate is shut and all have left.
func (g *gate) empty() bool { return g.n.Load() == shut }

var (
	errNotOpen = fault(backend.ErrClosed, "the window is closed")
)

// NewOnesided makes a one-sided window with n elements on this rank. bad is an error of the type.
func (c *Comm) NewOnesided(elem *backend.Datatype, n int, bad error) (*Onesided, error) {
	const op = "newwindow"
	if c == nil || c.core == nil {
		return nil, c.Failed(op, Undefined, Undefined, errNil)
	}
	a := NewAllocation("NewWindow", elem, n, false, bad)
	s := &onesided{core: c.core, elem: elem, done: make(chan struct{})}
	s.messages.New = s.newMessage
	if err := s.count(c, a); err != nil {
		return nil, c.failed(op, err)
	}
	if a.bytes < math.MaxInt-2*window.CellsHead {
		a.bytes = window.CellsSize(a.bytes)
	}
	if err := s.allocate(c, a); err != nil {
		return nil, c.failed(op, err)
	}
	s.register()
	s.start()
	return &Onesided{c, s}, nil
}

// spans reports whether some ranks of a communicator share no memory.
func (k *core) spans() bool { return k.size > 1 && (k.sharing == nil || oneNode(k.bc) != nil) }

// count exchanges the numbers of elements.
func (s *onesided) count(c *Comm, a *Allocation) error {
	k := c.core
	if level := k.bc.Caps().ThreadLevel; a.bad == nil && k.spans() && !concurrent(level) {
		a.bad = fault(backend.ErrNotSupported, "the window spans several nodes, which needs a goroutine that serves the other ranks; the MPI library has thread level %s; set Config.MPI.ThreadLevel to serialized or multiple", level)
	}
	if err := c.take(); err != nil {
		return err
	}
	defer k.life.leave(taken)
	k.recorder.Type(a.typ.ID, a.typ.Name)
	all, err := c.exchange(a.typ, strconv.Itoa(a.n), a.bad)
	if err != nil {
		return err
	}
	s.number = k.windowsMade + 1 // also that of the memory, if all ranks share it
	if k.spans() {
		k.windowsMade++
	}
	s.name = fmt.Sprintf("%s.window%d", k.name, s.number)
	s.counts = make([]int, k.size)
	for r, text := range all {
		if s.counts[r], err = strconv.Atoi(text); err != nil {
			return fault(backend.ErrInternal, "%v", err)
		}
	}
	s.held = make([]window.Kind, k.size)
	s.requests, s.inFlight = make([]requests, k.size), make([]atomic.Int32, k.size)
	return nil
}

// concurrent reports whether an MPI library allows calls of several goroutines.
func concurrent(level string) bool {
	return level != "single" && level != "funneled"
}

// allocate makes the memory of this rank's node, on all nodes or on none.
func (s *onesided) allocate(c *Comm, a *Allocation) (err error) {
	k, node := c.core, c
	nodeOf := func(rank int) int { return 0 }
	if k.spans() {
		nodeOf = k.bc.NodeOf
		if k.sharing == nil {
			nodeOf = func(rank int) int { return rank }
		}
		if s.remote, err = c.Split(windowCall, "window", 0, 0, 0, nil); err != nil {
			return err
		}
		if s.node, err = s.remote.Split(SplitSharedCall, "node", nodeOf(k.rank), 0, 0, nil); err != nil {
			s.close()
			return err
		}
		node = s.node
	}
	s.memory, err = node.Allocate(a)
	if s.remote != nil {
		if e := c.allWell(a, err); err == nil {
			err = e
		}
	}
	s.parts = make([]window.Cells, k.size)
	for r, near := 0, 0; r < k.size && err == nil; r++ {
		if nodeOf(r) == nodeOf(k.rank) {
			var part []byte
			part, err = s.memory.Part("newwindow", near)
			s.parts[r] = window.NewCells(part)
			near++
		}
	}
	if err != nil {
		s.close()
	}
	return err
}

// cores returns the communicators that the window stands on.
func (s *onesided) cores() []*core {
	cores := []*core{s.core}
	if s.remote != nil {
		cores = append(cores, s.remote.core, s.node.core)
	}
	return cores
}

// register makes the communicators that the window stands on close it when they are closed.
func (s *onesided) register() {
	for _, k := range s.cores() {
		k.mu.Lock()
		k.onesided = append(k.onesided, s)
		k.mu.Unlock()
	}
}

// start begins to serve the ranks of other nodes, or else to watch for losses.
func (s *onesided) start() {
	switch {
	case s.remote != nil:
		s.serve()
		s.target.enter()
		go func() {
			defer s.target.leave()
			_ = s.remote.core.bc.Await(&backend.Bound{Background: true}, s) // it ends with the window
		}()
	case s.core.size > 1 && concurrent(s.core.bc.Caps().ThreadLevel):
		s.target.enter()
		go s.watch()
	}
}

// Ready implements backend.Pending: the window has ended.
func (s *onesided) Ready() bool { return s.target.isShut() || s.failed.Load() != nil }

// watchEvery is how often a window in shared memory asks whether a rank is lost. Accesses would not notice a loss.
const watchEvery = 50 * time.Millisecond

// watch ends the window's operations when a rank is lost.
func (s *onesided) watch() {
	defer s.target.leave()
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-t.C:
		}
		if _, _, err := s.core.bc.Probe(nil, backend.AnySource, backend.AnyTag+1, false); err != nil {
			s.fail(err)
			return
		}
	}
}

// fail ends the window's operations.
func (s *onesided) fail(err error) { s.failed.CompareAndSwap(nil, &err) }

// failure returns why the window's operations have ended.
func (s *onesided) failure() error {
	if f := s.failed.Load(); f != nil {
		return *f
	}
	return nil
}

// closeOnesided closes the one-sided windows that stand on a communicator.
func (k *core) closeOnesided(end time.Time) {
	k.mu.Lock()
	open := k.onesided
	k.onesided = nil
	k.mu.Unlock()
	for _, s := range open {
		_ = s.end(end)
	}
}

// end closes the window on this rank when nothing uses it any more, until a time at most.
func (s *onesided) end(until time.Time) error {
	unused := func() bool { return s.origin.empty() && s.target.empty() }
	s.origin.shut()
	if !s.target.shut() {
		wait(until, unused)
		return nil
	}
	close(s.done)
	if s.remote != nil { // its Close ends the requests under way
		s.remote.core.bc.Cancel(&s.server.in) // else mpi does not free the communicator
		_ = s.remote.core.bc.Close()
		s.core.bc.Wake()
	}
	wait(until, unused)
	for _, k := range s.cores() {
		k.mu.Lock()
		k.onesided = slices.DeleteFunc(k.onesided, func(o *onesided) bool { return o == s })
		k.mu.Unlock()
	}
	return s.close()
}

// close frees what the window stands on.
func (s *onesided) close() error {
	err := s.memory.Close()
	_ = s.node.Close()
	_ = s.remote.Close()
	return err
}

// Failed wraps the error of an operation.
func (w *Onesided) Failed(op string, peer int, err error) error {
	if w == nil {
		return (*Comm)(nil).Failed(op, peer, Undefined, errNoWindow)
	}
	return &backend.OpError{Op: op, Comm: w.s.name, Rank: w.s.core.rank, Peer: peer, Tag: Undefined, Err: w.c.recorded(op, err)}
}

// WithContext returns a handle of the same window whose operations end when ctx does.
func (w *Onesided) WithContext(ctx context.Context) *Onesided {
	if w == nil {
		return nil
	}
	return &Onesided{w.c.WithContext(ctx), w.s}
}

// begin begins an operation on the part of a rank. The caller calls leave afterwards, unless it fails.
func (w *Onesided) begin(rank int) error {
	if w == nil {
		return errNoWindow
	}
	s := w.s
	if !s.origin.enter() {
		return errNotOpen
	}
	err := s.failure()
	if err == nil && uint(rank) >= uint(len(s.counts)) && rank != backend.ProcNull {
		err = w.c.badRank("target", rank)
	}
	if err != nil {
		s.origin.leave()
	}
	return err
}

// Own returns this rank's part.
func (w *Onesided) Own() ([]byte, error) {
	if err := w.begin(backend.ProcNull); err != nil {
		return nil, w.Failed("local", Undefined, err)
	}
	s := w.s
	defer s.origin.leave()
	me := s.core.rank
	return s.parts[me].Bytes(window.CellsHead, s.counts[me]*s.elem.Size), nil
}

// Fence completes the accesses of all ranks to all parts.
func (w *Onesided) Fence() error {
	err := w.begin(backend.ProcNull)
	if err == nil {
		if err = w.c.take(); err == nil {
			err = w.c.arrive(fenceCall, w.s.number, w.flushAll())
			w.s.core.life.leave(taken)
		}
		w.s.origin.leave()
	}
	if err != nil {
		return w.Failed("fence", Undefined, err)
	}
	return nil
}

// Close closes the window when all ranks have called it, and releases the locks that this rank holds. Until
// then this rank serves the others.
func (w *Onesided) Close() error {
	if w == nil || w.s.origin.isShut() {
		return nil
	}
	s := w.s
	switch err := w.c.take(); err {
	case nil:
	case errClosed:
		return nil // the communicator's Close closes it
	default:
		return w.Failed("close", Undefined, err)
	}
	if !s.origin.shut() {
		s.core.life.leave(taken)
		return nil
	}
	err := w.finish()
	var bad error
	for r := 0; r < len(s.counts) && s.failure() == nil; r++ { // after a loss, what the locks guard may be half done
		if held, _ := s.unlock(r); held {
			bad = fault(backend.ErrWin, "closed while this rank held the lock of rank %d's part", r)
		}
	}
	if e := w.c.arrive(closeCall, s.number, nil); err == nil {
		err = e
	}
	s.core.life.leave(taken)
	if e := s.end(time.Now().Add(QuiesceFor)); bad == nil {
		bad = cmp.Or(err, e)
	}
	if bad != nil {
		return w.Failed("close", Undefined, bad)
	}
	return nil
}

// finish waits until this rank's operations are complete.
func (w *Onesided) finish() error {
	for start := time.Now(); !w.s.origin.empty(); time.Sleep(100 * time.Microsecond) {
		if err := w.c.bound.Err(start); err != nil {
			return err
		}
		w.s.core.bc.Poll()
	}
	return w.flushAll()
}
