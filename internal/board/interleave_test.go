//go:build interleave && linux

package board

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// party is one rank's end of a communicator. It learns of the others by the slots, and by gone.
type party struct {
	*Collective
	j    *job
	rank int
	all  []*party
	over word.Pointer[backend.Fault]
	gone word.Bool // for the others
}

// job is what the ranks of an exploration share.
type job struct {
	x       *interleave.Run
	boards  []*Board
	engines []word.Mutex
	late    word.Bool // deadlines have passed
	sleeps  bool      // a rank that waits sleeps, after it has announced that
	asleep  []word.Uint32
	bells   []word.Uint32
}

func (p *party) Rank() int                   { return p.rank }
func (p *party) Size() int                   { return len(p.all) }
func (p *party) Gone(rank int) bool          { return p.all[rank].gone.Load() }
func (p *party) Refresh()                    {}
func (p *party) Excluded(why *backend.Fault) { p.BreakHere(why) }
func (p *party) Suspect(rank int, err error) {
	p.j.x.Errorf("rank %d suspects %d: %v", p.rank, rank, err)
}
func (p *party) Waits(*backend.Call)               {}
func (p *party) Mixed(uint32, backend.Fingerprint) {}

func (p *party) GoneFault(rank int) error {
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "the other has closed the communicator"}
}

func (p *party) Over() error {
	if f := p.over.Load(); f != nil {
		return f
	}
	return nil
}

var closed = errClosed.(*backend.Fault)

func (p *party) BreakHere(f *backend.Fault) {
	p.j.engines[p.rank].Lock()
	if was := p.over.Load(); was == nil || was == closed {
		p.Ended(f)
		p.over.Store(f)
	}
	p.j.engines[p.rank].Unlock()
}

func (p *party) Break(err error) {
	p.BreakHere(err.(*backend.Fault))
	for r := range p.all {
		if r != p.rank {
			p.b.Post(r)
		}
	}
}

// bounded is the bound of a call that ends when job.late says so.
var bounded = &backend.Bound{}

var errLate = &backend.Fault{Sentinel: backend.ErrTimeout, Text: "the time is over"}

func (p *party) Await(b *backend.Bound, pending backend.Pending) error {
	for !pending.Ready() {
		if b == bounded && p.j.late.Load() {
			return errLate
		}
		if !p.j.sleeps {
			word.Yield()
			continue
		}
		bell := &p.j.bells[p.rank]
		rung := bell.Load()
		p.j.asleep[p.rank].Store(1)
		if !pending.Ready() {
			word.FutexWait(bell, rung, 0)
		}
		p.j.asleep[p.rank].Store(0)
	}
	return nil
}

// wake wakes a rank if it has announced its sleep.
func (j *job) wake(rank int) {
	if j.asleep[rank].Load() != 0 {
		j.bells[rank].Add(1)
		word.FutexWake(&j.bells[rank], 1)
	}
}

// open makes a rank's end of a communicator.
func (p *party) open(id uint32) {
	ranks := make([]int, len(p.all))
	for r := range ranks {
		ranks[r] = r
	}
	p.j.engines[p.rank].Lock()
	s, err := p.j.boards[p.rank].Open(p, id, ranks)
	p.j.engines[p.rank].Unlock()
	if err != nil {
		p.j.x.Errorf("%v", err)
	}
	p.Collective = s
}

func (j *job) parties() []*party {
	all := make([]*party, len(j.boards))
	for r := range all {
		all[r] = &party{j: j, rank: r, all: all}
	}
	return all
}

// close closes a communicator on a rank, which then forgets it if the others have closed it too.
func (p *party) close() error {
	err := p.Quiesce()
	p.j.engines[p.rank].Lock()
	p.over.CompareAndSwap(nil, closed)
	p.Ended(nil)
	p.Collective.Close(true)
	p.j.engines[p.rank].Unlock()
	p.gone.Store(true)
	return err
}

// forget waits until all have closed the communicator, and gives the slots back.
func (p *party) forget() {
	for r := range p.all {
		for !p.all[r].gone.Load() {
			word.Yield()
		}
	}
	p.j.engines[p.rank].Lock()
	p.Collective.Close(false)
	p.j.engines[p.rank].Unlock()
}

