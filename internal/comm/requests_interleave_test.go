//go:build interleave

package comm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The explorations below run requests, sets and persistent operations over a backend and operations that are
// nothing but words.

// desk is a backend whose waiters sleep until there is news.
type desk struct {
	backend.Comm
	news   word.Uint32
	broken bool
	sent   int
}

func (d *desk) Rank() int          { return 0 }
func (d *desk) Size() int          { return 1 }
func (d *desk) Caps() backend.Caps { return backend.Caps{Backend: "desk"} }
func (d *desk) OnWait(_, _ func()) {}
func (d *desk) Poll()              {}
func (d *desk) Wake()              { d.news.Add(1) }
func (d *desk) Broken() error      { return nil } // so that requests alone decide

func (d *desk) UnderWay(func(*backend.Request, bool)) {}

// Isend implements backend.Comm. The send completes at once, and its status has the number of the send twice.
func (d *desk) Isend(r *backend.Request, _ []byte, _, _ int, _ backend.Mode) {
	d.sent++
	r.FinishAtOnce(backend.Status{Source: d.sent, Bytes: d.sent}, nil)
}

// Await implements backend.Comm.
func (d *desk) Await(b *backend.Bound, p backend.Pending) error {
	for {
		news := d.news.Load()
		if p.Ready() {
			return nil
		}
		if err := b.Err(time.Time{}); err != nil {
			return err
		}
		for d.news.Load() == news {
			word.Yield()
		}
	}
}

// deadline is a context whose deadline passes when a thread says so.
type deadline struct {
	context.Context
	passed word.Bool
}

