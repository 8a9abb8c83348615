package comm

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/gate"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Window is a handle of a window. It may be nil.
type Window struct {
	c *Comm // limits its operations
	s *windowCore
}

// windowCore is the state that all handles of one window share. The ranks of a node share the memory of their parts
// and access it in place (window.Part). For a part on another node, a rank sends requests to the part's rank, which
// carries them out in the same way (windowserve.go). A rank always reaches a part in the same way, so its accesses stay
// in order.
type windowCore struct {
	core   *core // of the communicator that it was made from
	name   string
	number int // among those of the communicator
	elem   *backend.Datatype
	reach  Reach
	counts []int         // the elements of every rank
	parts  []window.Part // of the ranks of this node; those of other nodes are not mapped
	mem    backend.Memory
	near   *Comm // of the ranks that share the memory: plain, or node
	remote *Comm // for messages to ranks of other nodes; nil if there are none
	node   *Comm // of this node's ranks, if there are others

	// The gates are the state of the window, see windowclose.go.
	origin    gate.Gate           // operations of this rank are inside
	target    gate.Gate           // what serves the other ranks is inside
	released  chan struct{}       // closed when target has been shut
	failed    word.Pointer[error] // the error of every operation from now on, in any state
	inBarrier word.Bool           // a goroutine is in barrier
	inClose   word.Bool           // a goroutine is in Close

	mu        word.Mutex // guards the fields below
	holds     []lockHold // by rank
	tickets   uint64     // given to holds
	spareTags []int
	lastTag   int
	rputs     [][]*transfer // those under way, and some that are done, by rank

	unanswered []unanswered // sent without an answer, by rank

	messages sync.Pool // of *message
	server   server
}

var (
	errNoWindow = fault(backend.ErrWin, "the window is nil")
	errNotOpen  = fault(backend.ErrClosed, "the window is closed")
)

// NewWindow makes a window, on all ranks or on none.
func (c *Comm) NewWindow(a *Allocation) (*Window, error) {
	w, err := c.newWindow(a)
	return w, c.failed(a.op, err)
}

func (c *Comm) newWindow(a *Allocation) (*Window, error) {
	if err := c.Usable(); err != nil {
		return nil, err
	}
	k := c.core
	if !k.life.changes.Enter() {
		return nil, errClosed
	}
	defer k.life.changes.Leave() // Close waits until the window is made, and closes it
	handle := c
	c = c.withDeadline()
	s := &windowCore{core: k, elem: a.elem, reach: a.reach, near: k.plain, released: make(chan struct{})}
	s.messages.New = s.newMessage
	if err := s.count(c, a); err != nil {
		return nil, err
	}
	if err := s.allocate(c, a); err != nil {
		return nil, err
	}
	if !s.register() {
		s.closeLocal(time.Now(), nil)
		return nil, errClosed
	}
	s.start()
	return &Window{handle, s}, nil
}

// count exchanges the numbers of elements.
func (s *windowCore) count(c *Comm, a *Allocation) (err error) {
	k := c.core
	if err := c.take(); err != nil {
		return err
	}
	defer k.life.leave()
	if s.counts, err = a.agree(c); err != nil {
		return err
	}
	k.windowsMade++
	s.number = k.windowsMade
	s.name = fmt.Sprintf("%s.window%d", k.name, s.number)
	s.holds = make([]lockHold, k.size)
	s.parts = make([]window.Part, k.size)
	if a.spans(k) {
		s.unanswered, s.rputs = make([]unanswered, k.size), make([][]*transfer, k.size)
	}
	return nil
}

