//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// A rank has left the job: it makes no communicator, and is not told that memory is short.
	programs["derivedafter"] = func(c backend.Comm) error {
		must.OK(c.Close())
		for id := range uint32(8) {
			if _, err := c.Derive(nil, []int{0}, 1+id); !errors.Is(err, backend.ErrClosed) {
				return fmt.Errorf("communicator %d after the job was left: %v, want ErrClosed", id, err)
			}
		}
		return nil
	}

	// A rank closes a communicator while another of its goroutines sleeps in a
	// collective of it, which ends; the slots are freed when all have closed.
	programs["closedunder"] = func(c backend.Comm) error {
		waits := make(chan struct{}, 1)
		c.OnWait(func() {
			select {
			case waits <- struct{}{}:
			default:
			}
		}, func() {})
		for id := range uint32(slotsMost + 2) { // more than there are slots
			d := must.Get(c.Derive(nil, []int{0, 1}, 1+id))
			if c.Rank() == 1 {
				must.Get(c.Recv(nil, nil, 0, 1))
				if err := barrier(d); !errors.Is(err, backend.ErrPeerLost) {
					return fmt.Errorf("barrier with a rank that has closed: %v", err)
				}
			} else {
				select {
				case <-waits: // of the last round
				default:
				}
				ended := make(chan error, 1)
				go func() { ended <- barrier(d) }()
				<-waits
				must.OK(d.Close())
				if err := <-ended; !errors.Is(err, backend.ErrClosed) {
					return fmt.Errorf("barrier that was closed under way: %v", err)
				}
				must.OK(c.Send(nil, nil, 1, 1, backend.Standard))
			}
			must.OK(errors.Join(d.Close(), barrier(c)))
		}
		return nil
	}

	// A rank closes a communicator in a call that it then completes: what it has read still is of this call, for the other
	// rank has not closed it. No rank receives a break.
	programs["closedinside"] = func(c backend.Comm) error {
		d, err := c.Derive(nil, []int{0, 1}, 1)
		if err != nil {
			return err
		}
		sum := kernel.For(backend.OpSum, backend.Float64)
		op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: sum}
		if c.Rank() == 0 {
			op.Apply = func(dst, a, b []byte) {
				d.Close()
				sum(dst, a, b)
			}
		}
		send, recv := make([]byte, 8), make([]byte, 8)
		binary.NativeEndian.PutUint64(send, math.Float64bits(1.5))
		_, err = d.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s,
			Count: 1, Send: send, Recv: recv})
		if got := math.Float64frombits(binary.NativeEndian.Uint64(recv)); err != nil || got != 3 {
			return fmt.Errorf("allreduce that rank 0 closed inside: the sum is %v, want 3: %v", got, err)
		}
		must.OK(errors.Join(barrier(c), d.Close(), barrier(c)))
		if c.Rank() == 0 {
			d.Break(errors.New("too late"))
		}
		must.OK(barrier(c))
		if d, err = c.Derive(nil, []int{0, 1}, 2); err != nil { // a number is not used twice
			return err
		}
		return errors.Join(barrier(d), d.Broken())
	}
}

func barrier(c backend.Comm) error {
	_, err := c.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Barrier, Root: -1})
	return err
}

func TestCloseEndsCollective(t *testing.T)                { launch(t, "closedunder", 2) }
func TestCloseInsideCollectiveThatCompletes(t *testing.T) { launch(t, "closedinside", 2) }
func TestDeriveAfterCloseIsErrClosed(t *testing.T)        { launch(t, "derivedafter", 1) }

// takeSlots makes communicators of ranks 0 and 1, with ids from 100 on, until all but spare of the slots are
// used.
func takeSlots(c backend.Comm, spare int) ([]backend.Comm, error) {
	var all []backend.Comm
	for i := range slotsMost - 1 - spare {
		d, err := c.Derive(nil, []int{0, 1}, uint32(100+i))
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}

func init() {
	// A rank seems to have all its slots in use, only because it has not read yet that the others have closed one of
	// the communicators. The notices wait in a ring, or in a mailbox: then the ranks have sent no messages.
	for _, where := range []string{"ring", "mailbox"} {
		programs["unreadat"+where] = func(c backend.Comm) error {
			const many = 40 // more than are read at a time
			dir := os.Getenv("SHM_TEST_DIR")
			closed, made := filepath.Join(dir, "closed"), filepath.Join(dir, "made")
			all, err := takeSlots(c, 0)
			if err == nil && where == "ring" {
				if c.Rank() == 0 {
					err = c.Send(nil, nil, 1, 1, backend.Standard)
				} else {
					_, err = c.Recv(nil, nil, 0, 1)
				}
			}
			// Slots in which no rank has made a call would be free at once.
			must.OK(errors.Join(err, barrier(all[many-1]), barrier(c)))
			if c.Rank() == 1 {
				for _, d := range all[:many] {
					d.Close()
				}
				err := os.WriteFile(closed, nil, 0o600)
				await(made) // its end would be news
				return err
			}
			all[many-1].Close()
			await(closed)
			_, err = c.Derive(nil, []int{0}, 1)
			return errors.Join(err, os.WriteFile(made, nil, 0o600))
		}
	}

	// Rank 0 has no slots for a communicator. Rank 1 has, and learns of it: when it waits
	// already, before it calls anything, and before it makes the communicator.
	programs["outofslots"] = func(c backend.Comm) error {
		all := must.Get(takeSlots(c, 1))
		own := must.Get(c.Derive(nil, []int{c.Rank()}, uint32(10+c.Rank())))
		if c.Rank() == 1 { // has room
			own.Close()
		}
		for id := range uint32(3) {
			if c.Rank() == 0 {
				if id == 0 {
					must.Get(c.Recv(nil, nil, 1, 1))
				}
				d, err := c.Derive(nil, []int{0, 1}, id+1)
				if !errors.Is(err, backend.ErrAlloc) {
					return fmt.Errorf("communicator without slots: %v %v", d, err)
				}
				must.OK(c.Send(nil, nil, 1, 1, backend.Standard))
				continue
			}
			if id == 2 {
				must.Get(c.Recv(nil, nil, 0, 1))
			}
			d, err := c.Derive(nil, []int{0, 1}, id+1)
			if err != nil {
				return err
			}
			if id == 0 {
				must.OK(c.Send(nil, nil, 0, 1, backend.Standard))
			}
			if id == 1 {
				_, err = d.Recv(nil, nil, 0, 1)
			} else {
				err = barrier(d)
			}
			if !errors.Is(err, backend.ErrPeerLost) {
				return fmt.Errorf("communicator %d that rank 0 has not made: %v", id, err)
			}
			d.Close()
			if id < 2 {
				must.Get(c.Recv(nil, nil, 0, 1))
			}
		}
		must.OK(barrier(c))
		// With one closed, the next is made by both. Nothing is left of the one that had its number.
		all[0].Close()
		must.OK(barrier(c))
		d := must.Get(c.Derive(nil, []int{0, 1}, 1))
		return barrier(d)
	}
}

// await waits until another process has written a file.
func await(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		shmem.Yield()
	}
}

func TestUnreadNoticesFreeSlots(t *testing.T) {
	for _, where := range []string{"ring", "mailbox"} {
		t.Run(where, func(t *testing.T) {
			t.Setenv("SHM_TEST_DIR", t.TempDir())
			launch(t, "unreadat"+where, 2)
		})
	}
}

func TestCommunicatorsRunOut(t *testing.T) { launch(t, "outofslots", 2) }
