//go:build linux

package shm

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

func init() {
	// A rank closes a communicator while another of its goroutines sleeps in a
	// collective of it, which ends; the slots are freed when all have closed.
	programs["closedunder"] = func(c backend.Comm) error {
		e := c.(*comm).e
		d, err := c.Derive([]int{0, 1}, 1)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if _, err := c.Recv(nil, nil, 0, 1); err != nil {
				return err
			}
			if err := barrier(d); !errors.Is(err, backend.ErrPeerLost) {
				return fmt.Errorf("barrier with a rank that has closed: %v", err)
			}
			return errors.Join(d.Close(), barrier(c))
		}
		ended := make(chan error, 1)
		go func() { ended <- barrier(d) }()
		for e.sleeping.Load() == 0 {
			runtime.Gosched()
		}
		if err := d.Close(); err != nil {
			return err
		}
		select {
		case err = <-ended:
		case <-time.After(30 * time.Second):
			err = errors.New("goes on")
		}
		if !errors.Is(err, backend.ErrClosed) {
			return fmt.Errorf("barrier that was closed under way: %v", err)
		}
		if err := errors.Join(c.Send(nil, nil, 1, 1, backend.Standard), barrier(c)); err != nil {
			return err
		}
		e.refresh()
		if s := d.(*comm).slotIndex; s >= 0 {
			return fmt.Errorf("slots %d are not freed", s)
		}
		return nil
	}

	// A rank closes a communicator in a call that it then completes. What it has read may have belonged to
	// other communicators by then; no rank receives a break.
	programs["closedinside"] = func(c backend.Comm) error {
		d, err := c.Derive([]int{0, 1}, 1)
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
		_, err = d.(backend.Native).Collective(nil, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s,
			Count: 1, Send: make([]byte, 8), Recv: make([]byte, 8)})
		if c.Rank() == 0 && !errors.Is(err, backend.ErrClosed) || c.Rank() == 1 && err != nil {
			return fmt.Errorf("allreduce that rank 0 closed inside: %v", err)
		}
		if err := errors.Join(d.Close(), barrier(c)); err != nil {
			return err
		}
		if c.Rank() == 0 {
			d.Break(errors.New("too late"))
			return barrier(c)
		}
		err = barrier(c)
		e := c.(*comm).e
		e.refresh()
		if len(e.early) > 0 {
			err = errors.Join(err, errors.New("a break of a communicator that all have closed is kept"))
		}
		return err
	}
}

func barrier(c backend.Comm) error {
	_, err := c.(backend.Native).Collective(nil, &backend.Call{Coll: backend.Barrier, Root: -1})
	return err
}

func TestCloseEndsCollective(t *testing.T)              { launch(t, "closedunder", 2) }
func TestCloseInsideCollectiveIsErrClosed(t *testing.T) { launch(t, "closedinside", 2) }

