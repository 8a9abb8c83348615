package tasks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/values"
)

// perWorker is how many tasks rank 0 keeps for each worker at most: the one under way, and results that
// wait for an earlier result or for the body of the loop.
const perWorker = 4

// task is a task that rank 0 has taken from the sequence.
type task struct {
	index int
	body  []byte // encoded
	err   error  // why the task cannot be encoded; with index below 0, why the sequence has ended
}

// result is what has become of a task.
type result struct {
	index int
	body  []byte // encoded
	rank  int    // that ran the task
	err   error
	stack []byte // of a panic
}

// leader hands out the tasks. Only its goroutine uses the fields up to stopped.
type leader struct {
	c       *cohort.Comm
	first   *cohort.Group // of the communicator at the start
	members []int         // their ranks in first, by rank of c
	running map[int]*task // by rank in first
	left    map[int]bool  // by rank in first: the worker has said goodbye
	again   []*task       // of lost ranks
	stopped bool          // stop was sent to the workers

	in      *inbox
	fresh   chan *task    // from the sequence; closed at its end
	credits chan struct{} // one for each task that may be taken from the sequence
	results chan result   // has room for as many results as there are credits
}

// errStopped ends the leader when the body of the loop has left the loop.
var errStopped = errors.New("the loop has ended")

