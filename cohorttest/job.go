package cohorttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort"
)

// Job is a set of ranks and the scenarios that they run, one after the other. A
// [Launcher] starts the ranks, and each of them calls [Job.Run].
type Job struct {
	Ranks int // the number of ranks to start

	Scenarios []string // by name
	Short     bool     // use the smaller matrix
	Dir       string   // the folder for the ranks' reports

	// Deterministic is Config.Deterministic of the ranks.
	Deterministic bool

	Seed uint64 // decides what a random job does

	// Patience is how long a scenario may make no progress before the watchdog ends
	// the process with a dump of all goroutines. A slow machine does not reach it: a
	// single operation would have to take that long.
	Patience time.Duration

	end func() // of a process in the scenario contextEnds: cancels the context of its world

	resumed atomic.Bool // of a job with goroutine ranks: the rank that has stopped goes on
}

// report is one rank's report on one scenario. A rank writes one when it begins the
// scenario and one when it has ended it.
type report struct {
	Scenario string
	Ended    bool
	Errs     []string `json:",omitempty"`
	Digest   string   `json:",omitempty"`
	Millis   int64    `json:",omitempty"`
	Noticed  int64    `json:",omitempty"` // when a random job noticed its fault, in microseconds since 1970
	Late     int64    `json:",omitempty"` // the longest time that an operation exceeded its deadline, in microseconds
}