// explore explores ranks with slots as new, and a communicator. With buffered their keys become visible later, as they
// may on amd64; this takes more schedules. explore explores ranks whose slots are as new, and that have a communicator.
func explore(t *testing.T, cfg interleave.Config, buffered bool, ranks int, program func(j *job, all []*party)) {
	first, more := Size(ranks)
	seg, err := shmem.CreateSparse("board-interleave", first+more, first)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	ordered = !buffered
	memory := shmem.Slice[byte](seg, 0, first)
	interleave.Explore(t, cfg, func(x *interleave.Run) {
		clear(memory)
		j := &job{x: x, boards: make([]*Board, ranks), engines: make([]word.Mutex, ranks), asleep: make([]word.Uint32, ranks), bells: make([]word.Uint32, ranks)}
		for r := range j.boards {
			j.boards[r] = New(Config{Segment: seg, More: first, Rank: r, PIDs: slices.Repeat([]int{os.Getpid()}, ranks), Copies: true, Wake: j.wake})
		}
		all := j.parties()
		for _, p := range all {
			p.open(1)
		}
		for _, p := range all {
			for r := range all {
				p.of(r)
			}
			x.Name(&p.gate, "gate of rank %d", p.rank)
			for k := range p.mine.calls {
				x.Name(&p.mine.calls[k].key, "key %d of rank %d", k, p.rank)
			}
			x.Name(&p.mine.ended, "ended of rank %d", p.rank)
		}
		program(j, all)
	})
}

// value is what a rank gives in its number-th call.
func value(rank, number int) int { return 100*number + 10*rank + 1 }

// right checks a call that has ended without an error.
func (p *party) right(call *backend.Call, number int, err error) {
	want := 0
	switch {
	case err != nil:
		return
	case call.Coll == backend.Bcast:
		want = value(call.Root, number)
	case call.Coll == backend.Allreduce:
		for r := range p.all {
			want += value(r, number)
		}
	default:
		return
	}
	if got := binary.NativeEndian.Uint64(call.Recv[len(call.Recv)-8:]); got != uint64(want) {
		p.j.x.Errorf("rank %d: %v, call %d: no error, and the result is %d, want %d", p.rank, call.Coll, number, got, want)
	}
}

// call makes a call of n numbers.
func (p *party) make(coll backend.Coll, root, n, number int) *backend.Call {
	call := &backend.Call{Coll: coll, Root: root}
	switch coll {
	case backend.Barrier:
		return call
	case backend.Bcast:
		call.Type, call.Count, call.Recv = int64s, n, make([]byte, 8*n)
		if root == p.rank {
			call.Send = call.Recv
			put(call, value(p.rank, number))
			call.Send = nil
		}
	case backend.Gather:
		call.Type, call.Count, call.Send = int64s, n, make([]byte, 8*n)
		if root == p.rank {
			call.Recv = make([]byte, 8*n*len(p.all))
		}
	default:
		*call = *allreduce(n)
		put(call, value(p.rank, number))
	}
	return call
}

// run makes a blocking call.
func (p *party) run(b *backend.Bound, coll backend.Coll, root, n, number int) error {
	call := p.make(coll, root, n, number)
	_, err := p.Run(b, call)
	p.right(call, number, err)
	return err
}

// fails reports an error that is none of the sentinels.
func (p *party) fails(what string, err error, sentinels ...error) {
	if err != nil && !slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		p.j.x.Errorf("rank %d: %s: %v", p.rank, what, err)
	}
}

// A root that does not wait is as far ahead as it may be, and the slots are used again, for data in the slot and beside
// it.
func TestInterleaveCallsAhead(t *testing.T) {
	for _, c := range []struct{ n, calls, preemptions int }{{1, 6, 2}, {5, 4, 2}} {
		t.Run(fmt.Sprint(c.n), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: c.preemptions}, false, 2, func(j *job, all []*party) {
				for _, p := range all {
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						for number := range c.calls {
							p.fails("Bcast", p.run(nil, backend.Bcast, 0, c.n, number))
						}
					})
				}
			})
		})
	}
}

// Three ranks, of which each needs others.
func TestInterleaveThreeRanks(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, false, 3, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				p.fails("Bcast", p.run(nil, backend.Bcast, 0, 1, 0))
				p.fails("Allreduce", p.run(nil, backend.Allreduce, -1, 1, 1))
			})
		}
	})
}

// start starts a nonblocking call, and wait waits for it.
func (p *party) start(number int) (*Op, *backend.Call) {
	call := p.make(backend.Allreduce, -1, 1, number)
	call.Form = backend.Nonblocking
	return p.Start(call), call
}

func (p *party) wait(o *Op, call *backend.Call, number int) error {
	_ = p.Await(nil, o)
	err := o.Err()
	p.right(call, number, err)
	return err
}

// Nonblocking operations are under way beside a blocking call.
func TestInterleaveNonblocking(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 2}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				first, one := p.start(0)
				second, two := p.start(1)
				if p.rank == 0 {
					p.fails("Barrier", p.run(nil, backend.Barrier, -1, 0, 2))
				}
				p.fails("the second", p.wait(second, two, 1))
				p.fails("the first", p.wait(first, one, 0))
				if p.rank == 1 {
					p.fails("Barrier", p.run(nil, backend.Barrier, -1, 0, 2))
				}
			})
		}
	})
}

