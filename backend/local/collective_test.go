package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
	"github.com/cohort-hpc/cohort/internal/word"
)

// collective makes the seq-th collective of c.
func (c *Comm) collective(b *backend.Bound, call *backend.Call, seq int) error {
	call.Seq = uint32(seq)
	plan, err := c.Collective(b, call)
	if plan != backend.PlanDone && err == nil {
		return errors.New("the collective was left to a schedule")
	}
	return err
}

// someColls have all ways in which ranks read each other's buffers.
var someColls = []backend.Coll{backend.Allreduce, backend.Reduce, backend.Allgather, backend.Alltoall, backend.Bcast, backend.Scan}

// filled returns a rank's call of a collective of n ranks with blocks of count numbers, and a check of its result. All
// numbers of rank r are base+r.
func filled(coll backend.Coll, rank, n, count, base int) (call *backend.Call, check func() error) {
	numbers := func(blocks int, number func(block int) int) []byte {
		b := make([]byte, 0, 8*blocks*count)
		for i := range blocks * count {
			b = binary.LittleEndian.AppendUint64(b, uint64(number(i/count)))
		}
		return b
	}
	call = &backend.Call{Coll: coll, Root: -1, Type: ranktest.Int, Count: count}
	sent, received := 1, 1 // blocks
	result := func(block int) int { return base + block }
	switch coll {
	case backend.Bcast:
		call.Root = 0
	case backend.Allgather:
		received = n
	case backend.Alltoall:
		sent, received = n, n
	case backend.Reduce, backend.Allreduce:
		if call.Op = ranktest.Sum; coll == backend.Reduce {
			call.Root = 0
		}
		result = func(int) int { return n*base + n*(n-1)/2 }
	case backend.Scan:
		call.Op = ranktest.Sum
		result = func(int) int { return (rank+1)*base + rank*(rank+1)/2 }
	}
	mine := numbers(sent, func(int) int { return base + rank })
	switch {
	case coll == backend.Bcast:
		call.Recv = mine
	case coll == backend.Reduce && rank != 0:
		call.Send = mine
		return call, func() error { return nil }
	default:
		call.Send, call.Recv = mine, make([]byte, 8*received*count)
	}
	return call, func() error {
		if !bytes.Equal(call.Recv, numbers(received, result)) {
			return fmt.Errorf("rank %d of %d: %v of %d numbers from %d on has another result", rank, n, coll, count, base)
		}
		return nil
	}
}

func TestAllreduceOfAThousandRanks(t *testing.T) {
	const n = 1000
	ranks(t, n, func(t testing.TB, c *Comm) {
		send, recv := make([]byte, 8), make([]byte, 8)
		seq := 0
		for range 5 {
			must(t, c.collective(nil, &backend.Call{Coll: backend.Barrier, Root: -1}, seq))
			seq++
			binary.LittleEndian.PutUint64(send, uint64(c.rank+seq))
			must(t, c.collective(nil, &backend.Call{
				Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: 1, Send: send, Recv: recv}, seq))
			if got, want := binary.LittleEndian.Uint64(recv), uint64(n*(n-1)/2+n*seq); got != want {
				t.Errorf("rank %d: the sum is %d, want %d", c.rank, got, want)
			}
			seq++
		}
	})
}

// A rank that is canceled while its data moves does not complete the move.
func TestCancelStopsMovingData(t *testing.T) {
	const count, most = 4 << 20, 8 << 20 // numbers in a vector of 32 MiB, and bytes that may still be added
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	added := 0
	var errs [2]error
	ranks(t, 2, func(t testing.TB, c *Comm) {
		op, b := *ranktest.Sum, &backend.Bound{}
		if c.rank == 1 {
			b.Ctx = ctx
			op.Apply = func(dst, x, y []byte) {
				cancel()
				added += len(dst)
				ranktest.Sum.Apply(dst, x, y)
			}
		}
		errs[c.rank] = c.collective(b, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: &op, Type: ranktest.Int, Count: count,
			Send: make([]byte, 8*count), Recv: make([]byte, 8*count)}, 0)
	})
	for r, err := range errs {
		if !errors.Is(err, backend.ErrCanceled) || !strings.Contains(err.Error(), "rank 1 was in the middle of Allreduce") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if added > most {
		t.Errorf("%d bytes were added, want %d at most", added, most)
	}
}

