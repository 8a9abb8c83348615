//go:build interleave && linux

package comm

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/wait"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

var errGone = fmt.Errorf("%w: a rank", backend.ErrPeerLost)

// alone is a backend's communicator of two ranks, of which only this one runs: in every collective the other rank says
// what this one says. It counts what is open.
type alone struct {
	backend.Comm
	rank   int
	open   *int        // communicators and memory that are open; threads take turns
	died   func() bool // the other rank has
	closed word.Bool
}

func newAlone() *alone {
	a := &alone{open: new(int), died: func() bool { return false }}
	*a.open++
	return a
}

func (a *alone) Rank() int                             { return a.rank }
func (a *alone) Size() int                             { return 2 }
func (a *alone) Caps() backend.Caps                    { return backend.Caps{ThreadLevel: "funneled", MaxTag: 1 << 20} }
func (a *alone) WorldRank(rank int) int                { return rank }
func (a *alone) NodeOf(int) int                        { return 0 }
func (a *alone) OnWait(_, _ func())                    {}
func (a *alone) Broken() error                         { return nil }
func (a *alone) Wake()                                 {}
func (a *alone) Poll()                                 {}
func (a *alone) Flush()                                {}
func (a *alone) Settled(uint32)                        {}
func (a *alone) UnderWay(func(*backend.Request, bool)) {}
func (a *alone) Available() (int64, string)            { return -1, "" }

func (a *alone) Derive(*backend.Bound, []int, uint32) (backend.Comm, error) {
	*a.open++
	return &alone{rank: a.rank, open: a.open, died: a.died}, nil
}

func (a *alone) Close() error {
	if !a.closed.Swap(true) {
		*a.open--
	}
	return nil
}

func (a *alone) Await(_ *backend.Bound, p backend.Pending) error {
	for !p.Ready() {
		word.Yield()
	}
	return nil
}

func (a *alone) Probe(*backend.Bound, int, int, bool) (backend.Status, bool, error) {
	if a.died() {
		return backend.Status{}, false, errGone
	}
	return backend.Status{}, false, nil
}

func (a *alone) Collective(_ *backend.Bound, c *backend.Call) (backend.Plan, error) {
	if a.closed.Load() {
		return backend.PlanDone, errClosed
	}
	if c.Coll == backend.Allgather {
		n := len(c.Recv) / 2
		copy(c.Recv[(1-a.rank)*n:], c.Recv[a.rank*n:(a.rank+1)*n])
	}
	return backend.PlanDone, c.Err
}

func (a *alone) StartCollective(*backend.Call) (backend.Operation, error) { return nil, nil }
func (a *alone) Exchange(_, _ *backend.Request, _, _ []byte, _, _, _ int) {}
func (a *alone) Share(_ *backend.Bound, size int, _ backend.Publish) (backend.Memory, error) {
	*a.open++
	return &mapping{bytes: view.Bytes(make([]uint64, size/8)), of: a}, nil
}

// onlyWorld returns an error if something besides the world is open.
func (a *alone) onlyWorld() error {
	if *a.open != 1 {
		return fmt.Errorf("%d communicators and memories are open besides the world", *a.open-1)
	}
	return nil
}

// mapping is a rank's view of memory. Nobody may touch it after Close.
type mapping struct {
	bytes []byte
	of    *alone
}

func (m *mapping) Bytes() []byte { return m.bytes }
func (m *mapping) Joint() bool   { return true }
func (m *mapping) Abandon()      {} // it stays open

func (m *mapping) Close(*backend.Bound) error {
	word.Freed(m.bytes)
	*m.of.open--
	return nil
}

// recorder is that of all schedules. It waits for nobody.
var recorder = flight.New("", flight.Origin{})

// world returns a new world. Schedules share none, because a schedule may end in the middle.
func world(bc backend.Comm) *Comm {
	j := &job{ctx: context.Background(), comms: make(map[*core]struct{}), recorder: recorder}
	j.world = j.newCore(bc, backend.WorldName, 0)
	return j.world.plain
}

func child(w *Comm) *Comm {
	d, err := dup(w)
	if err != nil {
		panic(err)
	}
	return d
}

func patient(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = time.Hour // the explorer decides when time is up
	t.Cleanup(func() { QuiesceFor = whole })
}

