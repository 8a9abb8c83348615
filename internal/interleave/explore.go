package interleave

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Config bounds an exploration. The zero value explores three preemptions, without timeouts or deaths.
type Config struct {
	Preemptions int  // of each schedule; 0: three; below 0: none
	Timeouts    int  // how many sleeps may end by their timeouts in one schedule; the others sleep until they are woken
	Naps        bool // a sleep with a timeout ends when nothing else can happen: for waiters that look again after a nap
	Deaths      int  // how many threads made by GoMortal may die in one schedule
}

// Long returns the preemptions for an exploration that takes seconds: as many as given, and one less with -short.
func Long(preemptions int) int {
	if testing.Short() {
		preemptions--
	}
	return preemptions
}

const (
	mostSteps     = 20000     // of one schedule
	mostSchedules = 2_000_000 // an exploration that needs more fails
)

// The environment sets what a test does not.
const (
	replayEnv = "INTERLEAVE_SEED" // runs the schedule of this seed only, and prints it
	moreEnv   = "INTERLEAVE_MORE" // how many more preemptions to explore, and then random schedules
	timeEnv   = "INTERLEAVE_TIME" // a Go duration: with INTERLEAVE_MORE, an exploration stops after it without an error
)

// exploring is held while an exploration runs: its hooks are global.
var exploring sync.Mutex

// Explore runs the threads that program starts, in all schedules within the bound. It calls program for each schedule;
// program makes what the threads share. Explore returns how many schedules it has run, and fails the test at the first
// fault.
func Explore(t testing.TB, cfg Config, program func(x *Run)) (schedules int) {
	t.Helper()
	exploring.Lock()
	defer exploring.Unlock()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // threads take turns: handing over is fast on one processor
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20)) // memory that was just in use is faster than new memory
	e := newExplorer(cfg, program)
	if seed := os.Getenv(replayEnv); seed != "" {
		x, err := e.replay(seed)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the schedule of %s=%s:\n%s", replayEnv, seed, x.story())
		if x.failure != "" {
			t.Fatal(x.failure)
		}
		return 1
	}
	begin := time.Now()
	if x := e.all(); x != nil {
		t.Fatal(e.report(x))
	}
	complete := "all schedules"
	if !e.complete {
		complete = "not all schedules"
		if e.until.IsZero() {
			t.Errorf("%d schedules were not enough; the bound of %d preemptions is not explored", e.schedules, e.cfg.Preemptions)
		}
	}
	t.Logf("%s with %d preemptions: %d, %d states, %d steps at most, %v", complete, e.cfg.Preemptions, e.schedules, len(e.visited),
		e.longest, time.Since(begin).Round(time.Millisecond))
	return e.schedules
}

// explorer goes through the schedules of a program depth first.
type explorer struct {
	cfg     Config
	program func(x *Run)

	path    []choice         // choices of the schedule that runs; at its start, those to repeat
	visited map[uint64]uint8 // states that were continued, with the preemptions left plus 1
	random  int              // schedules without a bound, chosen at random, after the exploration
	rng     *rand.Rand       // chooses, if not nil
	given   map[int]int      // choices of a seed, the others 0; nil: none is given
	bounded bool             // the seed is of a schedule within the bound
	tracing bool

	schedules, longest int
	complete           bool
	until              time.Time // zero: no limit
}

// choice is a point at which several steps were possible.
type choice struct{ n, taken int }

func newExplorer(cfg Config, program func(x *Run)) *explorer {
	if cfg.Preemptions == 0 {
		cfg.Preemptions = 3
	}
	cfg.Preemptions = max(cfg.Preemptions, 0)
	e := &explorer{cfg: cfg, program: program, visited: map[uint64]uint8{}}
	if more, err := strconv.Atoi(os.Getenv(moreEnv)); err == nil {
		e.cfg.Preemptions += more
		e.random = 10_000
		if d, err := time.ParseDuration(os.Getenv(timeEnv)); err == nil {
			e.until = time.Now().Add(d)
		}
	}
	return e
}

