//go:build linux

package board

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// closeAll has all ranks close a communicator, and give the slots back.
func closeAll(all []*comm) {
	for _, c := range all {
		c.closed.Store(true)
		c.Ended(nil)
		c.Collective.Close()
	}
}

// A goroutine is about to call a collective while its rank and all others close the communicator, and the slots go to
// another one. The late call writes nothing there.
func TestLateCallLeavesReusedSlotsAlone(t *testing.T) {
	bs := boards(t, 2)
	was := open(t, bs, 1)
	if err := errors.Join(each(was, barrier)...); err != nil {
		t.Fatal(err)
	}
	was[0].Collective.CloseUnused()
	if was[0].shut(gateUnused) {
		t.Fatal("slots that others may be reading are given back")
	}
	closeAll(was)
	is := open(t, bs, 2)
	if is[0].mine != was[0].mine {
		t.Fatal("the slots are not reused")
	}
	if err := errors.Join(each(is, barrier)...); err != nil {
		t.Fatal(err)
	}
	bytes := shmem.Slice[byte](bs[0].cfg.Segment, bs[0].offset(0, 0), slotsSize)
	before := string(bytes)
	persistent := allreduce(1)
	persistent.Form = backend.Persistent
	o := &Op{s: was[0].Collective, call: *persistent}
	o.Start()
	for name, err := range map[string]error{"blocking": barrier(was[0]), "persistent": o.Err()} {
		if !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%s: the late call ends with %v, want ErrClosed", name, err)
		}
	}
	if was[0].Start(iallreduce(1)) != nil {
		t.Error("a late nonblocking call has started")
	}
	if string(bytes) != before {
		t.Error("the late calls have changed the slots of another communicator")
	}
}

// An Ibarrier has arrived when its communicator is closed by all and the slots are given back. It ends with ErrClosed, and
// publishes nothing in the slots.
func TestOperationLeavesSlotsAloneThatWereGivenBack(t *testing.T) {
	bs := boards(t, 2)
	all := open(t, bs, 1)
	call := &backend.Call{Coll: backend.Barrier, Root: -1, Form: backend.Nonblocking}
	o := all[0].Start(call)
	all[1].arrive(call)
	closeAll(all)
	bytes := shmem.Slice[byte](bs[0].cfg.Segment, bs[0].offset(0, 0), slotsSize)
	before := string(bytes)
	if err := o.Err(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("the operation ends with %v, want ErrClosed", err)
	}
	if string(bytes) != before {
		t.Error("the operation has changed slots that were given back")
	}
}

// The slots of a goroutine that is inside are not given back before it leaves.
func TestSlotsInUseAreNotGivenBack(t *testing.T) {
	b := boards(t, 1)
	was := open(t, b, 1)[0]
	if !was.enter() {
		t.Fatal("closed")
	}
	closeAll([]*comm{was})
	if is := open(t, b, 2)[0]; is.mine == was.mine {
		t.Error("another communicator has the slots of a goroutine that is inside")
	}
	was.leave()
	if is := open(t, b, 3)[0]; is.mine != was.mine {
		t.Error("the slots are not given back")
	}
}

// Rank 0 is in the middle of its part of an Allreduce of 4 ranks, blocking or not, when its communicator is closed by
// all, broken before or not, and the slots of ranks 2 and 3 belong to another one. It takes none of that one's data.
func TestDataOfReusedSlotsAreAnError(t *testing.T) {
	for _, broken := range []bool{false, true} {
		for _, blocking := range []bool{false, true} {
			b := boards(t, 4)
			all := open(t, b, 1)
			op, first := *sum, true
			op.Apply = func(dst, x, y []byte) {
				if first { // after the inputs of ranks 0 and 1, before those of 2 and 3
					first = false
					if broken {
						all[0].Break(&backend.Fault{Sentinel: backend.ErrBroken, Text: "revoked"})
					}
					all[0].closed.Store(true)
					closeAll(all[1:])
					next := open(t, b, 2)
					for _, c := range next[1:] {
						call := iallreduce(1)
						put(call, 1000)
						c.Start(call)
					}
				}
				sum.Apply(dst, x, y)
			}
			for _, c := range all[1:] {
				call := iallreduce(1)
				put(call, 1)
				if blocking {
					call.Form = backend.Blocking
				}
				(&Op{s: c.Collective, call: *call}).begin()
			}
			call := iallreduce(1)
			put(call, 1)
			call.Op = &op
			var err error
			if blocking {
				call.Form = backend.Blocking
				_, err = all[0].Run(nil, call)
			} else {
				err = all[0].Start(call).Err()
			}
			want := error(backend.ErrClosed)
			if broken {
				want = backend.ErrBroken
			}
			if !errors.Is(err, want) || first {
				t.Errorf("broken %v, blocking %v: %v, want %v; the sum is %v", broken, blocking, err, want, sums(call))
			}
		}
	}
}