// windowOf returns what NewWindow does, without asking the system how much memory is left.
func windowOf(c *Comm) *Window {
	k := c.core
	lay, _ := window.Apart([]int{pair.Size, pair.Size}, 64)
	mem, _ := k.sharing.Share(nil, lay.Total, nil)
	s := &windowCore{core: k, number: 1, elem: pair, counts: []int{1, 1}, mem: mem, near: c, parts: lay.Parts(mem.Bytes()), released: make(chan struct{}),
		holds: make([]lockHold, 2), unanswered: make([]unanswered, 2), rputs: make([][]*transfer, 2)}
	if !s.register() {
		panic("the communicator is closed")
	}
	return &Window{c, s}
}

// allowed reports whether err is nil, or one of those that an operation beside Close may return.
func allowed(err error) bool {
	return err == nil || errors.Is(err, backend.ErrClosed) || errors.Is(err, backend.ErrBusy)
}

// closes starts a thread that closes a communicator.
func closes(x *interleave.Run, c *Comm) {
	x.Go("closer of "+c.Name(), func() {
		if err := c.Close(); err != nil {
			x.Errorf("Close: %v", err)
		}
	})
}

// A goroutine makes a window while another one closes the communicator. The ranks close the window together, unless
// Close has given up waiting. Operations on it are refused.
func TestInterleaveWindowMadeDuringClose(t *testing.T) {
	patient(t)
	for _, timeouts := range []int{0, 1} {
		t.Run(fmt.Sprint(timeouts), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2, Timeouts: timeouts}, func(x *interleave.Run) {
				bc := newAlone()
				d := child(world(bc))
				var made *Window
				x.Go("maker", func() {
					var err error
					if made, err = newWindow(d, 1); !allowed(err) {
						x.Errorf("%v", err)
					}
				})
				closes(x, d)
				x.Check(func() error {
					if made != nil {
						if err := put(made, pairOf(1)); !errors.Is(err, backend.ErrClosed) {
							return fmt.Errorf("an operation after Close: %v", err)
						}
					}
					if timeouts > 0 {
						return nil
					}
					return bc.onlyWorld()
				})
			})
		})
	}
}

// A goroutine makes a communicator while another one closes the world. The communicator is closed.
func TestInterleaveCommunicatorMadeDuringClose(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		bc := newAlone()
		w := world(bc)
		d := child(w)
		x.Go("maker", func() {
			if _, err := dup(d); !allowed(err) {
				x.Errorf("%v", err)
			}
		})
		closes(x, w)
		x.Check(func() error {
			if *bc.open != 0 {
				return fmt.Errorf("%d communicators are open", *bc.open)
			}
			return nil
		})
	})
}

// hurried is alone, and its Shrink runs out of time before it has claimed an id.
type hurried struct {
	backend.Recovery
	*alone
}

func (h *hurried) Shrink(_ *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	ids.Propose(0, 0)
	return nil, 0, backend.Faultf(backend.ErrTimeout, "the test")
}

// A goroutine calls Shrink, and perhaps continues it, while another one closes the communicator. No agreement is left.
func TestInterleaveUnfinishedShrinkDuringClose(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		w := world(&hurried{alone: newAlone()})
		x.Go("user", func() {
			for range 2 {
				if _, err := w.Shrink(); !allowed(err) && !errors.Is(err, backend.ErrTimeout) {
					x.Errorf("Shrink: %v", err)
				}
			}
		})
		closes(x, w)
		x.Check(func() error {
			w.core.job.ids.Claim(1)
			return w.core.job.idle()
		})
	})
}

// Two goroutines close a window and its communicator while the rank holds a lock, and a third one uses the window, or
// else Close gives up waiting, and the third one closes the window too. The lock is released before the memory goes, and nobody touches the memory afterwards.
func TestInterleaveTwoClosers(t *testing.T) {
	patient(t)
	for _, timeouts := range []int{0, 1} {
		t.Run(fmt.Sprint(timeouts), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2 - timeouts, Timeouts: timeouts}, func(x *interleave.Run) {
				bc := newAlone()
				d := child(world(bc))
				win := windowOf(d)
				if _, err := win.Lock(window.Exclusive, 0); err != nil {
					panic(err)
				}
				ends := func() {
					if err := win.Close(); !allowed(err) && !errors.Is(err, backend.ErrWin) {
						x.Errorf("Close: %v", err)
					}
				}
				x.Go("closer of the window", ends)
				closes(x, d)
				if timeouts > 0 {
					x.Go("other closer", ends)
				} else {
					x.Go("user", func() {
						if err := put(win, pairOf(1)); !allowed(err) {
							x.Errorf("%v", err)
						}
					})
				}
				x.Check(func() error {
					if s := win.s.parts[0].LockState(); s != 0 {
						return fmt.Errorf("the lock is not free: %v", s)
					}
					if timeouts > 0 {
						return nil
					}
					return bc.onlyWorld()
				})
			})
		})
	}
}