// All ranks have arrived, and the last one calls a user's function for all of them when the time of another one is up.
func TestTimeoutSaysThatARankReduces(t *testing.T) {
	n := runtime.GOMAXPROCS(0) + 1 // without a processor each
	gone := make(chan struct{})
	var ended sync.WaitGroup
	ended.Add(n - 1)
	go func() {
		ended.Wait()
		close(gone)
	}()
	op := *ranktest.Sum
	op.Code, op.Apply = backend.OpUser, func(_, _, _ []byte) { <-gone }
	errs := make([]error, n)
	var left atomic.Int32
	ranks(t, n, func(t testing.TB, c *Comm) {
		errs[c.rank] = c.collective(&backend.Bound{Timeout: 100 * time.Millisecond, Since: time.Now()}, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: &op,
			Type: ranktest.Int, Count: 1, Send: make([]byte, 8), Recv: make([]byte, 8)}, 0)
		if left.Add(1) < int32(n) {
			ended.Done()
		}
	})
	said := 0
	for r, err := range errs {
		if !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("rank %d: %v", r, err)
		} else if strings.Contains(err.Error(), "all ranks have arrived, and the last one was reducing") {
			said++
		}
	}
	if said == 0 {
		t.Errorf("no error says which step takes long: %v", errs)
	}
}

// A rank that is canceled in the middle of a collective gets its buffers back:
// no rank reads them any more, which the race detector checks.
func TestCanceledRankGetsItsBuffersBack(t *testing.T) {
	const n, count = 3, 60_000
	trials := 60
	if testing.Short() {
		trials = 12
	}
	for i := range trials {
		coll := someColls[i%len(someColls)]
		scale := count
		if coll == backend.Allgather || coll == backend.Alltoall {
			scale /= n
		}
		ctx, cancel := context.WithCancel(context.Background())
		var errs, wrong [n]error
		var inside sync.WaitGroup
		inside.Add(n)
		go func() {
			inside.Wait()
			for range i * 100 { // at another moment each time
				_ = ctx.Err()
			}
			cancel()
		}()
		comms := New(n)
		each(comms, func(c *Comm) {
			call, check := filled(coll, c.rank, n, scale, 1)
			inside.Done()
			if c.rank == i%n {
				errs[c.rank] = c.collective(&backend.Bound{Ctx: ctx}, call, 0)
			} else {
				errs[c.rank] = c.collective(nil, call, 0)
			}
			if errs[c.rank] == nil {
				wrong[c.rank] = check()
			} else {
				clear(call.Send)
				clear(call.Recv)
			}
		})
		inside.Wait()
		cancel()
		failed := 0
		for r, err := range errs {
			if err != nil {
				failed++
				if !errors.Is(err, backend.ErrCanceled) {
					t.Errorf("%v: rank %d: %v", coll, r, err)
				}
			}
		}
		switch failed {
		case 0:
			must(t, errors.Join(wrong[:]...))
		case n:
		default:
			t.Errorf("%v: some ranks failed and others did not: %v", coll, errs)
		}
		for _, c := range comms {
			must(t, c.Close())
		}
	}
}

