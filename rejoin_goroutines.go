package cohort

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// goroutines is the job of a Run. It is what a launcher is for processes: its ranks ask the machine for their places, and it
// starts replacements. So tests with RunWith meet what programs meet under cohort run.
type goroutines struct {
	ctx      context.Context
	settings settings
	body     func(*Comm) error
	wg       sync.WaitGroup // of the ranks, and of starts that are due

	mu       sync.Mutex // guards the fields below
	errs     []error    // of the ranks, in the order in which they come
	machine  *generation.Machine
	clients  map[int]*generation.Client
	ends     []backend.Comm // of the present world
	latest   int            // its generation
	worlds   []*comm.Comm   // handles of the ranks of the last one that all have joined
	replaced map[int]error  // errors of ranks whose replacements have not joined yet, by what these are started as
	ticking  time.Time      // when tick is called; zero: it need not be
}

// run runs the ranks until all have ended, and returns their errors.
func (j *goroutines) run() error {
	j.mu.Lock()
	for rank := range j.machine.Size {
		j.Start(rank, rank)
	}
	j.mu.Unlock()
	defer context.AfterFunc(j.ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.machine.StopRestarts()
	})()
	j.wg.Wait()
	for _, rank := range slices.Sorted(maps.Keys(j.replaced)) {
		j.errs = append(j.errs, ofRank(rank, j.replaced[rank]))
	}
	return errors.Join(j.errs...)
}

// rank is a rank from its start, in place of rank startedAs, to its end.
func (j *goroutines) rank(id, startedAs int, g *generation.Client) {
	var world *Comm
	r := &rejoiner{protocol: &launcher{g}, ctx: j.ctx, first: j.settings, open: j.open, entered: func(w *Comm) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if world = w; len(j.worlds) > 0 && j.worlds[0].Worlds().Generation != w.Generation() {
			j.worlds = nil
		}
		j.worlds = append(j.worlds, w.base())
		delete(j.replaced, startedAs)
	}}
	err := errGoexit
	defer func() {
		if err != nil {
			j.ended(id, startedAs, world, err) // first, so that the others cannot count it as lost before
		}
		if closed := world.CloseWith(err); err == nil {
			j.ended(id, startedAs, world, closed)
		}
	}()
	if _, err = r.next(context.WithoutCancel(j.ctx), nil); err == nil {
		err = errGoexit
		err = guard(func() error { return j.body(world) })
	}
}

// ended handles the end of a rank. world is the last that it has been in, nil for none.
func (j *goroutines) ended(id, startedAs int, world *Comm, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rank := startedAs
	if world != nil {
		rank = world.Rank()
	}
	next := j.machine.Rank(id) // what a replacement is started as
	switch fate := j.machine.Ended(id, err == nil, errors.Is(err, ErrPeerLost) && !errors.Is(err, errGoexit)); {
	case err == nil || fate == generation.Ignored:
	case fate == generation.Replaced:
		j.replaced[next] = err
	default:
		j.errs = append(j.errs, ofRank(rank, cmp.Or(j.replaced[startedAs], err))) // the error of a process that did not join says less
		delete(j.replaced, startedAs)
	}
	j.tick()
}

// tick calls the machine when it asks for that.
func (j *goroutines) tick() {
	pause, due := j.machine.Wait()
	at := time.Now().Add(pause)
	if !due || !j.ticking.IsZero() && !at.Before(j.ticking) {
		return
	}
	j.ticking = at
	j.wg.Go(func() {
		select {
		case <-time.After(pause):
		case <-j.ctx.Done(): // all ranks end by it
			return
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ticking = time.Time{}
		j.machine.Tick()
		j.tick()
	})
}

// open returns the end of the world in which s has a place.
func (j *goroutines) open(_ context.Context, s settings) (backend.Comm, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ends != nil && s.worlds.Generation < j.latest {
		return nil, fault(ErrPeerLost, "the ranks have joined a later world")
	}
	if j.ends == nil || j.latest != s.worlds.Generation {
		j.ends, j.latest = local.New(s.Size), s.worlds.Generation
	}
	return j.ends[s.Rank], nil
}

// The methods of generation.Host are called with the mutex held.

func (j *goroutines) Start(id, rank int) {
	g := generation.NewClient(func(r generation.Request) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.machine.Handle(id, r)
		j.tick()
		return nil
	})
	j.clients[id] = g
	j.wg.Go(func() { j.rank(id, rank, g) })
}

func (j *goroutines) Tell(id int, m generation.Message) { j.clients[id].Got(m) }

// Kill does nothing: the operations of a rank that others count as lost end, and it learns the rest when it asks.
func (j *goroutines) Kill(int) {}

// Fail does nothing: each rank learns from its own Rejoin why the job cannot go on.
func (j *goroutines) Fail(string) {}
