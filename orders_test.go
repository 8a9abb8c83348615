package cohort

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// orders are those of the steps of a job of a few goroutines, which all stand still between two steps. The first step by name
// comes next, unless the order deviates. An event is something that a test does to the job, at any point.
type orders struct {
	deviations, events int    // of an order, at most
	only               string // how the names of the events end; empty: all events

	path []choice // of this order; at its start, what to repeat
}

// choice is a point at which several steps and events were possible.
type choice struct{ n, taken int }

// next prepares the next order. It returns false if there is none.
func (o *orders) next() bool {
	for n := len(o.path); n > 0; n = len(o.path) {
		if c := &o.path[n-1]; c.taken < c.n-1 {
			c.taken++
			return true
		}
		o.path = o.path[:n-1]
	}
	return false
}

// order is one order of the steps of a job.
type order struct {
	*orders
	at    int
	trace []string
	quiet func() // called when time has passed, because nothing else could happen

	mu    sync.Mutex // guards steps
	steps map[string]chan bool
}

// step waits for the turn of a goroutine. It returns false if the context ends before.
func (o *order) step(ctx context.Context, name string) bool {
	turn := make(chan bool)
	o.mu.Lock()
	o.steps[name] = turn
	o.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.steps, name)
		return false
	}
}

// choose returns one of n possibilities.
func (o *order) choose(n int) int {
	if o.at == len(o.path) {
		o.path = append(o.path, choice{n, 0})
	}
	taken := o.path[o.at].taken
	o.at++
	return min(taken, n-1)
}

// event is something that happens to the job once.
type event struct {
	name string
	do   func()
}

// run lets steps and events happen until done. It returns an error if nothing more happens before that.
func (o *order) run(events []event, done func() bool) error {
	deviations, left := o.deviations, o.events
	if events == nil {
		deviations, left = 0, 0
	}
	events = slices.DeleteFunc(events, func(e event) bool { return !strings.HasSuffix(e.name, o.only) })
	for quiet := 0; ; {
		synctest.Wait()
		if done() {
			return nil
		}
		o.mu.Lock()
		var names []string
		for name := range o.steps {
			names = append(names, name)
		}
		slices.Sort(names)
		o.mu.Unlock()
		if len(names) == 0 {
			if quiet++; quiet > 200 {
				return errors.New("a rank waits without end")
			}
			time.Sleep(200 * time.Millisecond) // on purpose: the bubble's clock, which moves to the next deadline
			o.quiet()
			continue
		}
		quiet = 0
		own := names
		if deviations == 0 {
			own = names[:1]
		}
		n := len(own)
		if left > 0 {
			n += len(events)
		}
		i := o.choose(n)
		if i >= len(own) {
			e := events[i-len(own)]
			events = slices.Delete(events, i-len(own), i-len(own)+1)
			left--
			o.trace = append(o.trace, e.name)
			e.do()
			continue
		}
		if i > 0 {
			deviations--
		}
		o.trace = append(o.trace, own[i])
		o.mu.Lock()
		turn := o.steps[own[i]]
		delete(o.steps, own[i])
		o.mu.Unlock()
		turn <- true
	}
}

// explore runs a job in every order within some bounds. With -short only the first two count, and with the race detector one.
func explore(t *testing.T, bounds []orders, job func(t *testing.T, o *orders)) {
	switch {
	case racing:
		bounds = bounds[:1]
	case testing.Short():
		bounds = bounds[:2]
	}
	for _, o := range bounds {
		n, begun := 0, time.Now()
		for more := true; more && !t.Failed(); more = o.next() {
			n++
			synctest.Test(t, func(t *testing.T) { job(t, &o) })
		}
		t.Logf("%d orders with %d deviations and %d events (%s), %v", n, o.deviations, o.events, cmp.Or(o.only, "all"), time.Since(begun).Round(time.Millisecond))
	}
}