// Ranks start two persistent operations in different orders, twice.
func TestInterleavePersistent(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			var ops [2]*Op
			var calls [2]*backend.Call
			for i := range ops {
				calls[i] = p.make(backend.Allreduce, -1, 1, i)
				calls[i].Form = backend.Persistent
				ops[i], _ = p.Persistent(calls[i])
			}
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				for range 2 {
					for _, i := range []int{p.rank, 1 - p.rank} {
						ops[i].Start()
					}
					for i, o := range ops {
						p.fails("persistent", p.wait(o, calls[i], i))
					}
				}
			})
		}
	})
}

// Ranks sleep until another one arrives, in blocking calls and in others. Arrivals become visible late.
func TestInterleaveSleep(t *testing.T) {
	for _, nonblocking := range []bool{false, true} {
		t.Run(fmt.Sprint(nonblocking), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 1}, true, 2, func(j *job, all []*party) {
				j.sleeps = true
				for _, p := range all {
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						if nonblocking {
							o, call := p.start(0)
							p.fails("Iallreduce", p.wait(o, call, 0))
						} else {
							p.fails("Bcast", p.run(nil, backend.Bcast, 0, 1, 0))
						}
						p.fails("Allreduce", p.run(nil, backend.Allreduce, -1, 1, 1))
					})
				}
			})
		})
	}
}

// The ticker compares slots while they are used again.
func TestInterleaveVerifyBesideCalls(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				for number := range slotsDeep + 2 {
					coll := backend.Bcast
					if number >= slotsDeep {
						coll = backend.Barrier
					}
					p.fails("the call", p.run(nil, coll, 0, 1, number))
				}
			})
		}
		j.x.Go("ticker", func() {
			for range 2 {
				if err := all[0].Verify(); err != nil {
					j.x.Errorf("%v", err)
				}
			}
		})
	})
}

// Calls differ in which some ranks do not wait. Every rank is told, by Close at the latest, while the ticker of one
// compares too.
func TestInterleaveVerdict(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				p.fails("Gather", p.run(nil, backend.Gather, 1, 1, 0))
				coll := backend.Gather
				if p.rank == 1 {
					coll = backend.Barrier
				}
				err := errors.Join(p.run(nil, coll, 1, 1, 1))
				if err != nil {
					p.Reported.Store(true)
				}
				if err = errors.Join(err, p.close()); !errors.Is(err, backend.ErrMismatch) {
					j.x.Errorf("rank %d is not told of the mismatch: %v", p.rank, err)
				}
			})
		}
		j.x.Go("ticker", func() { _ = all[0].Verify() })
	})
}

// Calls differ in which all ranks wait. Every rank gets the same error.
func TestInterleaveMismatch(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 2}, false, 2, func(j *job, all []*party) {
		var texts [2]string
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				coll := backend.Barrier
				if p.rank == 1 {
					coll = backend.Allreduce
				}
				err := p.run(nil, coll, -1, 1, 0)
				texts[p.rank] = fmt.Sprint(err)
				if !errors.Is(err, backend.ErrMismatch) {
					j.x.Errorf("rank %d: %v", p.rank, err)
				}
			})
		}
		j.x.Check(func() error {
			if texts[0] != texts[1] {
				return fmt.Errorf("the ranks end with %q", texts)
			}
			return nil
		})
	})
}

// A verdict is deferred for longer than the slots last.
func TestInterleaveVerdictOfOldCall(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				p.fails("Gather", p.run(nil, backend.Gather, 1, 1, 0))
				for number := range slotsDeep {
					p.fails("Barrier", p.run(nil, backend.Barrier, -1, 0, 1+number))
				}
				for _, coll := range []backend.Coll{backend.NeighborAllgather, backend.NeighborAllgather + backend.Coll(p.rank)} { // neither waits
					_, err := p.Run(nil, &backend.Call{Coll: coll, Root: -1, Type: int64s, Neighbors: &backend.Neighbors{}})
					p.fails("the neighborhood", err)
				}
				if err := p.close(); !errors.Is(err, backend.ErrMismatch) {
					j.x.Errorf("rank %d is not told of the mismatch: %v", p.rank, err)
				}
			})
		}
	})
}

