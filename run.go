package cohort

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/generation"
)

// Run calls body on n ranks, which are goroutines of this process, and returns when all calls have
// returned. Each rank gets its own handle of a world of n ranks. Run closes the world.
//
// An error or a panic in one rank makes every pending and later operation of the others return
// [ErrPeerLost]. Run returns the errors of all ranks joined, the first failure first. A panic becomes
// an error with its stack.
//
// Run takes the settings that apply to ranks of one process from the environment.
// docs/environment.md lists them, and says when Run writes no files.
//
// Not collective: Run joins no job, and can be called any number of times.
//
// Errors: [ErrCount] for n below 1 or above 65536; [ErrInit] for a nil body or wrong settings; those of body;
// those of [Comm.Close], on ranks where body returns nil.
//
// Deadline: the operations of the world end when ctx does, as for [Init].
func Run(ctx context.Context, n int, body func(world *Comm) error) error {
	return RunWith(ctx, n, RunOptions{}, body)
}

// maxRanks is the largest number of ranks of a job, as in package frame.
const maxRanks = 1 << 16

// RunOptions change what [Run] does.
type RunOptions struct {
	// Restarts is how many ranks that fail are replaced, as by cohort run --restarts: body is
	// called again, and gets the world that the others get from [Rejoin]. RunWith does not return
	// the error of a rank that is replaced.
	Restarts int
}

// RunWith is [Run] with options.
//
// Not collective; errors: those of Run, and of ranks that were not replaced.
func RunWith(ctx context.Context, n int, o RunOptions, body func(world *Comm) error) error {
	fail := func(err error) error {
		return &OpError{Op: "run", Rank: 0, Peer: Undefined, Tag: Undefined, Err: err}
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if n < 1 || n > maxRanks {
		return fail(fault(ErrCount, fmt.Sprintf("%d ranks; want 1 to %d", n, maxRanks)))
	}
	if body == nil {
		return fail(fault(ErrInit, "the function is nil"))
	}
	// This process may be a rank of a larger job: Size 1 keeps its place in that out of the settings.
	s, err := resolve(&Config{Backend: "local", Size: 1}, osEnv)
	if err != nil {
		return fail(err)
	}
	if self.joins() || osEnv.get(envJoined) != "" { // the files are those of the job that it has joined
		s.stats, s.FlightDir = "", ""
	}
	if err := s.checkFlight(); err != nil {
		return fail(err)
	}
	file := s.stats
	s.stats = "" // no rank writes it alone
	j := &goroutines{ctx: ctx, settings: s, body: body, clients: make(map[int]*generation.Client), replaced: make(map[int]error)}
	j.machine = generation.New(generation.Config{Now: time.Now, Size: n, Min: 1, Max: n, Restarts: max(o.Restarts, 0), Host: j})
	err = j.run()
	if file != "" && len(j.worlds) > 0 {
		if failed := comm.WriteStats(file, j.worlds); failed != nil {
			err = errors.Join(err, fail(fmt.Errorf("%s: %w", flight.EnvStats, failed)))
		}
	}
	return err
}

var errGoexit = fmt.Errorf("%w: the rank's function did not return: it called runtime.Goexit, as FailNow of package testing does", ErrPeerLost)

// guard calls body and turns a panic into an error. The methods of its result do not panic.
func guard(body func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: debug.Stack()}
		}
		err = backend.Harmless(err)
	}()
	return body()
}

// panicError is a panic of a rank.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic: %v\n%s", e.value, bytes.TrimSpace(e.stack))
}

// cause returns what the other ranks learn of a rank's error: a panic without its stack.
func cause(err error) error {
	if p, ok := err.(*panicError); ok {
		if e := p.Unwrap(); e != nil {
			return fmt.Errorf("panic: %w", e)
		}
		return fmt.Errorf("panic: %v", p.value)
	}
	return err
}

// Unwrap returns the value of the panic if it is an error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// ofRank returns a rank's error with its number, unless JoinErrors or an operation on the world has named it.
func ofRank(rank int, err error) error {
	name := fmt.Sprintf("rank %d: ", rank)
	op, ok := err.(*OpError)
	if strings.HasPrefix(err.Error(), name) || ok && op.Rank == rank && op.Comm == backend.WorldName {
		return err
	}
	return fmt.Errorf("%s%w", name, err)
}

// Main runs a program's body as one rank of the job that this process was started in, and closes the
// world. It is all that a program's main function needs:
//
//	func main() { cohort.Main(body) }
//
// SIGINT and SIGTERM end ctx, which governs the world as the context of [Init] does: operations end
// with [ErrCanceled], and a body can save what its own rank has. To the other ranks this one is then
// lost. A second signal, at least half a second later, ends the process.
//
// If body returns an error or panics, Main prints the error and this rank's number to standard
// error, ends the job as [Comm.CloseWith] does, and exits with status 1. It also does so for an
// error of Init or of Close. Otherwise Main returns. A program that needs a [Config] calls Init and
// CloseWith itself. In a pod of a Kubernetes Job, the status is 75 if the rank ends because a rank
// is lost or has not joined in time, or because of a signal. So a pod failure policy can tell such
// ends from errors of the program.
//
// Collective: all processes of the job call it, once.
func Main(body func(ctx context.Context, world *Comm) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// One request to end can arrive as two signals: the system signals all processes, and the launcher
	// passes its own on.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(sameRequest, stop) })()
	world, err := Init(ctx, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // it names the rank
		os.Exit(exitStatus(ctx, err, osEnv))
	}
	err = errGoexit
	defer func() {
		if now := self.open(); now != nil { // Rejoin may have replaced it
			world = now
		}
		complain := func(err error) {
			if err != nil {
				fmt.Fprintln(os.Stderr, ofRank(world.Rank(), err))
			}
		}
		complain(err) // before the others can print what follows from it
		closed := world.base().CloseWith(cause(err))
		if complain(closed); err != nil || closed != nil {
			os.Exit(exitStatus(ctx, cmp.Or(err, closed), osEnv))
		}
	}()
	err = guard(func() error { return body(ctx, world) })
}

const sameRequest = 500 * time.Millisecond