// A rank was declared lost while it was stopped, and its messages with that news are not read yet.
func TestLostRankEndsItsCalls(t *testing.T) {
	for name, make := range map[string]func(c *comm) error{
		"blocking":     func(c *comm) error { _, err := c.Run(nil, allreduce(1)); return err },
		"long":         func(c *comm) error { _, err := c.Run(nil, allreduce(40000)); return err },
		"barrier":      barrier,
		"nonblocking":  func(c *comm) error { return c.Start(iallreduce(1)).Err() },
		"before which": func(c *comm) error { c.Start(iallreduce(1)); return c.drain(nil, allreduce(1)) },
	} {
		for _, copies := range []bool{true, false} {
			b := boards(t, 2)
			for i := range b {
				b[i].cfg.Copies = copies
			}
			all := open(t, b, 0)
			b[0].Mark(1, loss)
			if err := make(all[1]); !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), loss.Text) {
				t.Errorf("%s: %v, want %v", name, err, loss)
			}
		}
	}
}

// A rank has given its call up at its deadline, and its buffer back to the system, while another one reads that. The
// reader finds the reason. It does not take the rank for lost, though no message about it has arrived.
func TestBufferOfCallThatWasGivenUpIsNoLoss(t *testing.T) {
	mem, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	all := open(t, boards(t, 3), 0)
	call := allreduce(len(mem) / 8)
	call.Send = mem
	all[2].Start(iallreduce(1)) // which differs, but rank 0 does not wait for it here
	all[1].call = call
	all[1].arrive(call)
	all[0].arrive(allreduce(call.Count))
	if !all[0].checkArrival(1) {
		t.Fatal("rank 1 has not arrived")
	}
	timeout := &backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"}
	all[1].Ended(timeout)
	all[1].retract()
	addr := shmem.Addr(mem)
	if err := syscall.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	err = all[0].side.read(1, addr, make([]byte, 8))
	if !errors.Is(err, backend.ErrTimeout) || !strings.Contains(err.Error(), timeout.Text) || all[0].suspected.Load() != nil {
		t.Errorf("%v, want %v; rank 1 is taken for lost: %v", err, timeout, all[0].suspected.Load() != nil)
	}
	// Nor is the error of the copy returned if the communicator has ended while the rank stands: it has died.
	dead := open(t, boards(t, 2), 0)
	dead[1].arrive(allreduce(1000))
	dead[0].arrive(allreduce(1000))
	dead[0].checkArrival(1)
	dead[0].ended.Store(loss)
	if err := dead[0].side.read(1, addr, make([]byte, 8)); err != error(loss) {
		t.Errorf("a copy from a rank that is lost: %v, want %v", err, loss)
	}
	// Data copied while the call was given up are no result either.
	buf := []byte("somebody else's")
	if err = all[0].side.read(1, shmem.Addr(buf), make([]byte, 8)); !errors.Is(err, backend.ErrTimeout) {
		t.Errorf("a copy of a buffer that was given back: %v, want %v", err, timeout)
	}
}