// TestSlotsAreReused has a collective end, or synchronise, after its communicator is closed by all
// and its slots belong to another one. That one's keys stay.
func TestSlotsAreReused(t *testing.T) {
	w, err := Open(t.Context(), Config{Rank: 0, Size: 1, Job: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	derive := func(id uint32) *comm {
		d, err := w.Derive([]int{0}, id)
		if err != nil {
			t.Fatal(err)
		}
		return d.(*comm)
	}
	was := derive(1)
	if err := barrier(was); err != nil {
		t.Fatal(err)
	}
	was.Close()
	is := derive(2)
	if is.mine != was.mine {
		t.Fatal("the slots are not reused")
	}
	if err := errors.Join(barrier(is), is.coll.sync(nil, nil, nil)); err != nil {
		t.Fatal(err)
	}
	post, meet := &is.mine.calls[is.seq&1].key, &is.mine.syncs[is.syncSeq&1].key
	p, m := post.Load(), meet.Load()
	was.coll.retract()
	if err := was.coll.sync(nil, nil, nil); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("a synchronisation after the closing: %v", err)
	}
	was.coll.retract()
	if post.Load() != p || meet.Load() != m {
		t.Errorf("keys %x and %x in the slots are now %x and %x", p, m, post.Load(), meet.Load())
	}
}

// takeBoards makes communicators of ranks 0 and 1 until rank 0 has all but spare of the
// slots that it may have, with ids from 100 on.
func takeSlots(c backend.Comm, spare int) ([]backend.Comm, error) {
	var all []backend.Comm
	for i := range c.(*comm).e.lay.slots - 1 - spare {
		d, err := c.Derive([]int{0, 1}, uint32(100+i))
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}

func init() {
	// A rank seems to have all its slots in use, only because it has not read yet that the others have
	// closed one of the communicators.
	programs["unreadclosings"] = func(c backend.Comm) error {
		const many = 40 // more than are read at a time
		e := c.(*comm).e
		all, err := takeSlots(c, 0)
		if err := errors.Join(err, barrier(c)); err != nil { // rank 1 has made them all
			return err
		}
		said := &e.slotsOf(1, c.(*comm).slotIndex).news // a word for the test
		if c.Rank() == 1 {
			if _, err := c.Recv(nil, nil, 0, 1); err != nil {
				return err
			}
			for _, d := range all[:many] {
				d.Close()
			}
			said.Store(1)
			_, err := c.Recv(nil, nil, 0, 2) // its end would be news
			return err
		}
		all[many-1].Close()
		if err := c.Send(nil, nil, 1, 1, backend.Standard); err != nil {
			return err
		}
		for said.Load() == 0 {
			shmem.Yield()
		}
		_, err = c.Derive([]int{0}, 1)
		return errors.Join(err, c.Send(nil, nil, 1, 2, backend.Standard))
	}

	// Rank 0 has no slots for a communicator. Rank 1 has, and learns of it: when it waits
	// already, before it calls anything, and before it makes the communicator.
	programs["outofslots"] = func(c backend.Comm) error {
		e := c.(*comm).e
		all, err := takeSlots(c, 1)
		if err != nil {
			return err
		}
		own, err := c.Derive([]int{c.Rank()}, uint32(10+c.Rank()))
		if err != nil {
			return err
		}
		if c.Rank() == 1 { // has room
			own.Close()
		}
		for id := range uint32(3) {
			if c.Rank() == 0 {
				if id == 0 {
					if _, err := c.Recv(nil, nil, 1, 1); err != nil {
						return err
					}
				}
				d, err := c.Derive([]int{0, 1}, id+1)
				if !errors.Is(err, backend.ErrAlloc) {
					return fmt.Errorf("communicator without slots: %v %v", d, err)
				}
				if err := c.Send(nil, nil, 1, 1, backend.Standard); err != nil {
					return err
				}
				continue
			}
			if id == 2 {
				if _, err := c.Recv(nil, nil, 0, 1); err != nil {
					return err
				}
			}
			d, err := c.Derive([]int{0, 1}, id+1)
			if err != nil {
				return err
			}
			if id == 0 {
				if err := c.Send(nil, nil, 0, 1, backend.Standard); err != nil {
					return err
				}
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
				if _, err := c.Recv(nil, nil, 0, 1); err != nil {
					return err
				}
			}
		}
		if err := barrier(c); err != nil {
			return err
		}
		e.refresh()
		if len(e.early)+len(e.closing) > 0 && c.Rank() == 0 {
			return fmt.Errorf("rank 0 keeps %d communicators and the notices for %d", len(e.closing), len(e.early))
		}
		// With one closed, the next is made by both.
		all[0].Close()
		if err := barrier(c); err != nil {
			return err
		}
		d, err := c.Derive([]int{0, 1}, 4)
		if err != nil {
			return err
		}
		return barrier(d)
	}
}

func TestUnreadNoticesFreeSlots(t *testing.T) { launch(t, "unreadclosings", 2) }
func TestCommunicatorsRunOut(t *testing.T)    { launch(t, "outofslots", 2) }
