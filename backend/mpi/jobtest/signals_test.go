//go:build cgo && linux

package jobtest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"golang.org/x/sys/unix"
)

// backtraces makes UCX handle the signals of faults, as users do who look for one. The backend does
// not change these values.
var backtraces = []string{"UCX_HANDLE_ERRORS=bt", "UCX_DEBUG_SIGNO=SIGHUP"}

// underAll runs a test's program under each library, by default and with UCX's handlers, and checks
// the outcome.
func underAll(t *testing.T, n int, name string, check func(t *testing.T, e ended)) {
	t.Helper()
	for _, library := range inTurn(t) {
		for how, env := range map[string][]string{"": nil, "/backtraces": backtraces} {
			t.Run(library+how, func(t *testing.T) { check(t, start(t, library, n, name, env...)) })
		}
	}
}

func dereferenced() (err error) {
	defer func() {
		if r, ok := recover().(runtime.Error); ok {
			err = r
		}
	}()
	var p *int
	*p = 1
	return nil
}

// TestFaultsInGoArePanics checks that faults in Go code are panics that can be recovered: on the
// thread of Init and on many others, some of them started before it.
func TestFaultsInGoArePanics(t *testing.T) {
	program("faults", func() error {
		const threads = 8
		var before, after sync.WaitGroup
		joined := make(chan struct{})
		errs := make(chan error, 4*threads)
		fault := func() {
			if err := dereferenced(); err == nil || !strings.Contains(err.Error(), "nil pointer") {
				errs <- fmt.Errorf("a nil dereference gave %v", err)
			}
		}
		for range threads {
			before.Add(1)
			after.Go(func() {
				runtime.LockOSThread() // one thread each
				before.Done()
				<-joined
				fault()
			})
		}
		before.Wait()
		err := with(func(w *cohort.Comm) error {
			close(joined)
			for range threads {
				after.Go(func() { runtime.LockOSThread(); fault() })
			}
			fault()
			after.Wait()
			fault()
			var zero atomic.Int64
			func() {
				defer func() {
					if recover() == nil {
						errs <- errors.New("a division by zero is no panic")
					}
				}()
				say("%d", 1/zero.Load())
			}()
			debug.SetPanicOnFault(true)
			return traffic(w, 10)
		})
		fault()
		close(errs)
		for e := range errs {
			err = errors.Join(err, e)
		}
		return err
	})
	underAll(t, 2, "faults", func(t *testing.T, e ended) { e.must(t) })
}

// TestUncaughtPanicPrintsGoTraces checks that a panic that is not recovered ends the program with
// Go's traces, not a library's.
func TestUncaughtPanicPrintsGoTraces(t *testing.T) {
	skipShort(t, "signals that end the program")
	rank("uncaught", func(w *cohort.Comm) error {
		if w.Rank() == 0 {
			go func() {
				var p *int
				*p = 1
			}()
		}
		if w.Rank() != 0 {
			return w.Barrier() // rank 0 does not come
		}
		select {}
	})
	underAll(t, 2, "uncaught", func(t *testing.T, e ended) {
		e.failed(t, "panic: runtime error: invalid memory address or nil pointer dereference", "signals_test.go:")
		e.hasNot(t, "Caught signal 11", "backtrace (tid")
	})
}

// TestNotifiedSignalsArrive checks that signals reach a program that asks for them.
func TestNotifiedSignalsArrive(t *testing.T) {
	skipShort(t, "signal.Notify beside the library")
	rank("notified", func(w *cohort.Comm) error {
		for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP, syscall.SIGUSR2, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD} {
			c := make(chan os.Signal, 1)
			signal.Notify(c, s)
			must.OK(syscall.Kill(os.Getpid(), s))
			if got := <-c; got != s {
				return fmt.Errorf("got %v, want %v", got, s)
			}
			signal.Stop(c)
		}
		// If the program does not ask for them, Go ignores these, whichever thread
		// gets them, the library's included.
		threads := must.Get(os.ReadDir("/proc/self/task"))
		for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCHLD, syscall.SIGWINCH} {
			must.OK(syscall.Kill(os.Getpid(), s))
			for _, thread := range threads {
				tid := must.Get(strconv.Atoi(thread.Name()))
				if err := unix.Tgkill(os.Getpid(), tid, s); err != nil && err != syscall.ESRCH {
					return err
				}
			}
		}
		return traffic(w, 10)
	})
	underAll(t, 2, "notified", func(t *testing.T, e ended) { e.must(t) })
}

// TestOtherSignalsEndTheProgram checks that a signal that a program does not ask for ends it.
func TestOtherSignalsEndTheProgram(t *testing.T) {
	skipShort(t, "signals of the launcher")
	rank("deadly", func(w *cohort.Comm) error {
		say("joined %d", w.Rank())
		must.OK(syscall.Kill(os.Getpid(), syscall.SIGHUP))
		select {} // the signal is not delivered at once
	})
	underAll(t, 1, "deadly", func(t *testing.T, e ended) {
		e.failed(t, "joined 0").hasNot(t, "panic", "all goroutines are asleep", "SIGSEGV")
	})
}

// spin uses the processor and never yields.
func spin(stop *atomic.Bool) (n int) {
	for !stop.Load() {
		n++
	}
	return n
}

// TestCPUProfileHasSamples checks that a CPU profile has samples of the program's functions.
func TestCPUProfileHasSamples(t *testing.T) {
	skipShort(t, "profiles of a program under MPI")
	rank("profiled", func(w *cohort.Comm) error {
		// The time that this takes depends on the machine.
		for {
			var profile bytes.Buffer
			must.OK(pprof.StartCPUProfile(&profile))
			var stop atomic.Bool
			done := make(chan int)
			go func() { done <- spin(&stop) }()
			err := traffic(w, 200)
			stop.Store(true)
			<-done
			pprof.StopCPUProfile()
			if err != nil {
				return err
			}
			z := must.Get(gzip.NewReader(&profile))
			b := must.Get(io.ReadAll(z))
			seen := 0
			if bytes.Contains(b, []byte("jobtest.spin")) {
				seen = 1
			}
			if all, err := cohort.AllreduceOne(w, seen, cohort.Min); err != nil || all == 1 {
				return err
			}
		}
	})
	underAll(t, 2, "profiled", func(t *testing.T, e ended) { e.must(t) })
}

// TestGoroutinesArePreempted checks that goroutines that never yield are stopped for the garbage
// collector, which uses SIGURG, many times during message traffic.
func TestGoroutinesArePreempted(t *testing.T) {
	skipShort(t, "preemption of goroutines under MPI")
	rank("preempted", func(w *cohort.Comm) error {
		var stop atomic.Bool
		var spinning sync.WaitGroup
		spinning.Go(func() { spin(&stop) })
		var garbage [8][]byte
		for i := range 15 {
			garbage[i%len(garbage)] = make([]byte, 1<<16)
			runtime.GC()
			must.OK(traffic(w, 1))
		}
		stop.Store(true)
		spinning.Wait()
		return nil
	})
	underAll(t, 1, "preempted", func(t *testing.T, e ended) { e.must(t) })
}