// A goroutine is in a collective while all close the communicator, and its slots go to another one.
func TestInterleaveReuse(t *testing.T) {
	for _, broken := range []bool{false, true} {
		for _, nonblocking := range []bool{false, true} {
			t.Run(fmt.Sprintf("broken %v, nonblocking %v", broken, nonblocking), func(t *testing.T) {
				explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
					next := j.parties()
					call := func(p *party, number int) error {
						if nonblocking {
							if o, call := p.start(number); o != nil {
								return p.wait(o, call, number)
							}
							return errClosed
						}
						return p.run(nil, backend.Allreduce, -1, 1, number)
					}
					again := func(p *party) {
						p.forget()
						next[p.rank].open(2)
						p.fails("the next communicator's", call(next[p.rank], 7))
					}
					ended := []error{backend.ErrClosed, backend.ErrPeerLost, backend.ErrBroken}
					j.x.Go("rank 0", func() { all[0].fails("the call", call(all[0], 0), ended...) })
					j.x.Go("closer of rank 0", func() {
						if broken {
							all[0].Break(&backend.Fault{Sentinel: backend.ErrBroken, Text: "revoked"})
						}
						_ = all[0].close()
						again(all[0])
					})
					j.x.Go("rank 1", func() {
						all[1].fails("the call", call(all[1], 0), ended...)
						_ = all[1].close()
						again(all[1])
					})
				})
			})
		}
	}
}

// Rank 1 was stopped in a collective. Rank 0 declares it lost, and uses the slots again without it. Rank 1 may close
// its communicator at the same time.
func TestInterleaveLost(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint(closes), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
				j.x.Go("rank 0", func() {
					all[0].fails("the call", all[0].run(bounded, backend.Allreduce, -1, 1, 0), backend.ErrTimeout, backend.ErrPeerLost)
					j.boards[0].Mark(1, loss)
					_ = all[0].close()
					all[1].gone.Store(true) // for rank 0
					all[0].forget()
					alone := &party{j: j, rank: 0, all: make([]*party, 1)}
					alone.all[0] = alone
					alone.open(2)
					alone.fails("alone", alone.run(nil, backend.Allreduce, -1, 1, 7))
					alone.fails("alone", alone.run(nil, backend.Allreduce, -1, 1, 8))
				})
				j.x.Go("rank 1", func() {
					all[1].fails("the call", all[1].run(nil, backend.Allreduce, -1, 1, 0), backend.ErrPeerLost, backend.ErrTimeout, backend.ErrClosed)
					all[1].fails("the second", all[1].run(nil, backend.Allreduce, -1, 1, 1), backend.ErrPeerLost, backend.ErrTimeout, backend.ErrClosed)
				})
				if closes {
					j.x.Go("closer of rank 1", func() { _ = all[1].close() })
				}
				j.x.Go("clock", func() { j.late.Store(true) })
			})
		})
	}
}

// A deadline passes while a call completes. Without an error the communicator is as good as before, and a rank whose
// call ends by the other's deadline finds that as the reason.
func TestInterleaveDeadline(t *testing.T) {
	for _, nonblocking := range []bool{false, true} {
		t.Run(fmt.Sprint(nonblocking), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 2}, false, 2, func(j *job, all []*party) {
				for _, p := range all {
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						b := bounded
						if p.rank == 1 {
							b = nil
						}
						var err error
						if nonblocking {
							o, call := p.start(0)
							if why := p.Await(b, o); why != nil {
								_ = o.End(why)
							}
							err = o.Err()
							p.right(call, 0, err)
						} else {
							err = p.run(b, backend.Allreduce, -1, 1, 0)
						}
						p.fails("the call", err, backend.ErrTimeout)
						if over := p.over.Load(); p.rank == 0 && (err == nil) != (over == nil) {
							j.x.Errorf("the call ends with %v, and the communicator with %v", err, over)
						}
					})
				}
				j.x.Go("clock", func() { j.late.Store(true) })
			})
		})
	}
}

// Ranks synchronize in the middle of a collective, and one finds an error or runs out of time.
func TestInterleaveSynchronization(t *testing.T) {
	found := &backend.Fault{Sentinel: backend.ErrCount, Text: "because of the test"}
	explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				p.call = &backend.Call{Coll: backend.Barrier, Root: -1}
				p.arrive(p.call)
				b := bounded
				if p.rank == 0 {
					b = nil
				}
				err := p.Collective.wait(b)
				for i := 0; i < 3 && err == nil; i++ {
					var bad error
					if i == 2 && p.rank == 1 {
						bad = found
					}
					err = p.sync(b, bad, nil)
				}
				if err == nil {
					j.x.Errorf("rank %d does not find the error", p.rank)
				}
				p.fails("synchronization", err, backend.ErrCount, backend.ErrTimeout)
				p.retract()
			})
		}
		j.x.Go("clock", func() { j.late.Store(true) })
	})
}