func (c *deadline) Err() error {
	if c.passed.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func (c *deadline) Done() <-chan struct{} { return closed } // there may be an end

// work is an operation that another thread completes.
type work struct {
	d        *desk
	x        *interleave.Run
	state    word.Uint32
	starts   word.Uint32
	freed    bool
	slow     bool // it is still under way after it was ended
	numbered bool // its result is the number of the start
	err      error
}

const (
	workIdle uint32 = iota
	workUnderWay
	workDone
	workEnded
	workAbandoned // ended, and under way
)

// nth is the result of a start.
type nth uint32

func (n nth) Error() string { return fmt.Sprint("start ", uint32(n)) }

func (o *work) Start() {
	if s := o.state.Swap(workUnderWay); s == workUnderWay || s == workAbandoned {
		o.x.Errorf("an operation under way is started")
	}
	o.starts.Add(1)
}

func (o *work) Ready() bool {
	if o.freed {
		o.x.Errorf("an operation is used after its release")
	}
	s := o.state.Load()
	return s != workUnderWay && s != workAbandoned
}

func (o *work) Err() error {
	word.Writing(&o.err) // so that two goroutines that ask at once are a race
	switch {
	case o.state.Load() == workEnded:
		return o.err
	case o.numbered:
		return nth(o.starts.Load())
	}
	return nil
}

func (o *work) End(why error) error {
	o.err = why
	switch {
	case o.slow && o.state.CompareAndSwap(workUnderWay, workAbandoned):
		o.d.broken = true
		return why
	case !o.slow && o.state.CompareAndSwap(workUnderWay, workEnded):
		o.d.broken = true
	}
	return nil
}

func (o *work) Release() {
	if !o.Ready() {
		o.x.Errorf("an operation under way is released")
	}
	o.freed = true
}

// complete completes the operation and wakes its waiters.
func (o *work) complete() {
	if !o.state.CompareAndSwap(workUnderWay, workDone) {
		o.state.CompareAndSwap(workAbandoned, workEnded)
	}
	o.d.Wake()
}

// explored is what the threads of a schedule share.
type explored struct {
	x     *interleave.Run
	d     *desk
	c     *Comm     // without a limit
	limit *deadline // of limited
	ops   []*work
}

var first = NewWorld(context.Background(), &desk{}, Options{}).core

func explore(t *testing.T, preemptions int, program func(e *explored)) {
	interleave.Explore(t, interleave.Config{Preemptions: preemptions}, func(x *interleave.Run) {
		d := &desk{}
		x.Name(&d.news, "news")
		program(&explored{x: x, d: d, c: &Comm{core: &core{bc: d, job: first.job, recorder: first.recorder}, ctx: context.Background()}})
	})
}

// work adds an operation.
func (e *explored) work() *work {
	o := &work{d: e.d, x: e.x}
	e.x.Name(&o.state, "operation %d", len(e.ops))
	e.ops = append(e.ops, o)
	return o
}

// request starts an operation.
func (e *explored) request(c *Comm) *Request {
	o := e.work()
	o.Start()
	q := &Request{pending: &pending{op: o, name: "test", peer: Undefined, tag: Undefined}}
	q.beginFor(c)
	q.open()
	e.x.Name(&q.word, "request %d", len(e.ops)-1)
	return q
}

// complete completes all operations.
func (e *explored) complete() {
	for _, o := range e.ops {
		o.complete()
	}
}

// limited returns a handle whose deadline passes when clock is called.
func (e *explored) limited() *Comm {
	e.limit = &deadline{Context: context.Background()}
	return &Comm{core: e.c.core, bound: &backend.Bound{Ctx: e.limit}, ctx: e.limit}
}

func (e *explored) clock() {
	e.limit.passed.Store(true)
	e.d.Wake()
}

// user is a way to end a request. It reports whether it has returned the result.
type user struct {
	waits bool // until somebody has ended it
	takes bool // its result is returned once by all of these
	use   func(q *Request) (got bool, err error)
}

var users = map[string]user{
	"Wait":     {true, false, func(q *Request) (bool, error) { _, err := q.Wait(); return true, err }},
	"WaitAny":  {true, true, func(q *Request) (bool, error) { i, _, err := newSet(q).WaitAny(); return i == 0, err }},
	"WaitSome": {true, true, func(q *Request) (bool, error) { some, err := newSet(q).WaitSome(); return len(some) == 1, err }},
	"Test":     {false, false, func(q *Request) (bool, error) { _, done, err := q.Test(); return done, err }},
	"TestSome": {false, true, func(q *Request) (bool, error) { some, err := newSet(q).TestSome(); return len(some) == 1, err }},
	"WaitAll": {true, false, func(q *Request) (bool, error) {
		if q.Succeeded() {
			return true, nil
		}
		return true, newSet(q).WaitAll()
	}},
	"Done": {false, false, func(q *Request) (bool, error) { q.Done(); return false, nil }},
}

func newSet(reqs ...*Request) *Set { return &Set{reqs: reqs} }

// Two goroutines use a request that a third one completes. All of them end, the sets return its completion
// once at most, and its record is given back.
func TestInterleaveRequestHasTwoUsers(t *testing.T) {
	for _, p := range []struct {
		a, b        string
		preemptions int
	}{
		{"Wait", "Wait", 3}, {"Wait", "WaitAny", 2}, {"Wait", "WaitSome", 2}, {"WaitAny", "WaitSome", 2}, {"WaitAny", "Test", 2},
		{"WaitSome", "TestSome", 2}, {"Wait", "Done", 2}, {"WaitAny", "Done", 2}, {"Test", "TestSome", 3},
	} {
		t.Run(p.a+" "+p.b, func(t *testing.T) {
			a, b := users[p.a], users[p.b]
			explore(t, p.preemptions, func(e *explored) {
				q := e.request(e.c)
				taken := 0
				for k, u := range []user{a, b} {
					e.x.Go(fmt.Sprint("user ", k), func() {
						got, err := u.use(q)
						if got && u.takes {
							taken++
						}
						if err != nil {
							e.x.Errorf("%v", err)
						}
					})
				}
				e.x.Go("completer", e.complete)
				e.x.Check(func() error {
					switch {
					case taken > 1:
						return errors.New("the completion was taken twice")
					case taken == 0 && a.takes && b.takes && a.waits && b.waits:
						return errors.New("nobody took the completion")
					case (a.waits || b.waits) && !e.ops[0].freed:
						return errors.New("the operation was not given back")
					}
					return nil
				})
			})
		})
	}
}

// Two goroutines use a request that was complete when it was started. It is returned afterwards, and sets return its
// completion once at most.
func TestInterleaveCompleteRequestHasTwoUsers(t *testing.T) {
	for _, p := range [][2]string{
		{"WaitAll", "WaitAll"}, {"WaitAll", "WaitAny"}, {"WaitAll", "TestSome"}, {"WaitAll", "Wait"}, {"WaitAny", "TestSome"}, {"Wait", "WaitSome"},
	} {
		t.Run(p[0]+" "+p[1], func(t *testing.T) {
			explore(t, 3, func(e *explored) {
				q := new(Request)
				e.x.Name(&q.word, "request")
				taken, takers := 0, 0
				for _, name := range p {
					u := users[name]
					if u.takes {
						takers++
					}
					e.x.Go(name, func() {
						got, err := u.use(q)
						if got && u.takes {
							taken++
						}
						if err != nil || !got && !u.takes {
							e.x.Errorf("%v, %v", got, err)
						}
					})
				}
				e.x.Check(func() error {
					switch {
					case q.phase() != phaseReturned:
						return errors.New("the completion was not returned")
					case taken > 1, taken == 0 && takers == 2:
						return fmt.Errorf("%d sets took the completion", taken)
					}
					return nil
				})
			})
		})
	}
}

// Close looks whether the program has waited for an operation that has failed, while a goroutine waits for it. The
// goroutine gets the error.
func TestInterleaveCloseLooksBesideUser(t *testing.T) {
	for name, u := range users {
		t.Run(name, func(t *testing.T) {
			explore(t, 2, func(e *explored) {
				q := e.request(e.c)
				e.ops[0].numbered = true // an error
				e.ops[0].complete()
				k := e.c.core
				k.outstanding = []outstanding{{q: q}}
				e.x.Go("closer", func() {
					if err := k.unwaited(true, time.Now()); err != nil {
						e.x.Errorf("Close: %v", err)
					}
				})
				e.x.Go("user", func() {
					if got, err := u.use(q); got && !errors.Is(err, nth(1)) || !got && u.waits {
						e.x.Errorf("%v, %v", got, err)
					}
				})
			})
		})
	}
}

// Two goroutines wait for some of two requests until none is left. Each completion is returned once.
func TestInterleaveSetsShareRequests(t *testing.T) {
	explore(t, 2, func(e *explored) {
		a, b := e.request(e.c), e.request(e.c)
		taken := [2]int{}
		for range 2 {
			e.x.Go("taker", func() {
				for {
					some, err := newSet(a, b).WaitSome()
					if err != nil {
						e.x.Errorf("%v", err)
					}
					if some == nil {
						if a.live() || b.live() {
							e.x.Errorf("WaitSome returns nothing while a completion is left")
						}
						return
					}
					for _, i := range some {
						taken[i]++
					}
				}
			})
		}
		e.x.Go("completer", e.complete)
		e.x.Check(func() error {
			if taken != [2]int{1, 1} {
				return fmt.Errorf("completions were taken %v times", taken)
			}
			return nil
		})
	})
}

// A deadline passes while an operation may complete. Either it has completed, for all who wait, or it is given
// up, for all, and its communicator is broken.
func TestInterleaveDeadlineAgainstCompletion(t *testing.T) {
	for _, p := range []struct {
		users [2]string
		slow  bool
	}{
		{[2]string{"Wait", "Wait"}, false}, {[2]string{"Wait", "WaitAny"}, true},
		{[2]string{"WaitSome", "TestSome"}, false},
	} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			explore(t, interleave.Long(2), func(e *explored) {
				q := e.request(e.limited())
				e.ops[0].slow = p.slow
				taken := 0
				for k, how := range p.users {
					e.x.Go(fmt.Sprint("user ", k), func() {
						got, err := users[how].use(q)
						if got && users[how].takes {
							taken++
						}
						if got && (err != nil) != e.d.broken {
							e.x.Errorf("the result is %v, and the communicator is broken: %v", err, e.d.broken)
						}
					})
				}
				e.x.Go("completer", e.complete)
				e.x.Go("clock", e.clock)
				e.x.Check(func() error {
					if taken > 1 {
						return errors.New("the completion was taken twice")
					}
					return nil
				})
			})
		})
	}
}
