//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

// TestGoroutinesMakeCommunicatorsAtOnce checks that two goroutines of each rank, on communicators of their own, make and
// close communicators and windows without waiting for each other's ranks, at any thread level that lets both call. With
// "leaves" a rank closes the world meanwhile. The others end with an error.
func TestGoroutinesMakeCommunicatorsAtOnce(t *testing.T) {
	// some makes random calls, which are the same on all ranks.
	some := func(base *cohort.Comm, rnd *rand.Rand, calls int) error {
		open := []*cohort.Comm{base}
		for range calls {
			last := open[len(open)-1]
			switch rnd.IntN(6) {
			case 0, 1:
				d, err := open[rnd.IntN(len(open))].Dup()
				if err != nil {
					return err
				}
				open = append(open, d)
			case 2:
				if len(open) > 1 {
					if err := last.Close(); err != nil {
						return err
					}
					open = open[:len(open)-1]
				}
			case 3:
				ctx, cancel := context.WithTimeout(background, time.Millisecond)
				_, err := cohort.Recv(last.WithContext(ctx), make([]int, 1), cohort.AnySource, 99)
				cancel()
				if !errors.Is(err, cohort.ErrTimeout) {
					return fmt.Errorf("Recv: got %w, want ErrTimeout", err)
				}
			case 4:
				if err := last.Barrier(); err != nil {
					return err
				}
			case 5:
				win, err := cohort.AllocateShared[int](last, 1)
				if err = errors.Join(err, win.Close()); err != nil {
					return err
				}
			}
		}
		return nil
	}
	joins("makes", func(w *cohort.Comm) error {
		leaves := os.Getenv("LEAVES") != ""
		seed, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
		calls, e := strconv.Atoi(os.Getenv("CALLS"))
		err = errors.Join(err, e)
		ended := make(chan error, 2)
		for g := range uint64(2) {
			base, e := w.Dup()
			if err = errors.Join(err, e); err != nil {
				return err
			}
			go func() { ended <- some(base, rand.New(rand.NewPCG(seed, g)), calls) }()
		}
		if leaves && w.Rank() == 0 {
			time.Sleep(time.Duration(seed) * time.Millisecond) // on purpose: it closes beside some call
			err = w.Close()
			<-ended
			<-ended
			return err
		}
		err = errors.Join(<-ended, <-ended)
		if leaves && errors.Is(err, cohort.ErrPeerLost) {
			err = nil
		}
		return errors.Join(err, w.Close())
	})
	seeds, calls, rows := 20, 40, []string{"multiple", "serialized, leaves", "serialized"}
	if testing.Short() {
		seeds, calls, rows = 1, 15, rows[:2]
	}
	matrix(t, rows, func(t *testing.T, name, row string) {
		level, leaves, _ := strings.Cut(row, ", ")
		for seed := range seeds {
			start(t, name, 3, "makes", "COHORT_MPI_THREAD="+level, fmt.Sprint("SEED=", seed), fmt.Sprint("CALLS=", calls), "LEAVES="+leaves).must(t)
		}
	})
}

