package pool

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// worker is one of the pool's threads.
type worker struct {
	bed      parker
	_        [64]byte
	id       int
	pool     *Pool
	cpus     []int      // where it is pinned; empty: not pinned
	denied   error      // why it could not be pinned, or its memory policy not be set
	identity word.Int64 // of its goroutine
	seen     uint64     // epoch of the last order it has seen
	done     int64      // chunks it has run and not yet subtracted from left
	failure  *TaskError // of this loop; the caller takes it when left is 0
	woke     bool       // it has just woken the caller
	leads    bool       // it runs the function of Run, not a task
	_        [64]byte
}

// start makes the calling goroutine the worker's, and sends the result to started, which may be
// nil.
func (w *worker) start(started chan<- error) {
	runtime.LockOSThread()
	if onMainThread() {
		// The main thread must not be pinned. Block it until the worker has another thread.
		moved := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(moved)
			w.setUp(started)
		}()
		<-moved
		runtime.UnlockOSThread()
		return
	}
	w.setUp(started)
}

func (w *worker) setUp(started chan<- error) {
	w.identity.Store(int64(self()))
	nameThread(fmt.Sprintf("cohort-w%d", w.id))
	var err error
	if len(w.cpus) > 0 {
		e, memory := pin(w.cpus), localMemory()
		switch { // a container may forbid either, which is not an error
		case errors.Is(e, fs.ErrPermission):
			w.denied = fmt.Errorf("not pinned: %w", e)
		case e != nil:
			err = faultf(backend.ErrInit, "worker %d: %v", w.id, e)
		case memory != nil:
			w.denied = fmt.Errorf("memory policy not changed: %w", memory)
		}
	}
	if started != nil {
		started <- err
	}
	w.live()
}

// live carries out orders until the pool is closed. The goroutine is never unlocked, so its thread
// ends with it.
func (w *worker) live() {
	returned := false
	defer func() {
		w.identity.Store(0) // another thread may soon have the same number
		if returned {
			w.pool.ended.Done()
			return
		}
		// A task called Goexit. A new thread takes this one's place.
		w.giveBack()
		go w.start(nil)
	}()
	w.serve()
	returned = true
}

// serve carries out orders until the pool is closed.
func (w *worker) serve() {
	for w.await() {
		if w.id == 0 && w.seen&kindMask == leads {
			w.lead()
		} else {
			w.work()
		}
	}
}

// work takes chunks of the loop and runs them while any are left: first those of its own part, then
// those of others.
func (w *worker) work() {
	p, epoch := w.pool, w.seen
	mine := &p.slots[w.id]
	for {
		k, ok := mine.first(epoch)
		if !ok {
			break
		}
		w.chunk(k)
	}
	if epoch&kindMask == loopAny {
		for d := 1; d < len(p.slots); d++ {
			other := &p.slots[(w.id+d)%len(p.slots)]
			for {
				k, ok := other.last(epoch)
				if !ok {
					break
				}
				w.chunk(k)
			}
		}
	}
	w.giveBack()
}

// giveBack subtracts the chunks the worker has run from left. The worker that subtracts the last
// ones wakes the caller.
func (w *worker) giveBack() {
	n := w.done
	if n == 0 {
		return
	}
	w.done = 0
	if w.pool.left.Add(-n) == 0 {
		w.woke = w.pool.waiter.wake()
	}
}

// chunk runs the tasks of chunk k. After a failure it takes all chunks left, so that no other task
// begins.
func (w *worker) chunk(k int) {
	p := w.pool
	w.done++
	i, hi := p.span(k)
	returned := false
	defer func() {
		if v := recover(); v != nil {
			w.fail(i, &PanicError{v}, debug.Stack())
		} else if !returned {
			w.fail(i, errGoexit, debug.Stack())
		}
	}()
	run, ctx := p.run, p.ctx
	for ; i < hi; i++ {
		if ctx != nil && ctx.Err() != nil {
			p.stop.CompareAndSwap(0, canceled)
		}
		if p.stop.Load() != 0 {
			p.skipped.Store(true)
			w.done += p.drain(w.seen)
			break
		}
		if err := run(w.id, i); err != nil {
			w.fail(i, err, nil)
			break
		}
	}
	returned = true
}

func (w *worker) fail(i int, err error, stack []byte) {
	p := w.pool
	if w.seen&kindMask == loopEach {
		i = -1
	}
	w.failure = &TaskError{Index: i, Worker: w.id, Err: err, Stack: stack}
	p.stop.Store(failed)
	w.done += p.drain(w.seen)
}
