package cohort

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// A rank that closes a communicator while it has, or waits for, the lock of a part on another node leaves the lock to
// the others.

// slowNodes is nodes of one rank each. Once late is set, a goroutine gets no processor for a moment before it sends.
type slowNodes struct {
	nodes
	late *atomic.Bool
}

func (a *slowNodes) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := a.Comm.Derive(b, members, id)
	return &slowNodes{nodes{spread{c, 1}}, a.late}, err
}

func (a *slowNodes) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	if a.late.Load() {
		time.Sleep(10 * time.Millisecond) // on purpose: the rank is slow
	}
	return a.Comm.Send(b, buf, dest, tag, mode)
}

// onSlowNodes calls body on n ranks with a window of a communicator that body closes.
func onSlowNodes(t *testing.T, n int, body func(late *atomic.Bool, d *Comm, w *Window[int]) error) {
	t.Helper()
	lates := make([]*atomic.Bool, n)
	wrap := func(bc backend.Comm) backend.Comm {
		a := &slowNodes{nodes{spread{bc, 1}}, new(atomic.Bool)}
		lates[bc.Rank()] = a.late
		return a
	}
	onWorlds(t, n, settings{}, wrap, func(world *Comm) error {
		d := must.Get(world.Dup())
		w := must.Get(NewWindow[int](d, 1))
		return body(lates[world.Rank()], d, w)
	})
}

// lockOf1 takes and releases the lock of rank 1's part within a minute.
func lockOf1(w *Window[int]) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g, err := w.WithContext(ctx).Lock(LockExclusive, 1)
	return errors.Join(err, g.Unlock())
}

func TestRankThatClosesGivesUpItsWaitForLock(t *testing.T) {
	held, closed, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	onSlowNodes(t, 3, func(late *atomic.Bool, d *Comm, w *Window[int]) error {
		switch d.Rank() {
		case 0:
			<-held
			waits := make(chan error, 1)
			go func() { _, err := w.Lock(LockExclusive, 1); waits <- err }()
			inside.Wait("(*Window[...]).Lock")
			late.Store(true)
			err := d.Close()
			close(closed)
			<-end
			return errors.Join(err, wantErr("Lock", <-waits, ErrClosed))
		case 2:
			defer close(end)
			g, err := w.Lock(LockExclusive, 1)
			if err != nil {
				return err
			}
			close(held)
			<-closed
			err = g.Unlock()
			for range 10 {
				time.Sleep(10 * time.Millisecond) // on purpose: time for rank 0's request, which must not come
				err = errors.Join(err, lockOf1(w))
			}
			return errors.Join(err, d.Close())
		}
		<-end
		return d.Close()
	})
}

// Rank 2 leaves in good order, and rank 0 finds out. Rank 0 then leaves with the lock of rank 1's part.
func TestRankThatClosesReleasesItsLocksAfterAnotherHasLeft(t *testing.T) {
	for _, finds := range []bool{false, true} {
		t.Run(fmt.Sprint("rank 0 finds out: ", finds), func(t *testing.T) {
			two, zero, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
			onSlowNodes(t, 4, func(_ *atomic.Bool, d *Comm, w *Window[int]) error {
				switch d.Rank() {
				case 0:
					defer close(zero)
					_, err := w.Lock(LockExclusive, 1)
					<-two
					if finds {
						_, e := w.FetchAndOp(1, 2, 0, Sum)
						err = errors.Join(err, wantErr("an access of rank 2's part", e, ErrPeerLost))
					}
					return errors.Join(err, d.Close())
				case 1:
					defer close(end)
					<-zero
					return errors.Join(lockOf1(w), d.Close())
				case 2:
					err := d.Close()
					close(two)
					<-zero
					return err
				}
				<-end
				return d.Close()
			})
		})
	}
}

// A window of a broken communicator ends, and so do its operations after a loss: with ErrBroken at first.
func TestWindowOfBrokenCommunicatorEnds(t *testing.T) {
	_ = Run(context.Background(), 3, func(world *Comm) error {
		w, err := NewWindow[int](world, 1)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			err = world.Barrier()
		} else {
			err = Bcast(world, []int{0}, 1)
		}
		err = wantErr("the mismatch", err, ErrMismatch)
		var access error
		for end := time.Now().Add(time.Minute); access == nil && time.Now().Before(end); time.Sleep(time.Millisecond) { // poll
			_, access = w.FetchAndOp(1, 1, 0, Sum) // the window looks from time to time
		}
		if err = errors.Join(err, wantErr("an access", access, ErrBroken)); err != nil {
			t.Errorf("rank %d: %v", world.Rank(), err)
		}
		return nil
	})
}