// A rank runs the collective with messages while the others wait in the native one: all get
// ErrMismatch, whichever is first.
func TestMessagesOfTheSameCollectiveAreAMismatch(t *testing.T) {
	for _, first := range []string{"native", "messages"} {
		comms := New(3)
		var errs [3]error
		seen := backend.See(2, (&backend.Call{Coll: backend.Allreduce, Form: backend.Nonblocking, Root: -1}).Fingerprint())
		msg := make([]byte, backend.SeenSize)
		seen.Encode(msg)
		send := func() {
			c := comms[2].(*Comm)
			r := c.isend(msg, 0, backend.CheckTag(7), backend.Standard)
			w := c.irecv(make([]byte, backend.SeenSize), 1, backend.CheckTag(7))
			if _, err := c.wait(t, r); err != nil && !errors.Is(err, backend.ErrMismatch) {
				t.Errorf("the send: %v", err)
			}
			_, errs[2] = c.wait(t, w)
		}
		if first == "messages" {
			must(t, comms[2].Send(nil, msg, 0, backend.CheckTag(7), backend.Standard))
		}
		each(comms, func(c *Comm) {
			if c.rank == 2 {
				if first == "native" {
					for comms[0].(*Comm).group.arrivals.round(0) == 0 {
						comms[2].Poll() // until rank 0 waits
					}
				}
				send()
				return
			}
			errs[c.rank] = c.collective(nil, &backend.Call{Coll: backend.Barrier, Root: -1}, 7)
		})
		for r, err := range errs {
			if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "Barrier(") || !strings.Contains(err.Error(), "rank 2 called Iallreduce(") {
				t.Errorf("%s first: rank %d: %v", first, r, err)
			}
		}
		for _, c := range comms {
			must(t, c.Close())
		}
	}
}

// Messages of an earlier nonblocking collective that are under way while ranks
// arrive are no mismatch.
func TestEarlierMessagesAreNoMismatch(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		for i := range 200 {
			seq := 2 * i
			var b [8]byte
			s := c.isend(b[:], 1-c.rank, backend.DataTag(uint32(seq)), backend.Standard)
			must(t, c.collective(nil, &backend.Call{Coll: backend.Barrier, Root: -1}, seq+1))
			r := c.irecv(b[:], 1-c.rank, backend.DataTag(uint32(seq)))
			for _, q := range []*backend.Request{r, s} {
				_, err := c.wait(t, q)
				must(t, err)
			}
		}
	})
}

const long = inlineMax/8 + 1 // numbers of a vector that is not copied

// userSum is a sum of count Ints by a user's operation, which calls f first.
func userSum(count int, f func()) *backend.Call {
	op := &backend.Op{Code: backend.OpUser, Commutative: true, Type: ranktest.Int, Apply: func(dst, a, b []byte) {
		f()
		ranktest.Sum.Apply(dst, a, b)
	}}
	return &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: ranktest.Int, Count: count,
		Send: make([]byte, 8*count), Recv: make([]byte, 8*count)}
}

// A rank whose operation panics, or ends its goroutine, gives its buffers back only when the operations of other ranks
// do not read them any more. All ranks get the error.
func TestUserOpFailsWhileOthersRead(t *testing.T) {
	for name, fails := range map[string]func(){"panic: no": func() { panic("no") }, "Goexit": runtime.Goexit} {
		var reading, failing, returned word.Bool
		comms := New(2)
		each(comms, func(c *Comm) {
			f := func() {
				failing.Store(true)
				for !reading.Load() {
					runtime.Gosched()
				}
				fails()
			}
			if c.rank == 1 {
				f = func() {
					for reading.Store(true); !failing.Load(); {
						runtime.Gosched()
					}
					for range 1000 {
						runtime.Gosched()
					}
					if returned.Load() {
						t.Errorf("%s: rank 0 has its buffers back while rank 1 reads them", name)
					}
				}
			}
			err := errors.New("did not return")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				err = c.collective(nil, userSum(long, f), 0)
			}()
			<-ended
			if c.rank == 0 {
				returned.Store(true)
			}
			if c.rank == 1 && !errors.Is(err, backend.ErrOp) {
				t.Errorf("%s: rank 1: %v", name, err)
			}
			must(t, c.Close())
		})
	}
}

// The deadline of a rank ends its call although another rank's operation hangs.
func TestDeadlineWhileUserOpHangs(t *testing.T) {
	over := make(chan struct{})
	each(New(2), func(c *Comm) {
		if c.rank == 0 {
			err := c.collective(&backend.Bound{Timeout: time.Millisecond, Since: time.Now()}, userSum(long, func() {}), 0)
			if close(over); !errors.Is(err, backend.ErrTimeout) {
				t.Errorf("rank 0: %v", err)
			}
		} else if err := c.collective(nil, userSum(long, func() { <-over }), 0); !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("rank 1: %v", err)
		}
		must(t, c.Close())
	})
}