// lead runs the loop on rank 0.
func lead[In, Out any](ctx context.Context, c *cohort.Comm, tasks iter.Seq[In], ordered bool, yield func(Out, error) bool) error {
	window := perWorker * (c.Size() - 1)
	l := &leader{c: c, first: c.Group(), running: map[int]*task{}, left: map[int]bool{}, in: newInbox(),
		fresh: make(chan *task), credits: make(chan struct{}, window), results: make(chan result, window)}
	for range window {
		l.credits <- struct{}{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go take(l, tasks)
	go func() {
		defer close(l.results)
		ended <- l.run(ctx)
	}()
	defer func() { // also if the body panics
		cancel(errStopped)
		for range l.results {
		}
	}()

	early := map[int]result{} // results of tasks after next
	next := 0
	for r := range l.results {
		early[r.index] = r
		if !ordered {
			next = r.index
		}
		for {
			r, ok := early[next]
			if !ok {
				break
			}
			delete(early, next)
			next++
			var out Out
			err := r.err
			if err == nil {
				out, err = values.Decode[Out](r.body, r.rank)
			}
			if err != nil {
				err = &Error{Index: r.index, Rank: r.rank, Err: err, Stack: r.stack}
			}
			if !yield(out, err) {
				return nil
			}
			l.credits <- struct{}{}
		}
	}
	return <-ended
}

// take takes tasks from the sequence as there are credits for them.
func take[In any](l *leader, tasks iter.Seq[In]) {
	give := func(t *task) bool {
		select {
		case l.fresh <- t:
			return true
		case <-l.in.closed:
			return false
		}
	}
	bad := errors.New("tasks: the sequence of tasks ended its goroutine") // by runtime.Goexit
	defer func() {
		if p := recover(); p != nil {
			bad = panickedSequence(p)
		}
		if bad != nil {
			give(&task{index: -1, err: bad})
		}
		close(l.fresh)
	}()
	if tasks == nil {
		bad = errNoTasks
		return
	}
	i := 0
	for in := range tasks {
		select {
		case <-l.credits:
		case <-l.in.closed:
			return
		}
		body, err := values.Encode(in)
		if !give(&task{i, body, err}) {
			return
		}
		i++
	}
	bad = nil
}

func panickedSequence(p any) error {
	return fmt.Errorf("tasks: the sequence of tasks has panicked: %v\n\n%s", p, debug.Stack())
}

// run hands out tasks until all are done or ctx has ended. Then it stops the workers.
func (l *leader) run(ctx context.Context) (err error) {
	defer func() {
		close(l.in.closed)
		l.c.Close()
	}()
	l.join()
	canceled, fresh := ctx.Done(), l.fresh
	for {
		worker := l.idle()
		switch {
		case l.stopped && len(l.left) == len(l.members)-1:
			return err
		case l.stopped:
		case worker > 0 && len(l.again) > 0:
			t := l.again[0]
			l.again = l.again[1:]
			if e := l.start(worker, t); e != nil {
				return e
			}
			continue
		case fresh == nil && len(l.running) == 0:
			if e := l.stop(); e != nil {
				return e
			}
			continue
		}
		ready := fresh
		if worker == 0 || l.stopped {
			ready = nil
		}
		var e error
		select {
		case t, ok := <-ready:
			switch {
			case !ok:
				fresh = nil
			case t.index < 0:
				err, fresh = t.err, nil
				e = l.stop()
			case t.err != nil:
				l.results <- result{index: t.index, err: t.err}
			default:
				e = l.start(worker, t)
			}
		case m := <-l.in.messages:
			e = l.receive(m)
		case <-canceled:
			canceled, err = nil, context.Cause(ctx)
			e = l.stop()
		}
		if e != nil {
			return e
		}
	}
}

// join begins to receive from the workers on c.
func (l *leader) join() {
	l.members, _ = l.c.Group().TranslateRanks(upTo(l.c.Size()), l.first)
	here := l.c.Size() - 1
	go l.in.listen(l.c, cohort.AnySource, func(k kind) bool {
		if k == goodbye {
			here--
		}
		return here == 0
	})
}

func upTo(n int) (ranks []int) {
	for r := range n {
		ranks = append(ranks, r)
	}
	return ranks
}

// idle returns a rank of c without a task, or 0.
func (l *leader) idle() int {
	return max(0, slices.IndexFunc(l.members, func(w int) bool { return w != 0 && l.running[w] == nil }))
}

// start gives a worker a task.
func (l *leader) start(worker int, t *task) error {
	l.running[l.members[worker]] = t
	return l.renew(send(l.c, worker, runTask, t.index, t.body))
}

// stop tells the workers to stop.
func (l *leader) stop() error {
	if l.stopped {
		return nil
	}
	l.stopped = true
	for r := 1; r < l.c.Size(); r++ {
		if err := send(l.c, r, stopWork, 0, nil); err != nil {
			return l.renew(err)
		}
	}
	return nil
}

// receive acts on a message of a worker.
func (l *leader) receive(m message) error {
	switch {
	case m.on != l.c: // which has lost a rank
		return nil
	case m.err != nil:
		return l.renew(m.err)
	}
	worker := l.members[m.from]
	if m.kind == goodbye {
		l.left[worker] = true
		return nil
	}
	if t := l.running[worker]; t == nil || t.index != m.index { // a second answer, because of a loss
		return nil
	}
	delete(l.running, worker)
	r := result{index: m.index, body: m.body, rank: worker}
	if m.kind == failed {
		var f failure
		if f, r.err = values.Decode[failure](m.body, worker); r.err == nil {
			r.err, r.stack = errors.New(f.Text), f.Stack
		}
	}
	l.results <- r
	return nil
}

// renew continues with the other ranks after a loss. Each gets its task once more, because the message
// with the task or its answer may be lost.
func (l *leader) renew(cause error) error {
	if cause == nil {
		return nil
	}
	c, err := shrink(l.c, cause)
	if err != nil {
		return err
	}
	l.c = c
	l.join()
	for worker, t := range l.running {
		if !slices.Contains(l.members, worker) {
			l.again = append(l.again, t)
			delete(l.running, worker)
		}
	}
	for worker := range l.left {
		if !slices.Contains(l.members, worker) {
			delete(l.left, worker)
		}
	}
	if len(l.members) == 1 && !l.stopped {
		return lost(cause)
	}
	for r := 1; r < len(l.members); r++ {
		if t := l.running[l.members[r]]; t != nil {
			err = send(c, r, runTask, t.index, t.body)
		}
		if err == nil && l.stopped {
			err = send(c, r, stopWork, 0, nil)
		}
		if err != nil {
			return l.renew(err)
		}
	}
	return nil
}
