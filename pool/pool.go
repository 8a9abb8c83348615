package pool

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Pool is a set of workers. It is safe for concurrent use: loops called by several goroutines run
// one after the other. A nil or zero Pool has no workers and is closed.
type Pool struct {
	// Written by the caller of a loop, read by workers.
	loop
	_ [64]byte

	// Written by workers at the end of a loop, read by the caller.
	left    word.Int64 // chunks that are not done
	skipped word.Bool  // some tasks were not run
	waiter  parker     // wakes the caller
	_       [64]byte

	asleep word.Int32 // workers that sleep or are about to sleep
	_      [64]byte

	slots    []slot // one per worker
	workers  []*worker
	single   patience       // for callers that are not workers
	together patience       // while the function of Run runs
	over     func() bool    // is isOver
	lead     func() error   // for worker 0 to run
	result   error          // what lead has returned, once led has a token
	led      *word.Parker   // worker 0 wakes the caller of Run
	team     word.Bool      // worker 0 runs the function of Run
	ended    sync.WaitGroup // running workers

	turn    chan struct{} // holds a token while no loop runs
	working bool          // a loop has run; guarded by the token
	closing chan struct{} // closed by Close
	once    sync.Once
	denied  error // result of Denied
}

// New starts a pool.
//
// It returns ErrInit if a setting is wrong or names processors that this process may not use, and
// ErrNotSupported if this system cannot pin threads. If a container forbids pinning, the workers run
// without it, and Denied says why.
func New(cfg Config) (*Pool, error) {
	cfg, err := cfg.Resolved()
	if err != nil {
		return nil, err
	}
	sets, err := place(cfg)
	if err != nil {
		return nil, err
	}
	processors := runtime.NumCPU() / cfg.LocalSize // in the affinity mask the process started with
	p := &Pool{
		slots:    make([]slot, cfg.Threads),
		led:      word.NewParker(),
		turn:     make(chan struct{}, 1),
		closing:  make(chan struct{}),
		single:   patienceFor(cfg.Threads, processors),
		together: teamPatienceFor(cfg.Threads, processors),
	}
	p.over = p.isOver
	started := make(chan error)
	for id, cpus := range sets {
		w := &worker{id: id, pool: p, cpus: cpus}
		p.workers = append(p.workers, w)
		p.ended.Add(1)
		go w.start(started)
	}
	for range sets {
		err = errors.Join(err, <-started)
	}
	p.turn <- struct{}{}
	if err != nil {
		p.Close()
		return nil, err
	}
	for _, w := range p.workers {
		p.denied = cmp.Or(p.denied, w.denied)
	}
	return p, nil
}

// made reports whether New has made the pool.
func (p *Pool) made() bool { return p != nil && p.turn != nil }

// Workers returns the number of workers. They are numbered from 0.
func (p *Pool) Workers() int {
	if !p.made() {
		return 0
	}
	return len(p.workers)
}

// Denied returns why a worker is not pinned although it should be, or could not be set to allocate
// memory in its own NUMA domain, for example because a container forbids it. It returns nil if no
// worker lacks what its configuration asks for. Without the setting for memory the kernel does the
// same, unless the program was started with another policy.
func (p *Pool) Denied() error {
	if !p.made() {
		return nil
	}
	return p.denied
}

// Close waits for the running loop, ends the workers and their threads, and returns when they have
// ended. Waiting and later loops return ErrClosed. In a task of the pool itself, Close does nothing
// and returns ErrBusy. A second Close waits for the first.
func (p *Pool) Close() error {
	if !p.made() {
		return nil
	}
	if p.own() != nil {
		return faultf(backend.ErrBusy, "a task of the pool cannot close it")
	}
	p.once.Do(func() {
		close(p.closing)
		<-p.turn // never put back
		p.dismiss()
		p.ended.Wait()
		if p.working {
			reserve(-len(p.workers))
		}
	})
	return nil
}

// dismiss orders all workers to end.
func (p *Pool) dismiss() {
	p.epoch.Store(p.next(closes))
	for _, w := range p.workers {
		p.rouse(w)
	}
}

// enter waits until no loop runs and takes the token. In a task of the pool it takes none and
// returns the task's worker.
func (p *Pool) enter(ctx context.Context) (*worker, error) {
	if !p.made() {
		return nil, errClosed
	}
	select {
	case <-p.turn:
		return nil, nil
	default: // closed, or a loop is running, which may be the caller's own
	}
	if w := p.own(); w != nil {
		return w, nil
	}
	select {
	case <-p.turn:
		return nil, nil
	case <-p.closing:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ended(ctx)
	}
}

// begin runs before the first loop, because workers occupy Go's processors only from then on. The
// caller holds the token.
func (p *Pool) begin() {
	if !p.working {
		p.working = true
		reserve(len(p.workers))
	}
}

// own returns the worker the caller runs on, or nil if it is not a worker of the pool.
func (p *Pool) own() *worker {
	id := self()
	for _, w := range p.workers {
		if identity(w.identity.Load()) == id {
			return w
		}
	}
	return nil
}

// reserved counts the processors that all pools have added to GOMAXPROCS.
var reserved struct {
	sync.Mutex
	n   int
	now int // GOMAXPROCS with them
}

// reserve raises GOMAXPROCS by n, the processors that workers occupy. Otherwise other goroutines,
// the callers of loops first of all, would run only after a worker was preempted. A negative n
// lowers it again, unless the program itself has changed GOMAXPROCS since.
func reserve(n int) {
	r := &reserved
	r.Lock()
	defer r.Unlock()
	now := runtime.GOMAXPROCS(0)
	if now != r.now {
		r.n = 0
	}
	r.now = now + max(n, -r.n)
	r.n += r.now - now
	runtime.GOMAXPROCS(r.now)
}
