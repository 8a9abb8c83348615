package pool

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
)

// Pool is a set of workers. It is safe for concurrent use: loops that several
// goroutines call run one after the other.
type Pool struct {
	// What the caller of a loop writes, and workers read.
	loop
	_ [64]byte

	// What workers write at the end of a loop, and the caller reads.
	left    atomic.Int64 // chunks that are not over
	skipped atomic.Bool  // some were not run
	waiter  parker       // the caller's
	_       [64]byte

	asleep atomic.Int32 // workers that sleep or are about to
	_      [64]byte

	slots    []slot // one per worker
	workers  []*worker
	single   patience             // for callers that are no workers
	together patience             // while what Run was given runs
	over     func() bool          // isOver
	lead     atomic.Pointer[lead] // for worker 0 to run
	team     atomic.Bool          // it does
	quit     atomic.Bool
	ended    sync.WaitGroup // workers

	turn    chan struct{} // has a token while no loop runs
	working bool          // some loop has been run; who has the turn reads and sets it
	closing chan struct{} // closed by Close
	once    sync.Once
	text    string // Describe
	memory  error  // MemoryPolicy
}

// New starts a pool.
//
// It fails with ErrInit if a setting makes no sense or a worker cannot be pinned
// as it should be, and with ErrNotSupported if it should be pinned and this
// system cannot.
func New(cfg Config) (*Pool, error) {
	cfg, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	sets, err := place(cfg)
	if err != nil {
		return nil, err
	}
	processors := runtime.NumCPU() / cfg.LocalSize // of the affinity mask that the process began with
	p := &Pool{
		slots:    make([]slot, cfg.Threads),
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
		if p.memory == nil {
			p.memory = w.policy
		}
	}
	p.text = describe(cfg, p.workers)
	return p, nil
}

// Workers returns how many workers there are. They are numbered from 0.
func (p *Pool) Workers() int { return len(p.workers) }

// Describe returns a line with the number of workers and where each is pinned.
func (p *Pool) Describe() string { return p.text }

// MemoryPolicy returns why a pinned worker could not be set to take its
// memory from the NUMA domain it runs in, as in a container that forbids that; nil if
// all were, and where none is pinned. The kernel does it in that way anyway, unless the
// program was started with another policy.
func (p *Pool) MemoryPolicy() error { return p.memory }

// Close waits for the loop that runs, ends the workers and their threads, and
// returns when they have ended. Loops that wait for their turn, and later ones,
// return ErrClosed. In a task of the pool itself it is ErrBusy, and does nothing.
// A second Close waits for the first.
func (p *Pool) Close() error {
	if p.own() != nil {
		return faultf(backend.ErrBusy, "Close in a task of the pool")
	}
	p.once.Do(func() {
		close(p.closing)
		<-p.turn // for good
		p.quit.Store(true)
		p.epoch.Add(2)
		for _, w := range p.workers {
			p.rouse(w)
		}
		p.ended.Wait()
		if p.working {
			reserve(-len(p.workers))
		}
	})
	return nil
}

// enter waits for the caller's turn. In a task of the pool there is none: enter
// returns the worker that it runs on.
func (p *Pool) enter(ctx context.Context) (*worker, error) {
	select {
	case <-p.turn:
		return nil, nil
	default: // closed, or a loop runs, which may be the one that the caller is in
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

// begin is what comes before the first loop: only then do workers take up processors
// of Go's. The caller has the turn.
func (p *Pool) begin() {
	if !p.working {
		p.working = true
		reserve(len(p.workers))
	}
}

// own returns the worker that the caller runs on, nil if it is none of the pool's.
func (p *Pool) own() *worker {
	id := self()
	for _, w := range p.workers {
		if identity(w.identity.Load()) == id {
			return w
		}
	}
	return nil
}

// reserved are the processors of Go's that all pools have added.
var reserved struct {
	sync.Mutex
	n   int
	now int // with them
}

// reserve adds to Go's processors what workers take up, so that there are some
// left for other goroutines: for the callers of loops first of all, which could
// otherwise go on only after a worker had been interrupted. A negative n takes them
// away again, but where the program has set their number since it is the program's.
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
