package interleave

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
)

// The functions below are the hooks that package word calls in place of the accesses themselves. Some return whether
// they have acted. They return false where no exploration runs, and the caller makes the access itself.

// location is a word.
type location struct {
	keep     any    // its pointer, so that the address is not reused in this run
	number   int    // in the order in which words are touched
	writer   uint64 // the event that wrote it last
	clock    clock  // of that event
	sleepers []*thread
}

func address(p any) uintptr { return reflect.ValueOf(p).Pointer() }

// here returns the run and the thread whose access this is; nil if no exploration runs.
func here() (*Run, *thread) {
	x := active
	if x == nil || !x.running || x.now == nil {
		return nil, nil
	}
	return x, x.now
}

// Running reports whether the caller is a thread of an exploration.
func Running() bool {
	x, _ := here()
	return x != nil
}

// word returns the record of a word.
func (x *Run) word(p any) *location {
	if l, ok := p.(*location); ok {
		return l
	}
	a := address(p)
	l := x.words[a]
	if l == nil {
		l = &location{keep: p, number: len(x.words) + 1}
		x.words[a] = l
	}
	x.touched(a)
	return l
}

// begin announces a step of t, and returns when it is t's turn to take it.
func (x *Run) begin(t *thread, op string, l *location, ready func() bool, timed bool) {
	t.op, t.at, t.ready, t.timed, t.timedOut = op, l, ready, timed, false
	x.step(t)
	t.history = mix(t.history, 1) // a step that changes nothing else must not look like the state before it
}

// enter takes a step that makes the thread's stores visible. It returns no run where no exploration runs.
func enter(op string, p any, ready func() bool, timed bool) (*Run, *thread, *location) {
	x, t := here()
	if x == nil {
		return nil, nil, nil
	}
	l := x.word(p)
	x.begin(t, op, l, ready, timed)
	x.drain(t)
	return x, t, l
}

// read notes that t has read a word.
func (x *Run) read(t *thread, l *location) {
	t.history = mix(t.history, l.writer+1)
	t.clock.join(&l.clock)
	t.seen[l] = l.writer
}

// write notes that t has written a word. again says that t has read it in the same step.
func (x *Run) write(t *thread, l *location, again bool) {
	if again {
		t.clock.join(&l.clock)
		t.history = mix(t.history, l.writer+1)
	}
	t.history = mix(t.history, 'w')
	x.wrote(l, t.history, t.clock)
	t.clock[t.id]++
	if _, ok := t.seen[l]; ok || again {
		t.seen[l] = l.writer
	}
}

// wrote notes that an event has written a word.
func (x *Run) wrote(l *location, event uint64, c clock) {
	if l.writer != 0 {
		x.memory -= mix(l.writer, 1)
	}
	l.writer, l.clock = event, c
	x.memory += mix(l.writer, 1)
}

// Load reads a word. A thread sees its own stores first.
func Load[V any](p any, load func() V) V {
	x, t := here()
	if x == nil {
		return load()
	}
	l := x.word(p)
	x.begin(t, "load", l, nil, false)
	for i := len(t.buffer) - 1; i >= 0; i-- {
		if b := &t.buffer[i]; b.at == l {
			t.history = mix(t.history, 'f')
			x.note(t, "load, its own store", b.value)
			return b.value.(V)
		}
	}
	v := load()
	x.read(t, l)
	x.note(t, "load", v)
	return v
}

// Update is an atomic operation that may write. Before it the stores of the thread become visible.
func Update[V any](op string, p any, update func() (V, bool)) V {
	x, t, l := enter(op, p, nil, false)
	if x == nil {
		v, _ := update()
		return v
	}
	v, wrote := update()
	if wrote {
		x.write(t, l, op != "store")
	} else {
		x.read(t, l)
	}
	x.note(t, op, v)
	return v
}

// Release is a store that the others see later: it goes into the store buffer.
func Release(p, value any, apply func()) {
	x, t := here()
	if x == nil {
		apply()
		return
	}
	l := x.word(p)
	x.begin(t, "release", l, nil, false)
	t.history = mix(t.history, 'r')
	t.buffer = append(t.buffer, buffered{l, value, apply, t.history, t.clock})
	t.clock[t.id]++
	x.note(t, "release", value)
}

// flush makes the oldest store in a thread's buffer visible.
func (x *Run) flush(t *thread) {
	b := t.buffer[0]
	t.buffer = t.buffer[1:]
	b.apply()
	x.wrote(b.at, b.event, b.clock)
	if _, ok := t.seen[b.at]; ok {
		t.seen[b.at] = b.event
	}
	if x.e.tracing {
		x.trace = append(x.trace, fmt.Sprintf("%-12s   %s = %v becomes visible", t.name, x.nameOf(b.at), b.value))
	}
}

func (x *Run) drain(t *thread) {
	for len(t.buffer) > 0 {
		x.flush(t)
	}
}

// Lock takes a lock.
func Lock(held *bool) bool {
	x, t, l := enter("lock", held, func() bool { return !*held }, false)
	if x == nil {
		return unwinding()
	}
	*held = true
	x.write(t, l, true)
	x.note(t, "lock", nil)
	return true
}

