//go:build cgo && linux

package mpi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
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
		d, err := c.Derive([]int{0, 1, 2, 3}, 1)
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
			if err := errors.Join(reached("waiting", 4), c.(backend.Recovery).Declare(1, backend.Faultf(backend.ErrPeerLost, text)), c.Close()); err != nil {
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
		_, derives := d.Derive([]int{0, 1, 2, 3}, 2)
		if wrong := errors.Join(told("a wait", err), told("a later barrier", later), told("Derive", derives), d.Close(), c.Close()); wrong != nil {
			return wrong
		}
		for runtime.NumGoroutine() > before { // a goroutine that stays would let this rank never sign
			runtime.Gosched()
		}
		return errors.Join(sign("told"), reached("told", 3), err) // the launcher kills the others when a process ends
	})
	toldOfFailure(t, "fails", 4)
}

// TestFailedRankSparesFunctionsOfOperations checks that a rank's failure ends no function of a reduction, which the
// library calls: the thread is in Go then.
func TestFailedRankSparesFunctionsOfOperations(t *testing.T) {
	program("fails-in-operation", func() error {
		world, err := cohort.Init(background, nil)
		if err != nil {
			return err
		}
		pair, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			if err := reached("inside", 1); err != nil {
				return err
			}
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

// toldOfFailure starts a program of which one rank fails and the others sign.
func toldOfFailure(t *testing.T, program string, ranks int) {
	for _, name := range libraries {
		t.Run(name, func(t *testing.T) {
			signs := t.TempDir()
			e := start(t, name, ranks, program, signsVariable+"="+signs).failed(t)
			if told, err := filepath.Glob(filepath.Join(signs, "told.*")); err != nil || len(told) != ranks-1 {
				t.Errorf("%d ranks were told of the failure, want %d: %v\n%s", len(told), ranks-1, err, e.out)
			}
		})
	}
}