// sleepy is alone, but its Await sleeps until Wake is called, as the engine's does while no message comes.
type sleepy struct {
	*alone
	bell wait.Bell
}

func (a *sleepy) Wake() { a.bell.Ring() }

func (a *sleepy) Await(_ *backend.Bound, p backend.Pending) error {
	for !p.Ready() {
		seen := a.bell.Arm()
		if !p.Ready() {
			a.bell.Sleep(seen, 0)
		}
		a.bell.Disarm()
	}
	return nil
}

// A goroutine accesses a window while another one closes it. Close ends, also if the access is refused.
func TestInterleaveRefusedAccessBesideClose(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
		win := windowOf(world(&sleepy{alone: newAlone()}))
		x.Go("closer of the window", func() {
			if err := win.Close(); !allowed(err) {
				x.Errorf("Close: %v", err)
			}
		})
		x.Go("user", func() {
			if err := put(win, pairOf(1)); !allowed(err) {
				x.Errorf("%v", err)
			}
		})
	})
}

// A goroutine locks a part while another one closes the communicator, which may not wait for it. The lock is free
// afterwards.
func TestInterleaveLockDuringClose(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Timeouts: 2}, func(x *interleave.Run) {
		d := child(world(newAlone()))
		win := windowOf(d)
		closes(x, d)
		x.Go("user", func() {
			if _, err := win.Lock(window.Exclusive, 0); !allowed(err) {
				x.Errorf("%v", err)
			}
		})
		x.Check(func() error {
			if s := win.s.parts[0].LockState(); s != 0 {
				return fmt.Errorf("the lock is not free: %v", s)
			}
			return nil // what a Close that does not wait leaves mapped is another test's
		})
	})
}

// unfreed is the memory of a window, which another rank still maps when this one has closed it.
type unfreed struct{ backend.Memory }

func (unfreed) Close(*backend.Bound) error { return nil }

// A goroutine writes to a part that its rank has locked, while another one closes the window, or its communicator. The
// next rank that holds the lock has the part for itself: the write is over, or is refused.
func TestInterleaveLockIsReleasedAfterAccess(t *testing.T) {
	patient(t)
	for _, nodes := range []int{1, 2} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d nodes, communicator %v", nodes, whole), func(t *testing.T) {
				interleave.Explore(t, interleave.Config{Preemptions: 1}, func(x *interleave.Run) {
					w := world(newAlone())
					d := child(w)
					var win *Window
					if nodes == 1 {
						win = windowOf(d)
					} else {
						win, _ = served(d, w)
					}
					win.s.mem = unfreed{win.s.mem}
					if _, err := win.Lock(window.Exclusive, 0); err != nil {
						panic(err)
					}
					if whole {
						closes(x, d)
					} else {
						x.Go("closer of the window", func() {
							if err := win.Close(); !errors.Is(err, backend.ErrWin) { // the lock was held
								x.Errorf("Close: %v", err)
							}
						})
					}
					x.Go("user", func() {
						if err := put(win, pairOf(1)); !allowed(err) {
							x.Errorf("%v", err)
						}
					})
					x.Go("other rank", func() {
						part := &win.s.parts[0]
						if err := part.Lock(window.Exclusive, 1, func() error { return nil }); err != nil {
							x.Errorf("Lock: %v", err)
						}
						word.Reads(part.Bytes(0, pair.Size))
						part.Unlock(window.Exclusive, 1)
					})
				})
			})
		}
	}
}

// An access takes longer than Close waits. Its memory stays mapped.
func TestInterleaveLongAccess(t *testing.T) {
	patient(t)
	interleave.Explore(t, interleave.Config{Timeouts: 2}, func(x *interleave.Run) {
		d := child(world(newAlone()))
		win := windowOf(d)
		closes(x, d)
		x.Go("user", func() {
			if err := put(win, pairOf(1)); !allowed(err) {
				x.Errorf("%v", err)
			}
		})
	})
}

func pairOf(b byte) []byte { return append(make([]byte, 15), b) }