// TryLock takes a lock if nobody holds it.
func TryLock(held *bool) (got, explored bool) {
	x, t, l := enter("try to lock", held, nil, false)
	if x == nil {
		return true, unwinding()
	}
	if *held {
		x.read(t, l)
		x.note(t, "try to lock", false)
		return false, true
	}
	*held = true
	x.write(t, l, true)
	x.note(t, "try to lock", true)
	return true, true
}

// Unlock gives a lock back.
func Unlock(held *bool) bool {
	x, t, l := enter("unlock", held, nil, false)
	if x == nil {
		return unwinding()
	}
	if !*held {
		x.fail(t.name + " unlocks a lock that nobody holds")
		x.stop(t)
	}
	*held = false
	x.write(t, l, true)
	x.note(t, "unlock", nil)
	return true
}

// unwinding reports whether a schedule is being ended: deferred functions run, and locks mean nothing.
func unwinding() bool { return active != nil && active.unwinding }

// waits is unwinding for a step that waits. It ends the goroutine, which could otherwise wait again and again.
func waits() bool {
	if unwinding() {
		runtime.Goexit()
	}
	return false
}

// Sleep sleeps while a word is as expected, until Wake, or until a timeout if timed is set.
func Sleep(p any, expected func() bool, timed bool) bool {
	x, t, l := enter("sleep", p, nil, false)
	if x == nil {
		return waits()
	}
	x.read(t, l)
	if !expected() {
		x.note(t, "sleep, not", nil)
		return true
	}
	x.note(t, "sleep", nil)
	t.status, t.history = asleep, mix(t.history, 's')
	l.sleepers = append(l.sleepers, t)
	x.begin(t, "sleep", l, nil, timed)
	if t.timedOut {
		l.sleepers = slices.DeleteFunc(l.sleepers, func(s *thread) bool { return s == t })
	}
	return true
}

// Wake wakes up to n sleepers of a word.
func Wake(p any, n int) bool {
	x, t, l := enter("wake", p, nil, false)
	if x == nil {
		return unwinding()
	}
	for n > 0 && len(l.sleepers) > 0 {
		s := l.sleepers[0]
		l.sleepers = l.sleepers[1:]
		if s.status != asleep {
			continue
		}
		n--
		t.history = mix(t.history, uint64(s.id)+1)
		s.status, s.history = alive, mix(s.history, t.history)
		s.clock.join(&t.clock)
		t.clock[t.id]++
		x.note(t, "wake", s.name)
	}
	return true
}

// Park waits for a token, and takes it; false if a timeout has ended the wait.
func Park(token *bool, timed bool) (got, explored bool) {
	x, t, l := enter("park", token, func() bool { return *token }, timed)
	if x == nil {
		return false, waits()
	}
	if t.timedOut {
		x.note(t, "park, until its timeout", nil)
		return false, true
	}
	*token = false
	x.write(t, l, true)
	x.note(t, "park", nil)
	return true, true
}

// Unpark leaves a token.
func Unpark(token *bool) bool { return setToken("unpark", token, true) }

// Drop takes the token, if there is one.
func Drop(token *bool) bool { return setToken("drop the token", token, false) }

func setToken(op string, token *bool, is bool) bool {
	x, t, l := enter(op, token, nil, false)
	if x == nil {
		return unwinding()
	}
	*token = is
	x.write(t, l, true)
	x.note(t, op, nil)
	return true
}

// Yield waits until a word has changed that the thread has read since its last Yield.
func Yield() bool {
	x, t := here()
	if x == nil {
		return waits()
	}
	if t.yields++; t.yields > unfairYields {
		for _, o := range x.threads {
			if o != t && x.can(o) {
				t.owes |= 1 << o.id
			}
		}
	}
	if len(t.seen) > 0 { // otherwise it may have run for the first time, or has written only
		x.begin(t, "a loop that polls", nil, func() bool { return x.hasNews(t) }, false)
	}
	t.owes = 0
	t.history = mix(t.history, 'y')
	clear(t.seen)
	return true
}

// unfairYields is how often a thread may poll. After that, each thread that can go on takes a step before it polls
// again. Otherwise two threads that poll could keep each other busy, and keep a third one from going on.
const unfairYields = 4

// hasNews reports whether a thread that polls can go on.
func (x *Run) hasNews(t *thread) bool {
	for _, o := range x.threads {
		if t.owes&(1<<o.id) != 0 && x.can(o) { // no two owe each other: the one that polled last has taken a step since
			return false
		}
	}
	for l, was := range t.seen {
		if l.writer != was {
			return true
		}
	}
	return false
}

// Point lets other threads go on.
func Point(op string) {
	if x, t := here(); x != nil {
		x.begin(t, op, nil, nil, false)
		t.history = mix(t.history, 'p')
	}
}

// Start starts a thread for the caller.
func Start(name string, f func()) bool {
	x, _ := here()
	if x == nil {
		return false
	}
	x.start(name, f)
	return true
}