// allocate makes the memory of this rank's node, on all nodes or on none.
func (s *windowCore) allocate(c *Comm, a *Allocation) (err error) {
	k, near, ranks, counts := c.core, c, []int(nil), []int(nil)
	nodeOf := func(rank int) int { return 0 }
	if a.spans(k) {
		nodeOf = k.bc.NodeOf
		if k.sharing == nil {
			nodeOf = func(rank int) int { return rank }
		}
		if s.remote, err = c.Split(windowCall, "window", 0, 0, 0, nil); err != nil {
			return err
		}
		if s.node, err = c.on(s.remote).Split(SplitSharedCall, "node", nodeOf(k.rank), 0, 0, nil); err != nil {
			s.closeComms(time.Now())
			return err
		}
		s.near, near = s.node, c.on(s.node)
	}
	for r, n := range s.counts {
		if nodeOf(r) == nodeOf(k.rank) {
			ranks, counts = append(ranks, r), append(counts, n)
		}
	}
	if err = a.layOut(counts); err == nil {
		s.mem, err = a.make(near)
	}
	if s.remote != nil {
		err = cmp.Or(err, c.allWell(a, err))
	}
	if err != nil {
		if s.mem != nil {
			_ = s.closeMemory(sharers{Comm: s.near}, nil)
		}
		s.closeComms(time.Now())
		return err
	}
	for i, p := range a.lay.Parts(s.mem.Bytes()) {
		s.parts[ranks[i]] = p
	}
	return nil
}

// cores returns the communicators that the window stands on.
func (s *windowCore) cores() []*core {
	cores := []*core{s.core}
	if s.remote != nil {
		cores = append(cores, s.remote.core, s.node.core)
	}
	return cores
}

// register makes the communicators that the window stands on close it when they are closed. It returns false if one
// of them has been closed already.
func (s *windowCore) register() bool {
	all := true
	for _, k := range s.cores() {
		k.mu.Lock()
		if k.swept {
			all = false
		} else {
			k.windows = append(k.windows, s)
		}
		k.mu.Unlock()
	}
	return all
}

// start begins to serve the ranks of other nodes. If there are none, it begins to watch for losses.
func (s *windowCore) start() {
	switch {
	case s.remote != nil:
		s.serve()
		if s.target.Enter() {
			go func() {
				defer s.target.Leave()
				_ = s.remote.core.bc.Await(&backend.Bound{Background: true}, s) // it ends with the window
			}()
		}
	case s.reach != Region && s.core.size > 1 && concurrent(s.core.bc.Caps().ThreadLevel) && s.target.Enter():
		go s.watch()
	}
}

// Ready implements backend.Pending: the window has ended.
func (s *windowCore) Ready() bool { return s.target.IsShut() || s.failed.Load() != nil }

// watchEvery is how often a window in shared memory asks whether a rank is lost. Accesses would not notice a loss.
const watchEvery = 50 * time.Millisecond

// watch ends the window's operations when a rank is lost.
func (s *windowCore) watch() {
	defer s.target.Leave()
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-s.released:
			return
		case <-t.C:
		}
		if _, _, err := s.core.bc.Probe(nil, backend.AnySource, backend.NoTag, false); err != nil {
			if !allLeft(err) {
				s.fail(err)
			}
			return
		}
	}
}

// fail ends the window's operations.
func (s *windowCore) fail(err error) {
	s.failed.CompareAndSwap(nil, &err)
	s.core.bc.Wake()
}

// failure returns why the window's operations have ended.
func (s *windowCore) failure() error {
	if f := s.failed.Load(); f != nil {
		return *f
	}
	return nil
}

// Failed wraps the error of an operation. It returns nil for nil.
func (w *Window) Failed(op string, peer int, err error) error {
	switch {
	case err == nil:
		return nil
	case w == nil:
		return (*Comm)(nil).Failed(op, peer, Undefined, err)
	}
	if isLoss(err) { // no operation succeeds after one that has told the loss
		w.s.fail(err)
	}
	return &backend.OpError{Op: op, Comm: w.s.name, Rank: w.s.core.rank, Peer: peer, Tag: Undefined, Err: w.c.recorded(op, err)}
}

// WithContext returns a handle of the same window whose operations end when ctx does.
func (w *Window) WithContext(ctx context.Context) *Window {
	if w == nil {
		return nil
	}
	return &Window{w.c.WithContext(ctx), w.s}
}

// withDeadline is Comm.withDeadline.
func (w *Window) withDeadline() *Window {
	if c := w.c.withDeadline(); c != w.c {
		return &Window{c, w.s}
	}
	return w
}

