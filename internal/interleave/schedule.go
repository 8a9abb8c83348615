package interleave

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Run is one schedule of a program.
type Run struct {
	e       *explorer
	threads []*thread
	checks  []func() error

	running bool    // the threads run: hooks count
	now     *thread // the one that runs
	words   map[uintptr]*location
	payload map[uintptr]*shadow
	freed   []span
	names   map[uintptr]string
	memory  uint64 // a hash of the last writes of all words

	depth       int // choices made
	steps       int
	preemptions int // left
	timeouts    int
	deaths      int
	options     []option // spare

	failure   string
	pruned    bool // it has reached the state of an earlier schedule, and ends
	unwinding bool
	finished  chan struct{}
	unwound   chan struct{}
	trace     []string
}

// active is the run whose threads run.
var active *Run

// maxThreads is how many threads a program may have.
const maxThreads = 8

// status says whether a thread can take its next step.
type status uint8

// A thread is alive until its function returns or it is killed. Asleep it takes no step until it is woken.
const (
	alive status = iota
	asleep
	ended
	killed
)

// thread is one party.
type thread struct {
	id     int
	name   string
	baton  chan struct{} // handed to the thread that goes on
	status status
	mortal bool
	died   location // what Dead reads

	op       string      // its next step
	at       *location   // the word of the step; nil: none
	ready    func() bool // whether the step can be taken; nil: it can
	timed    bool        // it can be ended by a timeout
	timedOut bool

	history uint64 // a hash of its steps and of what it has read
	clock   clock
	buffer  []buffered           // stores that the others do not see yet
	seen    map[*location]uint64 // what it has read since its last Yield
	yields  int
	owes    uint8 // the threads that must take a step before it polls again
}

// buffered is a store in a store buffer.
type buffered struct {
	at    *location
	value any
	apply func()
	event uint64
	clock clock
}

// Go starts a thread. The program calls it before the threads run, and threads may call it afterwards.
func (x *Run) Go(name string, f func()) { x.start(name, f) }

// GoMortal starts a thread that may die between any two of its steps, as a process that is killed.
func (x *Run) GoMortal(name string, f func()) { x.start(name, f).mortal = true }

// Check adds a check of what the threads leave behind. It runs after all threads have ended, or died.
func (x *Run) Check(check func() error) { x.checks = append(x.checks, check) }

// Name names a word in reports. p is a pointer to it.
func (x *Run) Name(p any, format string, args ...any) {
	x.names[address(p)] = fmt.Sprintf(format, args...)
}

// Errorf reports that an assertion does not hold, and ends the schedule.
func (x *Run) Errorf(format string, args ...any) {
	if x.unwinding {
		return
	}
	x.fail(fmt.Sprintf(format, args...))
	if x.running {
		x.stop(x.now)
	}
}

// Dead reports whether a thread has died.
func (x *Run) Dead(name string) bool {
	for _, t := range x.threads {
		if t.name == name {
			return Load(&t.died, func() bool { return t.status == killed })
		}
	}
	panic("there is no thread " + name)
}

// Kill kills a thread, wherever it is.
func (x *Run) Kill(name string) {
	for _, t := range x.threads {
		if t.name == name {
			Update("kill", &t.died, func() (bool, bool) {
				if t.status <= asleep {
					t.status = killed
				}
				t.died.clock = t.clock // the caller knows that all it did is over
				return true, true
			})
		}
	}
}

func (x *Run) start(name string, f func()) *thread {
	if len(x.threads) == maxThreads {
		panic(fmt.Sprintf("a program has at most %d threads", maxThreads))
	}
	t := &thread{id: len(x.threads), name: name, baton: make(chan struct{}), op: "begin", seen: map[*location]uint64{}}
	if x.now != nil {
		t.clock, t.history = x.now.clock, x.now.history
		x.now.clock[x.now.id]++
	}
	t.clock[t.id]++
	t.history = mix(t.history, uint64(t.id)+1)
	x.threads = append(x.threads, t)
	go func() {
		defer func() {
			if p := recover(); p != nil && !x.unwinding {
				x.fail(fmt.Sprintf("%s panics: %v", t.name, p))
				x.trace = append(x.trace, string(debug.Stack()))
			}
			t.status = ended
			if x.unwinding {
				x.unwound <- struct{}{}
				return
			}
			if next := x.choose(nil); next != nil {
				next.baton <- struct{}{}
			} else {
				x.finished <- struct{}{}
			}
		}()
		<-t.baton
		if !x.unwinding {
			f()
		}
	}()
	return t
}

// fail notes a fault. The first one counts.
func (x *Run) fail(text string) {
	if x.failure == "" {
		x.failure = text
	}
}

// stop ends the schedule in the middle of a thread's step.
func (x *Run) stop(t *thread) {
	x.finished <- struct{}{}
	<-t.baton
	runtime.Goexit()
}

// unwind ends the goroutines of threads that have not ended, one after the other. Their deferred functions run.
func (x *Run) unwind() {
	x.unwinding = true
	for _, t := range x.threads {
		if t.status != ended {
			x.now = t
			t.baton <- struct{}{}
			<-x.unwound
		}
	}
}