// all runs every schedule within the bound, and returns the first one with a fault, or nil.
func (e *explorer) all() *Run {
	for {
		x := e.run()
		if x.failure != "" {
			return x
		}
		for len(e.path) > 0 && e.path[len(e.path)-1].taken == e.path[len(e.path)-1].n-1 {
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			e.complete = true
			break
		}
		if e.schedules >= mostSchedules || !e.until.IsZero() && time.Now().After(e.until) {
			return nil
		}
		e.path[len(e.path)-1].taken++
	}
	for i := range e.random {
		if !e.until.IsZero() && time.Now().After(e.until) {
			break
		}
		e.path, e.rng = nil, rand.New(rand.NewPCG(uint64(i), 0))
		if x := e.run(); x.failure != "" {
			return x
		}
	}
	return nil
}

// run runs one schedule: the choices of path first, then the first one at each point.
func (e *explorer) run() *Run {
	x := &Run{e: e, words: map[uintptr]*location{}, payload: map[uintptr]*shadow{}, names: map[uintptr]string{},
		finished: make(chan struct{}, 1), unwound: make(chan struct{})}
	x.preemptions = unbounded
	if e.rng == nil && (e.given == nil || e.bounded) {
		x.preemptions = e.cfg.Preemptions
	}
	x.timeouts, x.deaths = e.cfg.Timeouts, e.cfg.Deaths
	e.program(x)
	active, x.running = x, true
	if first := x.choose(nil); first != nil {
		first.baton <- struct{}{}
		x.await()
	}
	x.running = false
	x.unwind()
	active = nil
	if x.failure == "" && !x.pruned {
		for _, check := range x.checks {
			if err := check(); err != nil {
				x.failure = err.Error()
				break
			}
		}
	}
	e.schedules++
	e.longest = max(e.longest, x.steps)
	return x
}

const unbounded = 1 << 30

// patience is how long a schedule may run. If it takes longer, a thread waits for something that is no word.
const patience = time.Minute

func (x *Run) await() {
	select {
	case <-x.finished:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		panic(fmt.Sprintf("a thread waits for something that is no word:\n%s", stacks[:runtime.Stack(stacks, true)]))
	}
}

// seed names the choices of the last schedule: those that were not the first one, by their number.
func (e *explorer) seed() string {
	var b strings.Builder
	b.WriteByte('s')
	if e.rng != nil {
		b.WriteByte('r')
	}
	for i, c := range e.path {
		if c.taken > 0 {
			fmt.Fprintf(&b, ",%d=%d", i, c.taken)
		}
	}
	return b.String()
}

// replay runs the schedule of a seed, and notes its steps.
func (e *explorer) replay(seed string) (*Run, error) {
	kind, rest, _ := strings.Cut(seed, ",")
	given := map[int]int{}
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ",")
		var at, taken int
		if _, err := fmt.Sscanf(part, "%d=%d", &at, &taken); err != nil {
			return nil, fmt.Errorf("the seed %s has the part %q", seed, part)
		}
		given[at] = taken
	}
	r := newExplorer(e.cfg, e.program)
	r.cfg = e.cfg
	r.given, r.tracing = given, true
	r.bounded = kind == "s"
	return r.run(), nil
}

// report says what is wrong in a schedule. It runs the schedule again to note its steps.
func (e *explorer) report(x *Run) string {
	seed := e.seed()
	text := fmt.Sprintf("%s\nin schedule %d; run it again with %s=%s", x.failure, e.schedules, replayEnv, seed)
	again, err := e.replay(seed)
	switch {
	case err != nil:
		return text + "\n" + err.Error()
	case again.failure != x.failure:
		return fmt.Sprintf("%s\nbut the same schedule then gives %q: the program does other things in each run", text, again.failure)
	}
	return text + "\n" + again.story()
}
