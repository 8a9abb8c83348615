//go:build linux

package board

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// The offsets in shared memory are computed from constants; the compiler's sizes must be the same.
func TestLayoutHasCompilersSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"callSlot", unsafe.Sizeof(callSlot{}), callSlotSize},
		{"syncSlot", unsafe.Sizeof(syncSlot{}), syncSlotSize},
		{"slots", unsafe.Sizeof(slots{}), slotsSize},
		{"head", unsafe.Sizeof(head{}), headSize},
	} {
		if c.got != c.want {
			t.Errorf("%s has %d bytes, the layout has %d", c.name, c.got, c.want)
		}
	}
}

// comm is a communicator of ranks that are goroutines of this process.
type comm struct {
	*Collective
	rank      int
	all       []*comm
	ended     atomic.Pointer[backend.Fault]
	cause     atomic.Pointer[backend.Fault]
	closed    atomic.Bool
	gone      atomic.Bool // for the others
	suspected atomic.Pointer[error]
	mixed     []uint32 // the numbers of the calls for which Mixed was called
	refresh   func()
}

func (c *comm) Rank() int             { return c.rank }
func (c *comm) Size() int             { return len(c.all) }
func (c *comm) Cause() *backend.Fault { return c.cause.Load() }
func (c *comm) Gone(rank int) bool    { return c.all[rank].gone.Load() }
func (c *comm) GoneFault(rank int) error {
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "a rank is gone"}
}

func (c *comm) Excluded(why *backend.Fault) {
	c.Ended(why)
	c.ended.CompareAndSwap(nil, why)
}

func (c *comm) BreakHere(f *backend.Fault) {
	if c.cause.Load() == nil && c.Collective != nil {
		c.Ended(f)
		c.cause.CompareAndSwap(nil, f)
	}
}

func (c *comm) Suspect(rank int, err error)                { c.suspected.Store(&err) }
func (c *comm) Waits(*backend.Call)                        {}
func (c *comm) Mixed(seq uint32, made backend.Fingerprint) { c.mixed = append(c.mixed, seq) }

func (c *comm) Over() error {
	for _, f := range []*backend.Fault{c.ended.Load(), c.cause.Load()} {
		if f != nil {
			return f
		}
	}
	if c.closed.Load() {
		return errClosed
	}
	return nil
}

func (c *comm) Refresh() {
	if c.refresh != nil {
		c.refresh()
	}
}

func (c *comm) Break(err error) {
	for _, x := range c.all {
		x.BreakHere(err.(*backend.Fault))
	}
}

func (c *comm) Await(b *backend.Bound, p backend.Pending) error {
	for start := time.Now(); !p.Ready(); runtime.Gosched() {
		if b.Limited() {
			if err := b.Err(start); err != nil {
				return err
			}
		}
	}
	return nil
}

// boards returns the boards of ranks that share memory.
func boards(t testing.TB, ranks int) []*Board {
	t.Helper()
	start, more := Size(ranks)
	first := int(start)
	seg, err := shmem.CreateSparse("board-test", first+int(more), first)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seg.Close() })
	all := make([]*Board, ranks)
	for r := range all {
		all[r] = New(Config{Segment: seg, More: first, Rank: r, Ranks: slices.Repeat([]*shmem.Process{shmem.Self().Process()}, ranks), Copies: true, Wake: func(int) {}})
	}
	return all
}

