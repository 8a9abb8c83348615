//go:build interleave && linux

package board

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A root that does not wait is as far ahead as it may be, and the slots are used again, for data in the slot, beside it,
// and in an area.
func TestInterleaveCallsAhead(t *testing.T) {
	for _, c := range []struct{ n, calls, preemptions int }{{1, 6, 2}, {5, 4, 2}, {areaMost / 8, 4, 2}} {
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

// alone makes a call in which no rank waits, one of two.
func (p *party) alone(which int) error {
	_, err := p.Run(nil, &backend.Call{Coll: backend.NeighborAllgather + backend.Coll(which), Root: -1, Type: int64s, Neighbors: &backend.Neighbors{}})
	return err
}

// start starts a nonblocking call, and wait waits for it.
func (p *party) start(number int) (*Op, *backend.Call) {
	call := p.make(backend.Allreduce, -1, 1, number)
	call.Form = backend.Nonblocking
	return p.Start(call), call
}

func (p *party) wait(o *Op, call *backend.Call, number int) error {
	return p.waitFor(nil, o, call, number)
}

// waitFor waits for an operation until the bound ends it. One that did not start ends with its communicator.
func (p *party) waitFor(b *backend.Bound, o *Op, call *backend.Call, number int) error {
	if o == nil {
		return p.Over()
	}
	if why := p.Await(b, o); why != nil {
		_ = o.End(why)
	}
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
				o, _ := p.Persistent(calls[i])
				ops[i] = o.(*Op)
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
	explore(t, interleave.Config{Preemptions: 2}, false, 2, func(j *job, all []*party) {
		for range 2 { // calls that the ticker may compare
			for _, p := range all {
				p.fails("the call", p.alone(0))
			}
		}
		other := all[1] // is as far ahead as it may be
		other.fails("the call", other.alone(0))
		for _, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				for range slotsDeep - 2 - p.rank {
					p.fails("the call", p.alone(0))
				}
				if p.rank == 0 { // it uses the slot of the first call again
					p.fails("the last call", p.alone(1))
				}
			})
		}
		j.x.Go("ticker", func() {
			if err := all[0].Verify(); err != nil {
				j.x.Errorf("%v", err)
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
				err := p.run(nil, coll, 1, 1, 1)
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
				p.fails("the neighborhood", p.alone(0))
				p.fails("the neighborhood", p.alone(p.rank))
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
		for _, form := range []string{"blocking", "blocking, in areas", "nonblocking"} {
			t.Run(fmt.Sprintf("broken %v, %s", broken, form), func(t *testing.T) {
				n := 1
				if form == "blocking, in areas" {
					n = slotData/8 + 1
				}
				explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
					next := j.parties()
					call := func(p *party, number int) error {
						if form == "nonblocking" {
							if o, call := p.start(number); o != nil {
								return p.wait(o, call, number)
							}
							return errClosed
						}
						return p.run(nil, backend.Allreduce, -1, n, number)
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

// Two ranks declare a third one lost while all look at it. Whoever finds it lost finds one of the two reasons, which name
// it; the rank itself may find itself lost before the reason is there.
func TestInterleaveMark(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 2}, false, 3, func(j *job, _ []*party) {
		for r := range 3 {
			j.x.Go(fmt.Sprint("rank ", r), func() {
				b := j.boards[r]
				if r == 2 {
					if known := b.lost(); known && b.Lost(2) == nil {
						j.x.Errorf("rank 2 was declared lost, and has no error")
					}
					return
				}
				text := "rank 2 was declared lost by rank "
				b.Mark(2, &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprint(text, r)})
				if f := b.Lost(2); f != nil && !strings.HasPrefix(f.Text, text) {
					j.x.Errorf("the error of rank %d does not name rank 2: %v", r, f)
				}
			})
		}
	})
}

// A deadline passes while a call completes, or is found to differ from the other's. Without an error the communicator is
// as good as before, and a rank whose call ends by the other's deadline finds that as the reason: it names a rank.
func TestInterleaveDeadline(t *testing.T) {
	for _, form := range []string{"blocking", "nonblocking", "blocking after nonblocking", "mismatch"} {
		t.Run(form, func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: interleave.Long(2)}, false, 2, func(j *job, all []*party) {
				for _, p := range all {
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						b := bounded
						if p.rank == 1 {
							b = nil
						}
						var err error
						if form != "blocking" {
							call := p.make(backend.Allreduce, -1, 1, 0)
							if call.Form = backend.Nonblocking; form == "mismatch" {
								call.Root = p.rank
							}
							if o := p.Start(call); form != "blocking after nonblocking" {
								err = p.waitFor(b, o, call, 0)
							}
						}
						if strings.HasPrefix(form, "blocking") {
							err = p.run(b, backend.Allreduce, -1, 1, 1)
						}
						ends := []error{backend.ErrTimeout}
						if form == "mismatch" {
							ends = append(ends, backend.ErrMismatch)
						}
						p.fails("the call", err, ends...)
						if p.rank == 0 && errors.Is(err, backend.ErrTimeout) && !strings.HasSuffix(err.Error(), ": 1") {
							j.x.Errorf("the error does not name the other rank: %v", err)
						}
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

// Two ranks start a persistent operation at once, and wait for the third, which sleeps until all have arrived. One of the
// two wakes it.
func TestInterleavePersistentArriveAtOnce(t *testing.T) {
	explore(t, interleave.Config{Preemptions: 1}, true, 3, func(j *job, all []*party) {
		j.sleeps = true
		var message word.Bool
		var ops [3]*Op
		var calls [3]*backend.Call
		for r, p := range all {
			calls[r] = p.make(backend.Allreduce, -1, 1, 0)
			calls[r].Form = backend.Persistent
			o, _ := p.Persistent(calls[r])
			ops[r] = o.(*Op)
		}
		for r, p := range all {
			j.x.Go(fmt.Sprint("rank ", p.rank), func() {
				ops[r].Start()
				if r == 2 {
					p.fails("persistent", p.wait(ops[r], calls[r], 0))
					message.Store(true)
					return
				}
				for !message.Load() { // a receive from rank 2
					word.Yield()
				}
				p.fails("persistent", p.wait(ops[r], calls[r], 0))
			})
		}
	})
}
