//go:build interleave && linux

package board

import (
	"encoding/binary"
	"errors"
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
	p.Collective.CloseUnused()
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
	p.Collective.Close()
	p.j.engines[p.rank].Unlock()
}

// explore explores ranks whose slots are as new, and that have a communicator. With buffered their keys become visible
// later, as they may on amd64; this takes more schedules.
func explore(t *testing.T, cfg interleave.Config, buffered bool, ranks int, program func(j *job, all []*party)) {
	start, more := Size(ranks)
	first := int(start)
	seg, err := shmem.CreateSparse("board-interleave", first+int(more), first)
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
			j.boards[r] = New(Config{Segment: seg, More: first, Rank: r, Ranks: slices.Repeat([]*shmem.Process{shmem.Self().Process()}, ranks), Copies: true, Wake: j.wake})
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
	return p.do(b, p.make(coll, root, n, number), number)
}

func (p *party) do(b *backend.Bound, call *backend.Call, number int) error {
	_, err := p.Run(b, call)
	if err == ErrEnded {
		err = p.Over()
	}
	p.right(call, number, err)
	return err
}

// fails reports an error that is none of the sentinels.
func (p *party) fails(what string, err error, sentinels ...error) {
	if err != nil && !slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		p.j.x.Errorf("rank %d: %s: %v", p.rank, what, err)
	}
}