// open makes a communicator of all ranks.
func open(t testing.TB, boards []*Board, id uint32) []*comm {
	t.Helper()
	all, ranks := make([]*comm, len(boards)), make([]int, len(boards))
	for r := range boards {
		all[r], ranks[r] = &comm{rank: r, all: all}, r
	}
	for r, b := range boards {
		var err error
		if all[r].Collective, err = b.Open(all[r], id, ranks); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// each calls f on every rank at the same time, and returns the errors.
func each(all []*comm, f func(c *comm) error) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for r, c := range all {
		wg.Go(func() { errs[r] = must.Return(f)(c) })
	}
	wg.Wait()
	return errs
}

// succeed calls f on all ranks at once, which must not fail.
func succeed(t *testing.T, all []*comm, f func(c *comm) error) {
	t.Helper()
	for r, err := range each(all, f) {
		if err != nil {
			t.Errorf("rank %d of %d: %v", r, len(all), err)
		}
	}
}

func barrier(c *comm) error {
	_, err := c.Run(nil, &backend.Call{Coll: backend.Barrier, Root: -1})
	return err
}

var (
	bytes1 = &backend.Datatype{Kind: backend.Uint8, Size: 1, Name: "uint8", ID: uint32(backend.Uint8)}
	int64s = &backend.Datatype{Kind: backend.Int64, Size: 8, Name: "int64", ID: uint32(backend.Int64)}
	sum    = &backend.Op{Code: backend.OpSum, Commutative: true, Type: int64s, Apply: kernel.For(backend.OpSum, backend.Int64)}
)

// allreduce adds n numbers of each rank.
func allreduce(n int) *backend.Call {
	return &backend.Call{Coll: backend.Allreduce, Root: -1, Op: sum, Type: int64s, Count: n, Send: make([]byte, 8*n), Recv: make([]byte, 8*n)}
}

// TestAllreduceAddsUp has data that are in the slots (up to 32 bytes, or more), in areas, and data that are copied.
func TestAllreduceAddsUp(t *testing.T) {
	for _, ranks := range []int{1, 2, 3} {
		all := open(t, boards(t, ranks), 0)
		for _, n := range []int{0, 1, 4, 5, 256, 257, 4096, 4097, 40000} {
			succeed(t, all, func(c *comm) error {
				call := allreduce(n)
				for i := range n {
					binary.NativeEndian.PutUint64(call.Send[8*i:], uint64(i<<c.rank))
				}
				done, err := c.Run(nil, call)
				for i := range n {
					if got := binary.NativeEndian.Uint64(call.Recv[8*i:]); got != uint64(i*(1<<ranks-1)) {
						t.Errorf("%d ranks: element %d of %d is %d", ranks, i, n, got)
						break
					}
				}
				if !done {
					t.Errorf("Allreduce of %d is left to schedules", n)
				}
				return err
			})
		}
	}
}

// The process of rank 1 has ended, and its number belongs to a process that has other data at the same addresses.
func TestAnotherProcessIsNotCopiedFrom(t *testing.T) {
	if os.Getenv("BOARD_TEST") != "" {
		io.Copy(io.Discard, os.Stdin)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "BOARD_TEST=sleep")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	all := boards(t, 2)
	for _, b := range all {
		b.cfg.Ranks = []*shmem.Process{shmem.Self().Process(), shmem.Self().Process()}
	}
	all[0].cfg.Ranks[1].PID = cmd.Process.Pid
	world := open(t, all, 0)
	errs := each(world, func(c *comm) error {
		_, err := c.Run(nil, allreduce(40000))
		return err
	})
	if why := world[0].suspected.Load(); errs[0] == nil || why == nil || !shmem.Gone(*why) {
		t.Errorf("rank 0: %v, and rank 1 is lost because of %v", errs[0], why)
	}
}

func TestCommunicatorsRunOut(t *testing.T) {
	for _, c := range []struct{ ranks, most int }{{1, 1024}, {16, 1024}, {256, 1024}} {
		b := boards(t, c.ranks)[0]
		var first *Collective
		for id := range uint32(c.most) {
			s, err := b.Open(&comm{}, id, []int{0})
			if err != nil {
				t.Fatalf("%d ranks: communicator %d: %v", c.ranks, id, err)
			}
			if first == nil {
				first = s
			}
		}
		if _, err := b.Open(&comm{}, 2000, []int{0}); !errors.Is(err, backend.ErrAlloc) || !strings.Contains(err.Error(), "close some") {
			t.Errorf("%d ranks: %v with %d communicators, want ErrAlloc", c.ranks, err, c.most+1)
		}
		first.Close()
		first.Close()
		if _, err := b.Open(&comm{}, 2001, []int{0}); err != nil {
			t.Errorf("%d ranks: %v after one is closed", c.ranks, err)
		}
		if _, err := b.Open(&comm{}, 2002, []int{0}); err == nil {
			t.Errorf("%d ranks: a communicator closed twice frees the slots of two", c.ranks)
		}
	}
}

// TestAreaWithoutMemoryBreaksTheCommunicator has calls whose data need an area when no memory can be allocated any more.
func TestAreaWithoutMemoryBreaksTheCommunicator(t *testing.T) {
	for _, form := range []backend.Form{backend.Blocking, backend.Nonblocking, backend.Persistent} {
		bs := boards(t, 2)
		all := open(t, bs, 0)
		bs[0].cfg.Segment.CloseFD()
		call := allreduce(slotData/8 + 1)
		call.Form = form
		var err error
		switch form {
		case backend.Blocking:
			_, err = all[0].Run(nil, call)
		case backend.Nonblocking:
			if all[0].Start(call) != nil {
				t.Error("an operation has started")
			}
			err = all[0].Over()
		case backend.Persistent:
			_, err = all[0].Persistent(call)
			all[0].Break(err)
		}
		if other := all[1].Over(); !errors.Is(err, backend.ErrAlloc) || other == nil || other.Error() != err.Error() {
			t.Errorf("%v: %v, on the other rank %v; want ErrAlloc", form, err, other)
		}
	}
}

// TestCallBesideCloseThatNeedsAreaIsClosed has this rank leave before a call has allocated its area.
func TestCallBesideCloseThatNeedsAreaIsClosed(t *testing.T) {
	all := open(t, boards(t, 2), 0)
	all[0].b.cfg.Segment.CloseFD()
	all[0].closed.Store(true)
	if _, err := all[0].Run(nil, allreduce(slotData/8+1)); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

// TestRanksFindSlotsAddedLater opens more communicators than have slots at the start, on each rank in another
// order.
func TestRanksFindSlotsAddedLater(t *testing.T) {
	const n = 2*slotsFirst + 1
	bs := boards(t, 2)
	comms := make([][]*comm, n)
	for id := range comms {
		all := make([]*comm, 2)
		for r := range all {
			all[r] = &comm{rank: r, all: all}
		}
		comms[id] = all
	}
	for i := range n {
		for r, id := range []int{i, n - 1 - i} {
			var err error
			if comms[id][r].Collective, err = bs[r].Open(comms[id][r], uint32(id), []int{0, 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, all := range comms {
		for r, err := range each(all, barrier) {
			if err != nil {
				t.Errorf("communicator %d, rank %d: %v", id, r, err)
			}
		}
	}
}

// TestSlotsOfUnusedCommunicatorAreGivenBack closes a communicator that had no collective. One that begins at
// the same time does not arrive.
func TestSlotsOfUnusedCommunicatorAreGivenBack(t *testing.T) {
	b := boards(t, 1)
	c := open(t, b, 1)[0]
	if c.Collective.CloseUnused(); !c.shut() {
		t.Error("the slots are not given back")
	}
	if err := barrier(c); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("a collective after that: %v, want ErrClosed", err)
	}
}

func TestErrorInSyncReachesAllRanks(t *testing.T) {
	all := open(t, boards(t, 3), 0)
	for r, err := range each(all, func(c *comm) error {
		if c.rank == 1 {
			return c.sync(nil, &backend.Fault{Sentinel: backend.ErrCount, Text: "because of the test"}, nil)
		}
		return c.sync(nil, nil, nil)
	}) {
		if !errors.Is(err, backend.ErrCount) || !strings.Contains(err.Error(), "because of the test") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestUnfinishedCallRetractsArrival: a call that fails is retracted, or the others would read what its owner
// changes.
func TestUnfinishedCallRetractsArrival(t *testing.T) {
	fault := &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "because of the test"}
	for _, c := range []struct {
		name  string
		make  func(all []*comm)
		bound *backend.Bound
		want  error
		text  string
	}{
		{"deadline", func([]*comm) {}, &backend.Bound{Timeout: 1}, backend.ErrTimeout, "had not arrived: 1, 2"},
		{"gone", func(all []*comm) { all[2].gone.Store(true); all[1].gone.Store(true) }, nil, backend.ErrPeerLost, "is gone"},
		{"ended", func(all []*comm) { all[0].ended.Store(fault) }, nil, backend.ErrPeerLost, fault.Text},
		{"broken", func(all []*comm) { all[0].cause.Store(fault) }, nil, backend.ErrPeerLost, fault.Text},
		{"closed", func(all []*comm) { all[0].closed.Store(true) }, nil, backend.ErrClosed, "closed"},
	} {
		all := open(t, boards(t, 3), 0)
		c.make(all)
		_, err := all[0].Run(c.bound, allreduce(1000))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", c.name, err, c.want, c.text)
		}
		if key := all[0].mine.calls[1].key; key != 0 {
			t.Errorf("%s: the arrival %x stays", c.name, key)
		}
		if broken := all[1].Cause() != nil; broken != (c.name == "deadline" || c.name == "gone") {
			t.Errorf("%s: the others find it broken: %v", c.name, broken)
		}
	}
}

// TestLostRankDoesNotTrustWhatItRead: a rank that was declared lost while it was stopped may have read the
// data of later calls.
func TestLostRankDoesNotTrustWhatItRead(t *testing.T) {
	b := boards(t, 2)
	all := open(t, b, 0)
	b[0].Mark(1, loss)
	all[0].gone.Store(true) // rank 0 has gone on without rank 1
	_, err := all[1].Run(nil, allreduce(1))
	if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), loss.Text) {
		t.Errorf("the call ends with %v, want %v", err, loss)
	}
	if b[1].Mark(0, loss) || b[0].Lost(0) != nil {
		t.Error("a rank that was declared lost declares another one lost")
	}
}

var loss = &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "rank 1 (this one) was declared lost because of the test"}

// TestBlockTableTooLongForSlot reads the table from the root's memory.
func TestBlockTableTooLongForSlot(t *testing.T) {
	const n = slotData/blockBytes + 4
	counts, displs, total := make([]int, n), make([]int, n), 0
	for r := range n {
		counts[r], displs[r] = r%5, total
		total += counts[r]
	}
	send := make([]byte, total)
	for i := range send {
		send[i] = byte(i * 7)
	}
	all := open(t, boards(t, n), 0)
	for _, root := range []int{0, n - 1} {
		succeed(t, all, func(c *comm) error {
			recv := make([]byte, counts[c.rank]+1)
			call := &backend.Call{Coll: backend.Scatterv, Root: root, Type: bytes1, Recv: recv[:counts[c.rank]]}
			if c.rank == root {
				call.Send, call.SendCounts, call.SendDispls = send, counts, displs
			}
			done, err := c.Run(nil, call)
			if !done || !slices.Equal(call.Recv, send[displs[c.rank]:displs[c.rank]+counts[c.rank]]) || recv[counts[c.rank]] != 0 {
				t.Errorf("rank %d got %v (done: %v)", c.rank, recv, done)
			}
			return err
		})
	}
}

var table []byte // on the heap, where it stays in its place

// TestPublishedValuesAreChecked has a peer publish a table of blocks that it has not got, and values out of
// range. Nothing behind the slots is read.
func TestPublishedValuesAreChecked(t *testing.T) {
	const many = slotData/blockBytes + 2
	table = make([]byte, many*blockBytes)
	for _, c := range []struct {
		name  string
		value uint64 // of each word of the table
		at    uint64 // its address
	}{
		{"no table", 0, 0},
		{"offset and length out of range", 1<<62 + 1, shmem.Addr(table)},
	} {
		for i := 0; i < len(table); i += 8 {
			binary.LittleEndian.PutUint64(table[i:], c.value)
		}
		all := open(t, boards(t, 2), 0)
		s := all[0].Collective
		s.side.call = &backend.Call{Coll: backend.Scatterv}
		s.ranks, s.slots = slices.Repeat([]int{1}, many), make([]atomic.Pointer[slots], many)
		for r := range s.slots {
			s.slots[r].Store(all[1].mine)
		}
		all[1].mine.calls[0].facts[factBlocks], all[1].mine.calls[0].key = c.at, s.keyOf(0)
		_, _, err := s.side.Block(1, many-1)
		if all[0].suspected.Load() != nil || !errors.Is(err, backend.ErrInternal) {
			t.Errorf("%s: %v; suspected: %v", c.name, err, all[0].suspected.Load() != nil)
		}
	}
	all := open(t, boards(t, 2), 0)
	s := all[0].Collective
	s.slots[1].Store(all[1].mine)
	all[1].mine.calls[0].key = s.keyOf(0)
	all[1].mine.calls[0].facts = [5]uint64{factIn: shmem.Addr(table), factInLen: 8}
	for _, off := range []int{1, 9, 1 << 30} {
		if _, err := s.side.Read(1, direct.In, off, make([]byte, 8)); !errors.Is(err, backend.ErrInternal) || all[1].Cause() == nil {
			t.Errorf("8 bytes at %d of a buffer of 8 bytes: %v", off, err)
		}
	}
}
