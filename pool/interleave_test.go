//go:build interleave

package pool

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

// explored is a pool whose workers are threads of the explorer, and counts of its tasks. Nobody waits without an end:
// the explorer reports that.
type explored struct {
	*Pool
	x    *interleave.Run
	runs []byte // of each task; written by its worker, read by the caller when the loop has returned
	bad  int    // the task that fails, or -1
}

func explore(t *testing.T, workers, preemptions int, calls func(p *explored)) {
	interleave.Explore(t, interleave.Config{Preemptions: preemptions}, func(x *interleave.Run) {
		p := &Pool{slots: make([]slot, workers), led: word.NewParker()}
		p.over = p.isOver
		x.Name(&p.epoch, "epoch")
		x.Name(&p.left, "left")
		x.Name(&p.asleep, "asleep")
		for id := range workers {
			w := &worker{id: id, pool: p}
			p.workers = append(p.workers, w)
			x.Name(&p.slots[id].word, "slot of worker %d", id)
			x.Name(&w.bed.word, "bed of worker %d", id)
			x.Go(fmt.Sprintf("worker %d", id), w.serve)
		}
		x.Name(&p.waiter.word, "bed of the caller")
		x.Go("caller", func() {
			calls(&explored{Pool: p, x: x, bad: -1})
			p.dismiss()
		})
	})
}

var errBad = errors.New("bad")

func (p *explored) task(worker, i int) error {
	word.Writes(p.runs[i : i+1])
	p.runs[i]++
	if i == p.bad {
		return errBad
	}
	return nil
}

// loop runs a loop by spread or by team, and checks that each task has run once, or, after a failure or at the end
// of the context, at most once, and that the error says so.
func (p *explored) loop(ctx context.Context, n int, kind uint64, run func(ctx context.Context, n int, f task, kind uint64) error) {
	p.runs = make([]byte, n)
	f := p.task
	if kind == loopEach {
		f = func(worker, _ int) error { return p.task(worker, worker) }
	}
	err := run(ctx, n, f, kind)
	word.Reads(p.runs)
	ran := 0
	for i, times := range p.runs {
		if times > 1 {
			p.x.Errorf("task %d ran %d times", i, times)
		}
		ran += int(times)
	}
	var failed *TaskError
	switch {
	case err == nil:
		if ran < n || p.bad >= 0 && p.bad < n {
			p.x.Errorf("no error after %d of %d tasks", ran, n)
		}
	case errors.As(err, &failed):
		if want := p.bad; kind == loopEach && failed.Index != -1 || kind == loopAny && failed.Index != want || want < 0 || p.runs[want] != 1 {
			p.x.Errorf("%v, where task %d is bad", err, p.bad)
		}
	case !errors.Is(err, backend.ErrCanceled) || ctx.Err() == nil || ran == n:
		p.x.Errorf("%v after %d of %d tasks", err, ran, n)
	}
}

func (p *explored) forEach(n int) { p.loop(context.Background(), n, loopAny, p.spread) }
func (p *explored) onEach()       { p.loop(context.Background(), len(p.workers), loopEach, p.spread) }
func (p *explored) run(f func())  { _ = p.pass(func() error { f(); return nil }) }
func (p *explored) team(n int)    { p.loop(context.Background(), n, loopAny, p.workers[0].team) }
func (p *explored) teamOnEach() {
	p.loop(context.Background(), len(p.workers), loopEach, p.workers[0].team)
}
func (p *explored) until(c *ending) { p.loop(c, 2, loopAny, p.spread) }
func (p *explored) failing(bad int) { p.bad = bad }

// ending is a context that ends when a thread says so.
type ending struct{ over word.Bool }

func (c *ending) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *ending) Done() <-chan struct{}       { return make(chan struct{}) }
func (c *ending) Value(any) any               { return nil }
func (c *ending) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

func TestInterleaveLoops(t *testing.T) {
	explore(t, 2, 2, func(p *explored) { p.forEach(2) })
	explore(t, 2, 2, func(p *explored) { p.onEach() })
	explore(t, 2, 1, func(p *explored) { p.forEach(3); p.onEach() })
	explore(t, 3, -1, func(p *explored) { p.forEach(3); p.onEach() })
}

// A worker that is late for a loop does not take the function of Run before Run's order.
func TestInterleaveRun(t *testing.T) {
	explore(t, 2, 2, func(p *explored) { p.run(p.teamOnEach) })
	explore(t, 2, 1, func(p *explored) { p.forEach(1); p.run(p.teamOnEach) })
	explore(t, 2, 1, func(p *explored) { p.run(func() { p.team(2) }); p.run(p.teamOnEach); p.forEach(1) })
}

func TestInterleaveFailures(t *testing.T) {
	explore(t, 2, 1, func(p *explored) { p.failing(0); p.forEach(3); p.failing(-1); p.forEach(2) })
	explore(t, 2, 1, func(p *explored) { p.failing(1); p.onEach(); p.failing(-1); p.run(func() { p.team(2) }) })
	explore(t, 2, 1, func(p *explored) {
		c := new(ending)
		p.x.Go("end of the context", func() { c.over.Store(true) })
		p.until(c)
	})
}