// Run runs the job's scenarios on one rank. It returns an error only if a scenario
// cannot be continued; failed checks are in the report.
func (j *Job) Run(world *cohort.Comm) error {
	out, err := os.Create(filepath.Join(j.Dir, strconv.Itoa(world.Rank())))
	if err != nil {
		return err
	}
	defer out.Close()
	if world.Size() != j.Ranks {
		return fmt.Errorf("the world has %d ranks, the job has %d", world.Size(), j.Ranks)
	}
	for _, name := range j.Scenarios {
		s, ok := find(name)
		if name == randomFault { // not a part of the suite
			s, ok = faultScenario(planOf(j.Seed)), true
		}
		if !ok {
			return fmt.Errorf("there is no scenario %q", name)
		}
		if err := j.runOne(world, s, json.NewEncoder(out)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// runOne runs one scenario on a communicator made for it.
func (j *Job) runOne(world *cohort.Comm, s scenario, out *json.Encoder) (err error) {
	if err := out.Encode(report{Scenario: s.name}); err != nil {
		return err
	}
	n, me := world.Size(), world.Rank()
	r := &Rank{World: world, Size: n, Rank: me, next: (me + 1) % n, prev: (me + n - 1) % n, Short: j.Short, job: j, scenario: s.name, alone: s.alone, patience: j.Patience}
	r.dog = time.AfterFunc(r.patience, j.bark(s.name, me))
	defer r.dog.Stop()
	begun := time.Now()
	if err := r.play(s); err != nil {
		var l lostRank
		if errors.As(err, &l) {
			return err
		}
		r.Errorf("%v", err)
		defer world.Abort(1) // the others cannot finish without this rank
		return errors.Join(err, out.Encode(report{Scenario: s.name, Ended: true, Errs: r.errs}))
	}
	return out.Encode(report{Scenario: s.name, Ended: true, Errs: r.errs, Digest: r.digest,
		Millis: time.Since(begun).Milliseconds(), Noticed: r.noticed, Late: r.late.Microseconds()})
}

// reports reads the ranks' reports. It returns, for each rank, the last one on each
// scenario.
func (j *Job) reports() ([]map[string]report, error) {
	all := make([]map[string]report, j.Ranks)
	for rank := range all {
		all[rank] = map[string]report{}
		text, err := os.ReadFile(filepath.Join(j.Dir, strconv.Itoa(rank)))
		lines := json.NewDecoder(bytes.NewReader(text))
		for err == nil {
			var r report
			if err = lines.Decode(&r); err == nil {
				all[rank][r.Scenario] = r
			}
		}
		if !errors.Is(err, os.ErrNotExist) && err != io.EOF {
			return nil, fmt.Errorf("rank %d's report: %w", rank, err)
		}
	}
	return all, nil
}

// scenario is something that all ranks of a job do together.
type scenario struct {
	name  string
	sizes func(n int) bool // the numbers of ranks that it applies to; nil: all
	body  func(r *Rank)

	// A scenario that does not leave the job in good order runs alone in its job.
	// lost reports which ranks do not live to report; all others must report, and
	// without errors.
	alone bool
	lost  func(rank, size int) bool

	status int // the exit status of lost processes; 0: not checked

	// few marks a scenario that takes long and shows the same with every number of ranks above 1. In the smaller
	// matrix it runs with the fewest. Those that run alone take turns with the numbers.
	few bool
}

// pick returns one of two numbers: that of the smaller matrix, or that of the whole one.
func (r *Rank) pick(short, whole int) int {
	if r.Short {
		return short
	}
	return whole
}

// dup returns a duplicate of the scenario's communicator, which is closed when all ranks have ended the scenario.
func (r *Rank) dup() *cohort.Comm {
	c := must(r.Comm.Dup())
	r.atEnd(c.Close)
	return c
}

// atEnd notes what all ranks close when they have ended the scenario, unless it ends the job.
func (r *Rank) atEnd(end func() error) {
	if !r.alone {
		r.closers = append(r.closers, end)
	}
}

func atLeast(n int) func(int) bool { return func(size int) bool { return size >= n } }

// The ranks that a scenario loses.
func firstRank(rank, _ int) bool   { return rank == 0 }
func lastRank(rank, size int) bool { return rank == size-1 }
func nobody(int, int) bool         { return false }

// Rank is one rank of a running scenario.
type Rank struct {
	World      *cohort.Comm // the job's communicator, for scenarios that end the job
	Comm       *cohort.Comm // the scenario's communicator
	Rank, Size int
	Short      bool

	next, prev int // the neighbors in the ring of all ranks

	job      *Job
	scenario string
	alone    bool           // the scenario ends the job
	closers  []func() error // what play closes
	reduced  int            // how often reduceAll was called
	digest   string
	noticed  int64
	late     time.Duration
	dog      *time.Timer
	patience time.Duration
	mu       sync.Mutex
	errs     []string
}

// stop is the value of a panic that ends a scenario on this rank.
type stop struct{ err error }

// awaitAll makes a rank that will be lost wait until all ranks have reached a stage: a collective may
// return on one rank earlier than on another, which would see the loss in it. The ranks report through
// files, because messages would have the same problem.
func (r *Rank) awaitAll(stage string, lost func(rank, size int) bool) error {
	name := func(rank int) string { return filepath.Join(r.job.Dir, fmt.Sprintf("%d.%s", rank, stage)) }
	if err := os.WriteFile(name(r.Rank), nil, 0o600); err != nil {
		return err
	}
	for rank := 0; lost(r.Rank, r.Size) && rank < r.Size; {
		switch _, err := os.Stat(name(rank)); {
		case err == nil, slices.Contains(r.World.Lost(), rank): // lost at an earlier stage
			rank++
		case errors.Is(err, os.ErrNotExist):
			time.Sleep(time.Millisecond)
		default:
			return err
		}
	}
	return nil
}

// play runs the body and returns what stopped it.
func (r *Rank) play(s scenario) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stop:
			err = p.err
		case lostRank:
			panic(p)
		default:
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	c, err := r.World.Dup()
	if err != nil {
		return err
	}
	r.Comm = c
	if s.lost != nil {
		if err := r.awaitAll("begun", s.lost); err != nil {
			return err
		}
	}
	s.body(r)
	if !s.alone {
		// Close fails operations of other ranks that are still under way.
		if err := r.World.Barrier(); err != nil {
			return err
		}
	}
	for _, end := range r.closers {
		if err := end(); err != nil {
			return fmt.Errorf("closing what the scenario has left: %w", err)
		}
	}
	if err := c.Close(); err != nil && !s.alone {
		return fmt.Errorf("closing the scenario's communicator: %w", err)
	}
	return nil
}

// Errorf reports a failed check. The scenario goes on, so that the other ranks can
// finish.
func (r *Rank) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < 5 {
		r.errs = append(r.errs, fmt.Sprintf(format, args...))
	}
}

// OK stops the scenario on this rank if err is not nil. Only the scenario's goroutine
// may call it.
func (r *Rank) OK(err error) {
	r.dog.Reset(r.patience)
	if err != nil {
		panic(stop{err})
	}
}

// Is checks that err wraps want. The scenario goes on in any case.
func (r *Rank) Is(err, want error, what string, args ...any) checked {
	r.dog.Reset(r.patience)
	c := checked{r, err, fmt.Sprintf(what, args...), errors.Is(err, want)}
	if !c.ok {
		r.Errorf("%s: got error %v, want %v", c.what, err, want)
	}
	return c
}

// bark returns the watchdog's function: it ends the process with a dump of all goroutines. The runtime may keep a timer
// that was stopped, so the function refers to no rank, whose scenario has used a lot of memory.
func (j *Job) bark(scenario string, rank int) func() {
	said := fmt.Sprintf("cohorttest: no progress in %s on rank %d of %d for %v", scenario, rank, j.Ranks, j.Patience)
	return func() {
		debug.SetTraceback("all")
		panic(said)
	}
}