// A rank makes some calls in which it does not wait, some in which it does, and then one that differs from the others'.
// All ranks are told when they close the communicator, at the latest, also if none of them waits.
func TestCloseTellsOfMismatchAfterOtherCalls(t *testing.T) {
	const ranks = 5
	for between := range 2*slotsDeep + 2 {
		for _, neighbors := range []bool{false, true} {
			all := open(t, boards(t, ranks), 0)
			gather := func(c *comm, root, number int) error {
				call, _ := rooted(backend.Gather, c.rank, ranks, root, 1, number)
				_, err := c.Run(nil, call)
				return err
			}
			errs := each(all, func(c *comm) error {
				must.OK(gather(c, ranks-1, 0))
				for range between {
					must.OK(barrier(c))
				}
				switch {
				case neighbors:
					typ := int64s
					if c.rank == 1 {
						typ = bytes1
					}
					_, err := c.Run(nil, &backend.Call{Coll: backend.NeighborAllgather, Root: -1, Type: typ, Neighbors: &backend.Neighbors{}})
					return err
				case c.rank == 1:
					return barrier(c)
				}
				return gather(c, ranks-1, 1)
			})
			closed := each(all, func(c *comm) error {
				if errs[c.rank] != nil {
					return nil
				}
				return c.Quiesce()
			})
			for r := range all {
				if err := errors.Join(errs[r], closed[r]); !errors.Is(err, backend.ErrMismatch) {
					t.Errorf("%d calls in between, neighbors %v: rank %d: the call returns %v, Close %v, want ErrMismatch", between, neighbors, r, errs[r], closed[r])
				}
			}
		}
	}
}

// A call whose time ends in a synchronization does not say that ranks have not arrived that have.
func TestSynchronizationNamesWhoHasNotFinished(t *testing.T) {
	all := open(t, boards(t, 3), 0)
	for _, c := range all {
		c.call = &backend.Call{Coll: backend.Barrier, Root: -1}
		c.arrive(c.call)
	}
	all[1].syncSeq++
	all[1].mine.syncs[1].key.Store(all[1].keyOf(1))
	err := all[0].sync(&backend.Bound{Timeout: time.Millisecond}, nil, nil)
	if want := "waited in Barrier() for ranks that had not finished their part: 2"; !errors.Is(err, backend.ErrTimeout) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want ErrTimeout with %q", err, want)
	}
}

// stopping is a communicator whose rank is stopped between two steps: it calls stop when it has first been asked
// whether it has ended.
type stopping struct {
	*comm
	stop func()
}

func (s *stopping) Over() error {
	err, stop := s.comm.Over(), s.stop
	if s.stop = func() {}; stop != nil {
		stop()
	}
	return err
}

// A rank finds out that another one has broken the communicator, and is stopped. The others lose it, close the
// communicator, and give the slots back, so that the reason is gone. Its call returns the loss, and not nil.
func TestStoppedRankThatSawAnEndIsLost(t *testing.T) {
	bs := boards(t, 2)
	other := &comm{rank: 0, all: make([]*comm, 2)}
	slow := &stopping{comm: &comm{rank: 1, all: other.all}}
	other.all[0], other.all[1] = other, slow.comm
	for r, c := range []Comm{other, slow} {
		var err error
		if other.all[r].Collective, err = bs[r].Open(c, 1, []int{0, 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(each(other.all, barrier)...); err != nil {
		t.Fatal(err)
	}
	other.BreakHere(&backend.Fault{Sentinel: backend.ErrMismatch, Text: "broken by rank 0"})
	slow.stop = func() {
		bs[0].Mark(1, loss)
		closeAll(other.all[:1])
	}
	if _, err := slow.Run(nil, allreduce(1)); err != ErrEnded || !errors.Is(slow.Over(), backend.ErrPeerLost) {
		t.Errorf("the call ends with %v, and the communicator with %v, want ErrPeerLost", err, slow.Over())
	}
}

// A rank that learns of its own loss while another one writes why waits for the reason.
func TestLostRankWaitsForTheReason(t *testing.T) {
	b := boards(t, 2)
	h := b[0].head(1)
	h.lost.Store(lostMarking)
	time.AfterFunc(5*time.Millisecond, func() {
		h.reason.set(loss)
		h.lost.Store(lostMarked)
	})
	if f := b[1].Lost(1); f == nil || f.Text != loss.Text {
		t.Errorf("got %v, want %v", f, loss)
	}
}