// step returns when it is thread t's turn to take its next step, which begin has noted.
func (x *Run) step(t *thread) {
	next := x.choose(t)
	if next == t {
		return
	}
	if next == nil {
		x.stop(t)
	}
	next.baton <- struct{}{}
	<-t.baton
	if x.unwinding {
		runtime.Goexit()
	}
}

// option is something that can happen next.
type option struct {
	kind optionKind
	t    *thread
}

type optionKind uint8

const (
	goesOn  optionKind = iota // the thread takes its next step
	flushes                   // the oldest store of the thread's buffer becomes visible
	expires                   // the thread's sleep ends by its timeout
	dies
)

// choose returns the thread that takes the next step; nil at the end of the schedule. current is the thread that
// ran until now, nil if it has ended.
func (x *Run) choose(current *thread) *thread {
	for x.failure == "" {
		options := x.possible(current)
		if len(options) == 0 {
			x.over()
			return nil
		}
		if x.steps++; x.steps > mostSteps {
			x.fail(fmt.Sprintf("no end after %d steps", x.steps-1))
			return nil
		}
		i := 0
		if len(options) > 1 {
			if i = x.pick(len(options), current); i < 0 {
				return nil
			}
		}
		switch o := options[i]; o.kind {
		case flushes:
			x.flush(o.t)
		case expires:
			x.timeouts--
			o.t.timedOut, o.t.status, o.t.history = true, alive, mix(o.t.history, 'x')
			x.note(o.t, "its timeout ends "+o.t.op, nil)
		case dies:
			x.deaths--
			o.t.status, o.t.history = killed, mix(o.t.history, 'k')
			x.wrote(&o.t.died, o.t.history, o.t.clock)
			x.note(o.t, "dies before "+o.t.op, nil)
			if o.t == current {
				current = nil
			}
		default:
			if o.t != current && x.can(current) {
				x.preemptions--
			}
			for _, t := range x.threads {
				t.owes &^= 1 << o.t.id
			}
			x.now = o.t
			return o.t
		}
	}
	return nil
}

// possible lists what can happen next. The first option is that the current thread goes on, if it can.
func (x *Run) possible(current *thread) []option {
	list := x.options[:0]
	stays := x.can(current)
	if stays {
		list = append(list, option{goesOn, current})
	}
	if !stays || x.preemptions > 0 {
		for _, t := range x.threads {
			if t != current && x.can(t) {
				list = append(list, option{goesOn, t})
			}
		}
	}
	for _, t := range x.threads {
		if len(t.buffer) > 0 {
			list = append(list, option{flushes, t})
		}
		if x.timeouts > 0 && x.mayExpire(t) {
			list = append(list, option{expires, t})
		}
		if x.deaths > 0 && t.mortal && t.status <= asleep {
			list = append(list, option{dies, t})
		}
	}
	for _, t := range x.threads {
		if x.e.cfg.Naps && len(list) == 0 && x.mayExpire(t) {
			list = append(list, option{expires, t})
		}
	}
	x.options = list
	return list
}

// mayExpire reports whether a thread sleeps with a timeout.
func (x *Run) mayExpire(t *thread) bool {
	return t.timed && !t.timedOut && (t.status == asleep || t.status == alive && !x.can(t))
}

// can reports whether a thread can take its next step.
func (x *Run) can(t *thread) bool {
	return t != nil && t.status == alive && (t.timedOut || t.ready == nil || t.ready())
}

// pick makes a choice between n options. It returns -1 if an earlier schedule was in the same state: this one ends.
func (x *Run) pick(n int, current *thread) int {
	e, at := x.e, x.depth
	x.depth++
	if at < len(e.path) {
		if e.path[at].n != n {
			x.fail(fmt.Sprintf("choice %d had %d options before and has %d now: the program does other things in each run", at, e.path[at].n, n))
			return -1
		}
		return e.path[at].taken
	}
	taken := 0
	switch {
	case e.given != nil:
		taken = min(e.given[at], n-1)
	case e.rng != nil:
		if e.rng.IntN(3) == 0 {
			taken = e.rng.IntN(n)
		}
	default:
		key := x.state(current)
		if int(e.visited[key]) > x.preemptions {
			x.pruned = true
			return -1
		}
		e.visited[key] = uint8(x.preemptions + 1)
	}
	e.path = append(e.path, choice{n, taken})
	return taken
}

// state is a hash of where all threads are and of what they share.
func (x *Run) state(current *thread) uint64 {
	h := mix(x.memory, uint64(x.timeouts)<<32|uint64(x.deaths))
	for _, t := range x.threads {
		h = mix(h, mix(t.history, uint64(t.owes)<<24|uint64(t.status)<<16|uint64(len(t.buffer))))
	}
	if x.can(current) {
		h = mix(h, uint64(current.id)+1)
	}
	return h
}

// over ends a schedule in which nothing can happen any more.
func (x *Run) over() {
	var stuck []string
	for _, t := range x.threads {
		if t.status < ended {
			stuck = append(stuck, fmt.Sprintf("%s is in %s", t.name, x.doing(t)))
		}
	}
	if stuck != nil {
		x.fail("nobody can go on: " + strings.Join(stuck, "; "))
	}
}

// mix combines two hashes (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	z := a*0x9e3779b97f4a7c15 + b + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
