package comm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
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

	origin gate.Gate           // operations of this rank; the goroutine that shuts it closes the window
	target gate.Gate           // what serves the other ranks, until all have closed the window
	failed word.Pointer[error] // the error of every operation from now on
	done   chan struct{}       // closed with target

	mu        word.Mutex    // guards the fields below
	held      []window.Kind // the locks that this rank holds or waits for, by rank
	spareTags []int
	lastTag   int
	rputs     [][]*transfer // those under way, and some that are done, by rank

	requests []requests // sent without an answer, by rank

	messages sync.Pool // of *message
	server   server
}

// requests counts the requests without an answer that were sent to a rank, and those that are known to be done.
type requests struct{ sent, done word.Uint32 }

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

var (
	errNotOpen = fault(backend.ErrClosed, "the window is closed")
)

// NewOnesided makes a one-sided window with n elements on this rank. bad is an error of the type.
func (c *Comm) NewOnesided(elem *backend.Datatype, n int, bad error) (*Onesided, error) {
	const op = "newwindow"
	if c == nil || c.core == nil {
		return nil, c.Failed(op, Undefined, Undefined, errNil)
	}
	if !c.core.life.changes.Enter() { // else Close waits until the window is made, and closes it
		return nil, c.failed(op, errClosed)
	}
	defer c.core.life.changes.Leave()
	handle := c
	c = c.begun()
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
	if !s.register() {
		s.end(time.Now())
		return nil, c.failed(op, errClosed)
	}
	s.start()
	return &Onesided{handle, s}, nil
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
	defer k.life.leave()
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
	s.requests, s.rputs = make([]requests, k.size), make([][]*transfer, k.size)
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
		if s.node, err = c.on(s.remote).Split(SplitSharedCall, "node", nodeOf(k.rank), 0, 0, nil); err != nil {
			s.close(time.Now())
			return err
		}
		node = c.on(s.node)
	}
	s.memory, err = node.Allocate(a)
	if s.remote != nil {
		err = cmp.Or(err, c.allWell(a, err))
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
	if err == nil && !s.memory.win.Enter() {
		err = errClosed
	}
	if err != nil {
		_ = s.memory.Close()
		s.close(time.Now())
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

// register makes the communicators that the window stands on close it when they are closed. It returns false if one
// of them has been closed already.
func (s *onesided) register() bool {
	all := true
	for _, k := range s.cores() {
		k.mu.Lock()
		if k.swept {
			all = false
		} else {
			k.onesided = append(k.onesided, s)
		}
		k.mu.Unlock()
	}
	return all
}

// start begins to serve the ranks of other nodes, or else to watch for losses.
func (s *onesided) start() {
	switch {
	case s.remote != nil:
		s.serve()
		if s.target.Enter() {
			go func() {
				defer s.target.Leave()
				_ = s.remote.core.bc.Await(&backend.Bound{Background: true}, s) // it ends with the window
			}()
		}
	case s.core.size > 1 && concurrent(s.core.bc.Caps().ThreadLevel) && s.target.Enter():
		go s.watch()
	}
}

// Ready implements backend.Pending: the window has ended.
func (s *onesided) Ready() bool { return s.target.IsShut() || s.failed.Load() != nil }

// watchEvery is how often a window in shared memory asks whether a rank is lost. Accesses would not notice a loss.
const watchEvery = 50 * time.Millisecond

// watch ends the window's operations when a rank is lost.
func (s *onesided) watch() {
	defer s.target.Leave()
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

// end closes the window on this rank, unless another goroutine does. It waits for those that use it, until a time at
// most.
func (s *onesided) end(until time.Time) {
	if s.origin.Shut() {
		soon := &Comm{core: s.core, bound: &backend.Bound{Timeout: left(until)}}
		_ = (&Onesided{soon, s}).unlockAll()
		_ = s.free(until)
	}
}

// free frees what the window stands on. Memory that is still in use at the given time stays mapped. The caller has
// shut origin.
func (s *onesided) free(until time.Time) (err error) {
	s.target.Shut()
	close(s.done)
	if s.remote != nil { // its Close ends the requests under way
		s.server.posting.Lock()
		s.remote.core.bc.Cancel(&s.server.in) // else mpi does not free the communicator
		s.server.posting.Unlock()
		_ = s.remote.core.bc.Close()
		s.core.bc.Wake()
	}
	if s.origin.AwaitEmpty(left(until)) && s.target.AwaitEmpty(left(until)) {
		s.memory.win.Leave()
		err = s.memory.Close()
	}
	for _, k := range s.cores() {
		k.mu.Lock()
		k.onesided = slices.DeleteFunc(k.onesided, func(o *onesided) bool { return o == s })
		k.mu.Unlock()
	}
	s.close(until)
	return err
}

// close closes the communicators that the window has made.
func (s *onesided) close(until time.Time) {
	for _, c := range []*Comm{s.node, s.remote} {
		if c != nil {
			_ = c.core.close(until)
		}
	}
}

// Failed wraps the error of an operation. It returns nil for nil.
func (w *Onesided) Failed(op string, peer int, err error) error {
	switch {
	case err == nil:
		return nil
	case w == nil:
		return (*Comm)(nil).Failed(op, peer, Undefined, err)
	}
	if errors.Is(err, backend.ErrPeerLost) { // no operation succeeds after one that has told the loss
		w.s.fail(err)
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

// begun is Comm.begun.
func (w *Onesided) begun() *Onesided {
	if c := w.c.begun(); c != w.c {
		return &Onesided{c, w.s}
	}
	return w
}

// begin begins an operation on the part of a rank. The caller calls leave afterwards, unless it fails.
func (w *Onesided) begin(rank int) error {
	if w == nil {
		return errNoWindow
	}
	s := w.s
	if !s.origin.Enter() {
		return errNotOpen
	}
	err := s.failure()
	if err == nil && uint(rank) >= uint(len(s.counts)) && rank != backend.ProcNull {
		err = w.c.badRank("target", rank)
	}
	if err != nil {
		s.origin.Leave()
	}
	return err
}

// Own returns this rank's part.
func (w *Onesided) Own() ([]byte, error) {
	if err := w.begin(backend.ProcNull); err != nil {
		return nil, w.Failed("local", Undefined, err)
	}
	s := w.s
	defer s.origin.Leave()
	me := s.core.rank
	return s.parts[me].Bytes(window.CellsHead, s.counts[me]*s.elem.Size), nil
}

// Fence completes the accesses of all ranks to all parts.
func (w *Onesided) Fence() error {
	err := w.begin(backend.ProcNull)
	if err == nil {
		if err = w.c.take(); err == nil {
			w = w.begun()
			err = w.c.arrive(fenceCall, w.s.number, w.flushAll())
			w.s.core.life.leave()
		}
		w.s.origin.Leave()
	}
	return w.Failed("fence", Undefined, err)
}

// Close closes the window when all ranks have called it, and releases the locks that this rank holds. Until
// then this rank serves the others. It is a change of the communicator, whose Close waits for it.
func (w *Onesided) Close() error {
	if w == nil || w.s.origin.IsShut() {
		return nil
	}
	s, life := w.s, &w.s.core.life
	if !life.changes.Enter() {
		return nil // the communicator's Close closes it
	}
	defer life.changes.Leave()
	switch err := w.c.take(); err {
	case nil:
	case errClosed:
		return nil
	default:
		return w.Failed("close", Undefined, err)
	}
	if !s.origin.Shut() {
		life.leave()
		return nil
	}
	w = w.begun()
	finished, unlocked := w.finish(), s.home().unlockAll()
	arrived := w.c.arrive(closeCall, s.number, nil)
	life.leave()
	freed := s.free(time.Now().Add(QuiesceFor))
	return w.Failed("close", Undefined, cmp.Or(unlocked, finished, arrived, freed))
}

// finish waits until this rank's operations are complete.
func (w *Onesided) finish() error {
	for !w.s.origin.AwaitEmpty(100 * time.Microsecond) {
		if err := w.c.bound.Err(time.Time{}); err != nil {
			return err
		}
		w.s.core.bc.Poll()
	}
	return w.flushAll()
}
