//go:build cgo && linux

package jobtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// TestFailedRankEndsOperations checks that a rank which fails ends what the others wait for: in blocking calls of the
// library, and here. They learn its error, and all ranks end.
func TestFailedRankEndsOperations(t *testing.T) {
	const text = "rank 1 failed: open input.csv: no such file"
	program("fails", func() error {
		before := runtime.NumGoroutine()
		c, err := mpi.Open(background, mpi.Config{})
		if err != nil {
			return err
		}
		c.OnWait(func() {}, func() {})
		d, err := c.Derive(nil, []int{0, 1, 2, 3}, 1)
		if err != nil {
			return err
		}
		barrier := &backend.Call{Coll: backend.Barrier}
		told := func(what string, err error) error {
			if !errors.Is(err, backend.ErrPeerLost) || !strings.HasSuffix(err.Error(), text) {
				return fmt.Errorf("rank %d, %s: got %v, want ErrPeerLost: %s", c.Rank(), what, err, text)
			}
			return nil
		}
		begin := func() { err = errors.Join(err, sign("waiting")) }
		switch begin(); c.Rank() {
		case 0:
			_, err = c.(backend.Collectives).Collective(nil, barrier)
		case 1:
			if err := errors.Join(reached("waiting", 4), c.Declare(1, backend.Faultf(backend.ErrPeerLost, text)), c.Close()); err != nil {
				return err
			}
			return errors.Join(reached("told", 3), errors.New("this rank has failed"))
		case 2:
			_, err = d.Recv(nil, make([]byte, 8), backend.AnySource, 5)
		case 3:
			r := new(backend.Request)
			r.Begin()
			d.Irecv(r, make([]byte, 8), 1, 5)
			if err = d.Await(nil, r); err == nil {
				err = r.Err
			}
		}
		_, later := d.(backend.Collectives).Collective(nil, barrier)
		_, derives := d.Derive(nil, []int{0, 1, 2, 3}, 2)
		if wrong := errors.Join(told("a wait", err), told("a later barrier", later), told("Derive", derives), d.Close(), c.Close()); wrong != nil {
			return wrong
		}
		for runtime.NumGoroutine() > before { // a goroutine that stays would let this rank never sign
			runtime.Gosched()
		}
		return errors.Join(sign("told"), reached("told", 3), err) // the launcher kills the others when a process ends
	})
	for _, name := range libraries {
		t.Run(name, func(t *testing.T) { toldOfFailureIn(t, name, "fails", 4) })
	}
}

// TestFailedRankSparesFunctionsOfOperations checks that a rank's failure ends no function of a reduction, which the
// library calls: the thread is in Go then.
func TestFailedRankSparesFunctionsOfOperations(t *testing.T) {
	joins("fails-in-operation", func(world *cohort.Comm) error {
		pair, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			must.OK(reached("inside", 1))
			return errors.Join(world.CloseWith(errors.New("this rank has failed")), reached("told", 2))
		}
		slow := cohort.NewOp(true, func(in, inout []int64) {
			err = os.WriteFile(filepath.Join(os.Getenv(signsVariable), "inside.0"), nil, 0o600)
			for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; { // asks the clock, which is a library of its own
			}
		})
		sum := []int64{1}
		if e := cohort.Allreduce(pair, sum, sum, slow); err != nil || e != nil && !errors.Is(e, cohort.ErrPeerLost) {
			return fmt.Errorf("Allreduce: got %v, want ErrPeerLost or nil; %w", e, err)
		}
		return errors.Join(sign("told"), reached("told", 2), errors.New("a rank has failed"))
	})
	toldOfFailure(t, "fails-in-operation", 3)
}

// TestCheckFindsRankThatHasLeft checks that with Config.Check a rank which closes the world, while the others are in a
// collective, ends it with an error.
func TestCheckFindsRankThatHasLeft(t *testing.T) {
	program("leaves-early", func() error {
		world, err := cohort.Init(background, &cohort.Config{Check: true})
		if err != nil {
			return err
		}
		dup, err := world.Dup()
		if err != nil || world.Rank() == 0 {
			return errors.Join(err, world.Close(), errors.New("the others end first, by an error"))
		}
		sum := []float64{1}
		err = cohort.Allreduce(dup, sum, sum, cohort.Sum)
		if !errors.Is(err, cohort.ErrPeerLost) || !strings.Contains(err.Error(), "rank 0 has closed its communicator") {
			return fmt.Errorf("Allreduce: got %v, want ErrPeerLost: rank 0 has closed its communicator", err)
		}
		return errors.Join(sign("told"), reached("told", 2), err)
	})
	toldOfFailure(t, "leaves-early", 3)
}

