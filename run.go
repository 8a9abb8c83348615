package cohort

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/cohort-hpc/cohort/backend/local"
)

// Run runs body as n ranks, which are goroutines of this process, and returns
// when all have returned. Each gets its own end of a world of n ranks, which is
// closed for it.
//
// An error or a panic in one rank makes every pending and later operation of the
// others return [ErrPeerLost]. Run returns the errors of all ranks joined, that
// of the rank that failed first in front; a panic is an error with its stack.
//
// The context governs the world, as for [Init]; the settings that make sense for
// ranks of one process (COHORT_TIMEOUT, COHORT_COLLECTIVES, COHORT_FLIGHT_DIR) come from the
// environment.
func Run(ctx context.Context, n int, body func(world *Comm) error) error {
	fail := func(err error) error {
		return &OpError{Op: "run", Rank: 0, Peer: Undefined, Tag: Undefined, Err: err}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if n < 1 {
		return fail(fault(ErrCount, fmt.Sprintf("%d ranks", n)))
	}
	if body == nil {
		return fail(fault(ErrInit, "the function is nil"))
	}
	// Where this process is one rank of a larger job, that place is not these
	// ranks'.
	s, err := resolve(&Config{Backend: "local", Size: 1}, osEnv)
	if err != nil {
		return fail(err)
	}
	if err := s.checkFlight(); err != nil {
		return fail(err)
	}
	var first failures
	var wg sync.WaitGroup
	for rank, bc := range local.New(n) {
		world := newWorld(ctx, bc, s)
		wg.Go(func() {
			err := fmt.Errorf("%w: the rank ended its goroutine (runtime.Goexit)", ErrPeerLost)
			defer func() {
				if err != nil {
					first.add(rank, err)
					bc.(*local.Comm).Fail(rank, err)
				}
				// An error of Close has nothing to add to what the ranks return.
				_ = world.Close()
			}()
			err = guard(world, body)
		})
	}
	wg.Wait()
	return first.join()
}

// guard calls body and makes a panic an error.
func guard(world *Comm, body func(*Comm) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
	}()
	return body(world)
}

// panicError is a panic of a rank.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// Unwrap returns the value of the panic if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// failures collects the ranks' errors in the order they come.
type failures struct {
	mu   sync.Mutex
	errs []error
}

func (f *failures) add(rank int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, fmt.Errorf("rank %d: %w", rank, err))
}

func (f *failures) join() error { return errors.Join(f.errs...) }