// TestMemberThatGivesUpEndsTheWait checks that a rank that makes a communicator or a window, or closes a window, does not
// wait for one that has given up. The latter is then in a receive of the library, or has closed its communicator.
func TestMemberThatGivesUpEndsTheWait(t *testing.T) {
	why := &backend.Fault{Sentinel: backend.ErrTimeout, Text: "made up"}
	share := func(d backend.Comm) (backend.Memory, error) {
		return d.(backend.Sharing).Share(nil, 1, func(mine string) ([]string, error) { return []string{mine}, nil })
	}
	both := []int{0, 1}
	cases := []struct {
		name  string
		waits func(d backend.Comm, m backend.Memory) error
		close bool // the other rank closes the communicator then
	}{
		{"Derive", func(d backend.Comm, _ backend.Memory) error { return second(d.Derive(nil, both, 100)) }, false},
		{"Share", func(d backend.Comm, _ backend.Memory) error { return second(share(d)) }, true},
		{"Close of a window", func(_ backend.Comm, m backend.Memory) error { return m.Close(nil) }, false},
	}
	program("gives up", func() error {
		c, err := mpi.Open(background, mpi.Config{Settings: mpiquirks.Settings{ThreadLevel: os.Getenv("LEVEL")}})
		if err != nil {
			return err
		}
		c.OnWait(func() {}, func() {})
		other, token := 1-c.Rank(), make([]byte, 1)
		id := uint32(0)
		derived := func() (backend.Comm, error) { id++; return c.Derive(nil, both, id) }
		for waits := range both {
			for _, x := range cases {
				d, err := derived()
				if err != nil {
					return err
				}
				m, err := share(d)
				if err != nil {
					return err
				}
				if c.Rank() == waits {
					if err := x.waits(d, m); !errors.Is(err, backend.ErrTimeout) {
						return fmt.Errorf("rank %d, %s: %w, want ErrTimeout", waits, x.name, err)
					}
					err = c.Send(nil, token, other, 1, backend.Standard)
				} else {
					d.Break(why)
					if x.close {
						err = d.Close()
					}
					err = errors.Join(err, second(c.Recv(nil, token, other, 1)))
				}
				if err != nil {
					return err
				}
				if m.Bytes() != nil {
					m.Abandon()
				}
			}
			// A wait that ends by its own limit leaves the communicator as it was. Memory is then freed on no rank.
			d, err := derived()
			if err != nil {
				return err
			}
			m, err := share(d)
			if err != nil {
				return err
			}
			if d.Rank() == waits {
				limit := &backend.Bound{Timeout: 10 * time.Millisecond}
				if _, err = d.Derive(limit, both, 100); !errors.Is(err, backend.ErrTimeout) {
					return fmt.Errorf("rank %d, Derive: %w, want ErrTimeout", waits, err)
				}
				if err = m.Close(limit); !errors.Is(err, backend.ErrTimeout) {
					return fmt.Errorf("rank %d, Close of a window: %w, want ErrTimeout", waits, err)
				}
				err = c.Send(nil, token, other, 1, backend.Standard)
			} else {
				_, err = c.Recv(nil, token, other, 1)
				if e := m.Close(nil); !errors.Is(e, backend.ErrTimeout) {
					return fmt.Errorf("rank %d, Close of a window after the other: %w, want ErrTimeout", other, e)
				}
			}
			if err = errors.Join(err, second(d.Derive(nil, both, 101))); err != nil {
				return err
			}
		}
		return c.Close()
	})
	inLibraries(t, func(t *testing.T, library string) {
		for _, level := range []string{"multiple", "serialized"} {
			start(t, library, 2, "gives up", "LEVEL="+level).must(t)
		}
	})
}

// TestLateMemberIsNotLeftWaiting checks that a member which comes after the others have given up waits no longer than its
// limit, and not at all if the rank that decides has told it. That rank is then in a receive of the library, or has closed
// the world.
func TestLateMemberIsNotLeftWaiting(t *testing.T) {
	program("late", func() error {
		c, err := mpi.Open(background, mpi.Config{Settings: mpiquirks.Settings{ThreadLevel: os.Getenv("LEVEL")}})
		if err != nil {
			return err
		}
		closes := os.Getenv("THEN") == "closes"
		both, token := []int{0, 1}, make([]byte, 1)
		d, err := c.Derive(nil, both, 1)
		if err != nil {
			return err
		}
		gives := func(limit time.Duration, id uint32) error {
			if _, err := d.Derive(&backend.Bound{Timeout: limit}, both, id); !errors.Is(err, backend.ErrTimeout) {
				return fmt.Errorf("rank %d, communicator %d: got %v, want ErrTimeout", c.Rank(), id, err)
			}
			return nil
		}
		if c.Rank() == 0 {
			err = errors.Join(gives(time.Millisecond, 100), c.Send(nil, token, 1, 1, backend.Standard))
			if !closes {
				err = errors.Join(err, second(c.Recv(nil, token, 1, 1)))
			}
		} else {
			err = errors.Join(second(c.Recv(nil, token, 0, 1)), gives(0, 100), gives(time.Millisecond, 101))
			if !closes {
				err = errors.Join(err, c.Send(nil, token, 0, 1, backend.Standard))
			}
		}
		return errors.Join(err, c.Close())
	})
	rows := []string{"multiple, closes", "funneled, receives", "serialized, closes", "funneled, closes", "multiple, receives", "serialized, receives"}
	if testing.Short() {
		rows = rows[:2]
	}
	matrix(t, rows, func(t *testing.T, library, row string) {
		level, then, _ := strings.Cut(row, ", ")
		start(t, library, 2, "late", "LEVEL="+level, "THEN="+then).must(t)
	})
}