// enter begins an operation on the part of a rank. The caller calls leave afterwards, unless enter fails.
func (w *Window) enter(rank int) error {
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
		s.leave()
	}
	return err
}

// leave ends an operation. The goroutine that closes the window may wait for it.
func (s *windowCore) leave() {
	s.origin.Leave()
	if s.origin.Empty() {
		s.core.bc.Wake()
	}
}

// Size returns the number of elements in the part of a rank, 0 for a rank that does not exist.
func (w *Window) Size(rank int) int {
	if w == nil || uint(rank) >= uint(len(w.s.counts)) {
		return 0
	}
	return w.s.counts[rank]
}

// Own returns this rank's part.
func (w *Window) Own(op string) ([]byte, error) {
	if w == nil {
		return nil, w.Failed(op, Undefined, errNoWindow)
	}
	return w.Part(op, w.s.core.rank)
}

// Remote returns the part of a rank of the same node.
func (w *Window) Remote(rank int) ([]byte, error) {
	if w != nil && w.s.reach == Anywhere {
		return nil, w.Failed("remote", rank, fault(backend.ErrWin, "only windows made by AllocateShared have the parts of other ranks as slices"))
	}
	return w.Part("remote", rank)
}

// Part returns a part that this process has mapped.
func (w *Window) Part(op string, rank int) ([]byte, error) {
	var err error
	switch {
	case w == nil:
		err = errNoWindow
	case uint(rank) >= uint(len(w.s.parts)):
		err = w.c.badRank("target", rank)
	case w.s.origin.IsShut():
		err = errNotOpen
	default:
		return w.s.parts[rank].All(), nil
	}
	return nil, w.Failed(op, rank, err)
}

// MPIHandle returns the memory's MPI_Win, as of returns it. It is 0 if there is none.
func (w *Window) MPIHandle(of func(backend.Memory) uintptr) (h uintptr, err error) {
	if err = w.enter(backend.ProcNull); err == nil {
		defer w.s.leave()
		if w.s.remote == nil {
			h = of(w.s.mem)
		}
		if h == 0 {
			err = fault(backend.ErrNotSupported, "no MPI_Win stands behind the window; it takes backend mpi and several ranks, all on one node")
		}
	}
	return h, w.Failed("mpihandle", Undefined, err)
}

// Sync is a memory barrier, as the gate's operations are.
func (w *Window) Sync() error {
	err := w.enter(backend.ProcNull)
	if err == nil {
		w.s.leave()
	}
	return w.Failed("sync", Undefined, err)
}

// Fence completes the accesses of all ranks to all parts, and is a memory barrier.
func (w *Window) Fence() error {
	err := w.enter(backend.ProcNull)
	if err == nil {
		var flushed error
		if err = w.c.take(); err == nil {
			w = w.withDeadline()
			flushed = w.flushAll()
		}
		w.s.leave()
		if err == nil {
			err = w.s.barrier(w.c, fenceCall, flushed)
			w.s.core.life.leave()
		}
	}
	return w.Failed("fence", Undefined, err)
}

// barrier waits until all ranks make the same call on the window, unless the window ends. bad is an argument error of this
// rank. The caller has taken the communicator of c.
//
// Invariant: if the window ends because of giveUp, barrier returns. Either it sees the error before it waits, or giveUp
// sees inBarrier and breaks the communicator, because the other ranks may not come any more.
func (s *windowCore) barrier(c *Comm, typ *backend.Datatype, bad error) error {
	s.inBarrier.Store(true)
	defer s.inBarrier.Store(false)
	err := s.failure()
	if err == nil {
		if err = c.windowBarrier(typ, s.number, bad); err != nil {
			err = cmp.Or(s.failure(), err)
		}
	}
	return err
}

// windowBarrier waits until all ranks make the same call on a window. bad is an argument error of this rank. The
// caller has taken the communicator.
func (c *Comm) windowBarrier(typ *backend.Datatype, window int, bad error) error {
	k := c.core
	k.call.Coll, k.call.Type, k.call.Root, k.call.Err = backend.Barrier, typ, window, bad
	return k.do(c.withDeadline().bound)
}
