package sched_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// reporting is a rank that says when it listens to the reports of other ranks: after its deadline.
type reporting struct {
	backend.Comm
	listens chan struct{}
	once    *sync.Once
}

func (c reporting) Irecv(q *backend.Request, buf []byte, source, tag int) {
	c.Comm.Irecv(q, buf, source, tag)
	if source == backend.AnySource {
		c.once.Do(func() { close(c.listens) })
	}
}

// The missing rank comes while this one, after its deadline, asks the others who is missing. The call has then
// either completed and left the communicator as it was, or timed out and broken it.
func TestCompletionBesideDeadlineIsOneOfBoth(t *testing.T) {
	defer sched.ListenFor(100 * time.Millisecond)()
	for _, form := range []string{"blocking", "nonblocking", "persistent"} {
		listens := make(chan struct{})
		errs := ranks(t, 2, func(bc backend.Comm, r *sched.Runner) error {
			call := allreduce(1, []int64{1}, []int64{0}, sum)
			var p backend.Operation
			if form == "persistent" {
				bc0 := bc
				if bc.Rank() == 0 {
					bc0 = reporting{bc, listens, new(sync.Once)}
				}
				r = sched.New(bc0)
				var err error
				if p, err = prepare(r, allreduce(0, []int64{1}, []int64{0}, sum)); err != nil {
					return err
				}
			}
			if bc.Rank() == 1 {
				<-listens
				if p == nil {
					return r.Run(nil, call, true)
				}
				p.Start()
				return errors.Join(sched.Wait(nil, p), p.Err())
			}
			ctx, expire := context.WithCancel(context.Background())
			expire()
			b := &backend.Bound{Ctx: deadline{ctx}}
			var err error
			switch form {
			case "blocking":
				r = sched.New(reporting{bc, listens, new(sync.Once)})
				err = r.Run(b, call, true)
			default:
				if p == nil {
					r = sched.New(reporting{bc, listens, new(sync.Once)})
					if p, err = r.Start(call); err != nil {
						return err
					}
				} else {
					p.Start()
				}
				err = errors.Join(sched.Wait(b, p), p.Err())
			}
			if broken := bc.Broken(); (err == nil) != (broken == nil) {
				return fmt.Errorf("%s: the call returned %v, and the communicator is broken: %v", form, err, broken)
			}
			return nil
		})
		for rank, err := range errs {
			if err != nil && !errors.Is(err, backend.ErrTimeout) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	}
}

// A user's function, and a combination that takes long, do not run in a goroutine that happens to complete the
// operation's last message. Here that is rank 0's, which must get on.
func TestLongWorkDoesNotRunInForeignGoroutine(t *testing.T) {
	for code, count := range map[backend.OpCode]int{backend.OpUser: 1, backend.OpSum: 1 << 17} {
		posted, got := make(chan struct{}), make(chan struct{})
		noErrors(t, ranks(t, 2, func(bc backend.Comm, r *sched.Runner) error {
			op := &backend.Op{Code: code, Commutative: true, Type: int64s, Apply: func(dst, a, b []byte) {
				if bc.Rank() == 1 {
					select {
					case <-got:
					case <-time.After(30 * time.Second):
						t.Errorf("%v: the function of rank 1 has kept rank 0 for 30 s", code)
					}
				}
				sum.Apply(dst, a, b)
			}}
			call := &backend.Call{Coll: backend.Reduce, Root: 1, Op: op, Type: int64s, Count: count, Send: make([]byte, 8*count)}
			if bc.Rank() == 1 {
				call.Recv = make([]byte, 8*count)
			} else {
				<-posted // rank 0's messages complete the receives of rank 1
			}
			o := must.Get(r.Start(call))
			close(map[int]chan struct{}{0: got, 1: posted}[bc.Rank()])
			return errors.Join(sched.Wait(nil, o), o.Err())
		}))
	}
}

// A call ends at its deadline while its function combines a long vector. The function combines one piece at a time. The
// call waits for the piece of a predefined function, which is short, but not for a user's.
func TestLongWorkEndsWithTheCall(t *testing.T) {
	const count = 3 << 20
	for _, code := range []backend.OpCode{backend.OpSum, backend.OpUser} {
		ended, begun := make(chan struct{}), make(chan struct{})
		var once sync.Once
		var calls atomic.Int32
		errs := ranks(t, 2, func(bc backend.Comm, r *sched.Runner) error {
			op := &backend.Op{Code: code, Commutative: true, Type: int64s, Apply: func(dst, a, b []byte) {
				if bc.Rank() == 1 {
					once.Do(func() { close(begun) })
					if code == backend.OpUser {
						<-ended
					} else {
						time.Sleep(2 * sched.Grace) // on purpose: the deadline passes
					}
					if calls.Add(1) > 1 || len(dst) > 8*count/4 {
						t.Errorf("%v: call %d of the function combines %d bytes", code, calls.Load(), len(dst))
					}
				}
				sum.Apply(dst, a, b)
			}}
			call := &backend.Call{Coll: backend.Reduce, Root: 1, Op: op, Type: int64s, Count: count, Send: make([]byte, 8*count)}
			if bc.Rank() == 0 {
				return r.Run(nil, call, true)
			}
			call.Recv = make([]byte, 8*count)
			o, err := r.Start(call)
			if err != nil {
				return err
			}
			<-begun
			err = sched.Wait(&backend.Bound{Timeout: time.Millisecond}, o)
			close(ended)
			return errors.Join(err, sched.Wait(nil, o), o.Err())
		})
		if !errors.Is(errs[1], backend.ErrTimeout) || calls.Load() != 1 {
			t.Errorf("%v: rank 1 returns %v, and its function was called %d times", code, errs[1], calls.Load())
		}
	}
}