// spinTool is a tool that computes for a second or two when a receive with tag 77 begins, or a blocking one with tag 78.
// Signals queue during the second, as on a machine where the thread does not get a processor.
const spinTool = `
#include <mpi.h>
#include <signal.h>
#include <time.h>
static void spin(int tag) { for (time_t end = time(0) + 2; tag == 77 && time(0) < end;); }
static void queue(int tag) {
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMAX);
	if (tag != 78) return;
	pthread_sigmask(SIG_BLOCK, &s, 0);
	spin(77);
	pthread_sigmask(SIG_UNBLOCK, &s, 0);
}
int MPI_Recv(void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Status *s) { queue(tag); return PMPI_Recv(b, n, t, r, tag, c, s); }
int MPI_Mprobe(int r, int tag, MPI_Comm c, MPI_Message *m, MPI_Status *s) { queue(tag); return PMPI_Mprobe(r, tag, c, m, s); }
int MPI_Irecv(void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q) { spin(tag); return PMPI_Irecv(b, n, t, r, tag, c, q); }
int MPI_Improbe(int r, int tag, MPI_Comm c, int *f, MPI_Message *m, MPI_Status *s) { spin(tag); return PMPI_Improbe(r, tag, c, f, m, s); }
`

// TestFailedRankEndsLateCalls checks that a receive in the library ends also if a rank is stopped for longer than the
// failed rank lets the others save what they have, if it learns of the failure after the failed rank has closed, if its
// thread does not handle signals for a while, if it begins another receive while the thread is taken out, and if it waits
// in Close.
func TestFailedRankEndsLateCalls(t *testing.T) {
	nothing := func(*cohort.Comm) error { return cohort.ErrPeerLost }
	enters := map[string]string{"begins-late": "cohort.Irecv[...]", "closes": "(*Comm).Close"} // where the rank is when the other fails
	for name, meanwhile := range map[string]func(w *cohort.Comm) error{
		"stopped": nothing, "learns-late": nothing, "ends-late": nothing,
		"begins-late": func(w *cohort.Comm) error {
			r, err := cohort.Irecv(w, make([]byte, 8), 0, 77) // spinTool delays it
			if err == nil {
				_, err = r.Wait()
			}
			return err
		},
		"closes": func(w *cohort.Comm) error {
			return cmp.Or(w.Close(), error(cohort.ErrPeerLost))
		},
	} {
		joins(name, func(w *cohort.Comm) (err error) {
			if w.Rank() == 0 {
				pid, err := []int64{0}, reached("waiting", 1)
				if _, e := cohort.Recv(w, pid, 1, 2); err != nil || e != nil {
					return errors.Join(err, e)
				}
				resume := func() error { return syscall.Kill(int(pid[0]), syscall.SIGCONT) }
				switch name {
				case "stopped":
					err = syscall.Kill(int(pid[0]), syscall.SIGSTOP)
					time.AfterFunc(time.Second, func() { resume() })
					return errors.Join(err, w.CloseWith(errors.New("this rank has failed")), errors.New("the launcher kills the other"))
				case "learns-late":
					err = syscall.Kill(int(pid[0]), syscall.SIGSTOP)
				}
				return errors.Join(err, w.CloseWith(errors.New("this rank has failed")), resume(), reached("told", 1))
			}
			if err := cohort.Send(w, []int64{int64(os.Getpid())}, 0, 2); err != nil {
				return err
			}
			ended := make(chan error, 1)
			tag := 1
			if name == "ends-late" {
				tag = 78
			}
			go func() {
				_, err := cohort.Recv(w, make([]byte, 8), 0, tag)
				ended <- err
			}()
			inside.Wait("cohort.Recv[...]")
			go func() {
				if in := enters[name]; in != "" {
					inside.Wait(in)
				}
				_ = sign("waiting")
			}()
			if err := meanwhile(w); !errors.Is(err, cohort.ErrPeerLost) {
				return fmt.Errorf("got %v, want ErrPeerLost", err)
			}
			if err := <-ended; err == nil {
				return errors.New("the receive in the library has no error")
			}
			return errors.Join(sign("told"), errors.New("a rank has failed"))
		})
	}
	rows := []string{"stopped", "begins-late", "learns-late", "ends-late", "closes"}
	if testing.Short() {
		rows = rows[:2]
	}
	matrix(t, rows, func(t *testing.T, library, name string) {
		toldOfFailureIn(t, library, name, 2, spinTool)
	})
}

// leavesTool is a tool that sends the messages with which 40 ranks leave the job, before each that says why a rank fails.
const leavesTool = `
#define _GNU_SOURCE
#include <mpi.h>
#include <string.h>
int MPI_Isend(const void *b, int n, MPI_Datatype t, int r, int tag, MPI_Comm c, MPI_Request *q) {
	if (memmem(b, n, "this rank has failed", 20))
		for (int i = 0; i < 40; i++) PMPI_Send(0, 0, t, r, tag, c);
	return PMPI_Isend(b, n, t, r, tag, c, q);
}
`

// TestFailedRankIsHeardAfterManyHaveLeft checks that a rank does not learn of a failure later because many ranks have
// left the job before.
func TestFailedRankIsHeardAfterManyHaveLeft(t *testing.T) {
	program("fails-last", func() error {
		c, err := mpi.Open(background, mpi.Config{})
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			err := errors.Join(c.Declare(1, errors.New("this rank has failed")), sign("failed"), c.Close())
			return errors.Join(err, reached("told", 1), errors.New("this rank has failed"))
		}
		var looks atomic.Int32
		c.OnWait(func() {}, func() {
			if err == nil { // before the first look for messages of ranks
				err = cmp.Or(reached("failed", 1), errors.New("a rank has failed"))
			}
			looks.Add(1)
		})
		if _, err := c.Recv(nil, make([]byte, 8), 1, 5); !errors.Is(err, backend.ErrPeerLost) || looks.Load() > 20 {
			return fmt.Errorf("Recv: got %v after %d looks, want ErrPeerLost after a few", err, looks.Load())
		}
		return errors.Join(sign("told"), c.Close(), err)
	})
	if testing.Short() {
		toldOfFailureIn(t, "mpich", "fails-last", 2, leavesTool)
		return
	}
	toldOfFailure(t, "fails-last", 2, leavesTool)
}

// TestTimeoutAfterRankHasLeft checks that a collective ends by its timeout if a rank has left the job.
func TestTimeoutAfterRankHasLeft(t *testing.T) {
	program("times-out", func() error {
		w, err := cohort.Init(background, &cohort.Config{Timeout: 300 * time.Millisecond})
		if err != nil || w.Rank() == 0 {
			return errors.Join(err, w.Close(), errors.New("the other ends first, by an error"))
		}
		if err = w.Barrier(); !errors.Is(err, cohort.ErrTimeout) && !errors.Is(err, cohort.ErrPeerLost) {
			return fmt.Errorf("Barrier: got %v, want ErrTimeout or ErrPeerLost", err)
		}
		return errors.Join(sign("told"), err)
	})
	toldOfFailure(t, "times-out", 2)
}

// openMPI is held by the test whose job runs under Open MPI's launcher. Launchers share a folder, which one may remove while
// another starts.
var openMPI sync.Mutex

// toldOfFailure starts a program of which one rank fails and the others sign, with tools in C if there are any.
func toldOfFailure(t *testing.T, program string, ranks int, tools ...string) {
	inLibraries(t, func(t *testing.T, name string) { toldOfFailureIn(t, name, program, ranks, tools...) })
}

// toldOfFailureIn does so with one library.
func toldOfFailureIn(t *testing.T, name, program string, ranks int, tools ...string) {
	t.Parallel() // these jobs wait
	if name == "openmpi" {
		openMPI.Lock()
		defer openMPI.Unlock()
	}
	signs := t.TempDir()
	env := []string{signsVariable + "=" + signs}
	for _, tool := range tools {
		launcher(t, name)
		env = append(env, "LD_PRELOAD="+compiledTool(t, name, tool))
	}
	e := start(t, name, ranks, program, env...).failed(t)
	if told, err := filepath.Glob(filepath.Join(signs, "told.*")); err != nil || len(told) != ranks-1 {
		t.Errorf("%d ranks were told of the failure, want %d: %v\n%s", len(told), ranks-1, err, e.out)
	}
}
