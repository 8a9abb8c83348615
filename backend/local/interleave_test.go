//go:build interleave

package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
	"github.com/cohort-hpc/cohort/internal/word"
)

// explored is a job whose ranks are threads of the explorer. Nobody waits without an end: the explorer reports that.
type explored struct {
	x     *interleave.Run
	comms []*Comm
	errs  []error // of what each rank has done last
}

func explore(t *testing.T, ranks, preemptions int, program func(e *explored)) {
	interleave.Explore(t, interleave.Config{Preemptions: preemptions}, func(x *interleave.Run) {
		e := &explored{x: x, errs: make([]error, ranks)}
		for i, c := range New(ranks) {
			c := c.(*Comm)
			e.comms = append(e.comms, c)
			x.Name(&c.me.mu, "queues of rank %d", i)
		}
		e.name(e.comms[0].group)
		x.Name(&e.comms[0].group.job.mu, "job")
		program(e)
	})
}

// exploreRounds is explore where every rank looks at all others' arrivals, and where the last one concludes for all.
func exploreRounds(t *testing.T, ranks, preemptions int, program func(e *explored)) {
	for _, each := range []bool{false, true} {
		explore(t, ranks, preemptions, func(e *explored) {
			e.comms[0].group.arrivals.each = each
			program(e)
		})
	}
}

// name names the words of a communicator.
func (e *explored) name(g *group) {
	e.x.Name(&g.end, "end")
	e.x.Name(&g.gone, "gone")
	e.x.Name(&g.arrivals.count, "arrivals")
	e.x.Name(&g.arrivals.complete, "rounds")
	e.x.Name(&g.arrivals.ended, "end of the rounds")
	e.x.Name(&g.arrivals.parked, "parked")
	for i := range g.ends {
		e.x.Name(&g.ends[i].gone, "gone of rank %d", i)
		for k := range uint64(lineDeep) {
			e.x.Name(&g.arrivals.line(i, k).round, "line %d of rank %d", k, i)
		}
	}
}

// each starts a thread for each rank.
func (e *explored) each(f func(c *Comm) error) {
	for i, c := range e.comms {
		e.rank(i, func() error { return f(c) })
	}
}

// rank starts a thread that notes its error as that of a rank.
func (e *explored) rank(i int, f func() error) {
	e.x.Go(fmt.Sprintf("rank %d", i), func() { e.errs[i] = f() })
}

// all checks that all ranks agree on whether there was an error, and if so, that it is one of the given ones.
func (e *explored) all(sentinels ...error) {
	e.x.Check(func() error {
		for i, err := range e.errs {
			if (err == nil) != (e.errs[0] == nil) {
				return fmt.Errorf("rank 0: %v, rank %d: %v", e.errs[0], i, err)
			}
			if err != nil && !is(err, sentinels) {
				return fmt.Errorf("rank %d: %v", i, err)
			}
		}
		return nil
	})
}

func is(err error, sentinels []error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// is reports an error that is none of the given ones. nil stands for no error.
func (e *explored) is(what string, err error, sentinels ...error) {
	for _, s := range sentinels {
		if err == nil && s == nil {
			return
		}
	}
	if err == nil || !is(err, sentinels) {
		e.x.Errorf("%s: %v", what, err)
	}
}

// expiry is a context that ends when a thread says so.
type expiry struct{ over word.Bool }

func (c *expiry) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *expiry) Done() <-chan struct{}       { return make(chan struct{}) }
func (c *expiry) Value(any) any               { return nil }
func (c *expiry) Err() error {
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

// ends starts a thread that ends the context of the returned bound.
func (e *explored) ends(rank int) *backend.Bound {
	ctx := new(expiry)
	e.x.Name(&ctx.over, "end of the context")
	e.x.Go("canceler", func() {
		ctx.over.Store(true)
		e.comms[rank].Wake()
	})
	return &backend.Bound{Ctx: ctx}
}

// sum is an Allreduce whose buffers are the caller's again when it has returned.
func (e *explored) sum(c *Comm, b *backend.Bound, count, seq int) error {
	send, recv := make([]byte, 8*count), make([]byte, 8*count)
	for i := range count {
		send[8*i] = byte(c.rank + seq + 1)
	}
	own(send)
	err := c.collective(b, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: count, Send: send, Recv: recv}, seq)
	own(send)
	if n := len(c.group.ends); err == nil && int(recv[8*(count-1)]) != n*(n+1)/2+n*seq {
		e.x.Errorf("rank %d: the sum is %d", c.rank, recv[8*(count-1)])
	}
	return err
}

// own says that the caller writes a buffer, where other ranks may begin to read it: at its beginning and in the middle.
func own(b []byte) {
	word.Writes(b[:1])
	if middle := len(b) / 16 * 8; middle > 0 {
		word.Writes(b[middle-8 : middle+16])
	}
}

func barrier(c *Comm, b *backend.Bound, seq int) error {
	return c.collective(b, &backend.Call{Coll: backend.Barrier, Root: -1}, seq)
}

func TestInterleaveCollectives(t *testing.T) {
	exploreRounds(t, 2, 2, func(e *explored) {
		e.each(func(c *Comm) error { return errors.Join(barrier(c, nil, 0), e.sum(c, nil, 1, 1), e.sum(c, nil, 1, 2)) })
		e.all()
	})
	exploreRounds(t, 2, 2, func(e *explored) {
		e.each(func(c *Comm) error { return errors.Join(e.sum(c, nil, long, 0), barrier(c, nil, 1)) })
		e.all()
	})
	preemptions := 2
	if testing.Short() {
		preemptions = 1
	}
	exploreRounds(t, 3, preemptions, func(e *explored) {
		e.each(func(c *Comm) error { return e.sum(c, nil, 1, 0) })
		e.all()
	})
}

// A deadline ends a collective on all ranks or on none.
func TestInterleaveDeadlineOfCollective(t *testing.T) {
	for preemptions, count := range map[int]int{2: 1, 1: long} {
		exploreRounds(t, 2, preemptions, func(e *explored) {
			b := e.ends(0)
			e.rank(0, func() error { return e.sum(e.comms[0], b, count, 0) })
			e.rank(1, func() error { return e.sum(e.comms[1], nil, count, 0) })
			e.all(backend.ErrCanceled)
		})
	}
	exploreRounds(t, 3, 1, func(e *explored) {
		b := e.ends(0)
		e.each(func(c *Comm) error {
			if c.rank == 0 {
				return barrier(c, b, 0)
			}
			return barrier(c, nil, 0)
		})
		e.all(backend.ErrCanceled)
	})
}

func TestInterleaveMismatch(t *testing.T) {
	exploreRounds(t, 2, 2, func(e *explored) {
		e.rank(0, func() error { return barrier(e.comms[0], nil, 0) })
		e.rank(1, func() error { return e.sum(e.comms[1], nil, 1, 0) })
		e.x.Check(func() error {
			if !errors.Is(e.errs[0], backend.ErrMismatch) || e.errs[0] != e.errs[1] {
				return fmt.Errorf("rank 0: %v, rank 1: %v", e.errs[0], e.errs[1])
			}
			return nil
		})
	})
}

// A rank that leaves, closes the communicator, breaks it, or is lost, ends a collective of the others, wherever it is.
func TestInterleaveEndOfCollective(t *testing.T) {
	for name, end := range map[string]func(c *Comm) error{
		"close": func(c *Comm) error { return c.Close() },
		"break": func(c *Comm) error { c.Break(backend.Faultf(backend.ErrCanceled, "broken")); return nil },
		"lost":  func(c *Comm) error { return c.Declare(c.rank, errors.New("out of luck")) },
	} {
		t.Run(name, func(t *testing.T) {
			exploreRounds(t, 2, 2, func(e *explored) {
				e.rank(0, func() error { return e.sum(e.comms[0], nil, 1, 0) })
				e.rank(1, func() error { return e.sum(e.comms[1], nil, 1, 0) })
				e.x.Go("end", func() { e.is("end", end(e.comms[1]), nil) })
				e.x.Check(func() error {
					if (e.errs[0] == nil) != (e.errs[1] == nil) {
						return fmt.Errorf("rank 0: %v, rank 1: %v", e.errs[0], e.errs[1])
					}
					return nil
				})
			})
		})
	}
}

// Of three ranks, one leaves and one dies, or one does both, in every order. A rank that has left is never lost, the
// others agree on whether a collective has completed, and a communicator that is made meanwhile knows who is gone.
func TestInterleaveDeathBesideDeparture(t *testing.T) {
	for _, dies := range []int{1, 2} {
		gone := func(e *explored) {
			e.x.Go("leaves", func() { e.is("close", e.comms[1].Close(), nil) })
			e.x.Go("dies", func() {
				left := e.comms[0].Left()
				e.is("declare", e.comms[0].Declare(dies, errors.New("out of luck")), nil)
				if slices.Contains(left, dies) && len(e.comms[0].Failed()) > 0 {
					e.x.Errorf("rank %d has left, and is lost", dies)
				}
			})
			e.x.Check(func() error {
				for i, c := range e.comms {
					lost, left := c.Failed(), c.Left()
					if dies == 1 && len(lost)+len(left) != 1 || dies == 2 && (!slices.Equal(lost, []int{2}) || !slices.Equal(left, []int{1})) {
						return fmt.Errorf("rank %d: lost %v, left %v", i, lost, left)
					}
				}
				return nil
			})
		}
		exploreRounds(t, 3, -1, func(e *explored) {
			e.each(func(c *Comm) error { return barrier(c, nil, 0) })
			gone(e)
			e.all(backend.ErrPeerLost, backend.ErrClosed)
		})
		explore(t, 3, 1, func(e *explored) {
			gone(e)
			e.x.Go("goes on", func() {
				control, err := e.comms[0].Control(agree.ControlID)
				e.is("control", err, nil)
				for _, from := range []int{1, dies} {
					_, err = control.Recv(nil, nil, from, 0)
					e.is("receive", err, backend.ErrPeerLost)
				}
				e.is("control", control.Broken(), nil)
				d, err := e.comms[0].Derive(nil, []int{2, 0}, 5)
				e.is("derive", err, nil)
				if dies == 2 {
					_, err = d.Recv(nil, nil, 0, 0)
					e.is("receive", err, backend.ErrPeerLost)
				}
			})
		})
	}
}

// The operation of one rank panics, or ends its goroutine. All ranks fail, unless another rank has called the operation
// for all. The rank that fails has its buffers back when no other rank reads them.
func TestInterleaveUserOpFails(t *testing.T) {
	for name, fails := range map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		for _, count := range []int{1, long} {
			t.Run(fmt.Sprint(name, " ", count), func(t *testing.T) {
				exploreRounds(t, 2, 2, func(e *explored) {
					for i, c := range e.comms {
						call := userSum(count, func() {
							if i == 0 {
								fails()
							}
						})
						e.errs[i] = backend.UserFault(nil) // stays if the goroutine ends
						e.rank(i, func() error {
							own(call.Send)
							defer own(call.Send)
							return c.collective(nil, call, 0)
						})
					}
					e.all(backend.ErrOp)
				})
			})
		}
	}
}

// A communicator, and a control communicator, that is made while a member leaves knows that it has left.
func TestInterleaveLeaveBesideDerive(t *testing.T) {
	for _, derives := range []bool{false, true} {
		explore(t, 2, 3, func(e *explored) {
			e.x.Go("leaves", func() {
				if derives {
					_, err := e.comms[1].Derive(nil, []int{0, 1}, 5)
					e.is("derive", err, nil)
				}
				e.is("close", e.comms[1].Close(), nil)
			})
			e.x.Go("derives", func() {
				d, err := e.comms[0].Derive(nil, []int{0, 1}, 5)
				e.is("derive", err, nil)
				_, err = d.Recv(nil, nil, 1, 0)
				e.is("receive", err, backend.ErrPeerLost)
			})
		})
	}
	explore(t, 2, 3, func(e *explored) {
		var d [2]*Comm
		for i, c := range e.comms {
			derived, err := c.Derive(nil, []int{0, 1}, 5)
			e.is("derive", err, nil)
			d[i] = derived.(*Comm)
		}
		e.name(d[0].group)
		e.x.Go("closes", func() { e.is("close", d[1].Close(), nil) })
		e.x.Go("agrees", func() {
			control, err := d[0].Control(1<<31 | 5)
			e.is("control", err, nil)
			_, err = control.Recv(nil, nil, 1, 0)
			e.is("receive", err, backend.ErrPeerLost)
		})
	})
}

// A goroutine derives a communicator while another one of the rank leaves the job. The others learn that it is gone.
func TestInterleaveDeriveBesideOwnClose(t *testing.T) {
	explore(t, 2, 2, func(e *explored) {
		e.x.Go("leaves", func() { e.is("close", e.comms[1].Close(), nil) })
		e.x.Go("its other goroutine", func() {
			if d, err := e.comms[1].Derive(nil, []int{0, 1}, 5); err == nil {
				_, err = d.Recv(nil, nil, 0, 0)
				e.is("own receive", err, backend.ErrClosed)
			} else {
				e.is("derive", err, backend.ErrClosed)
			}
		})
		e.x.Go("derives", func() {
			d, err := e.comms[0].Derive(nil, []int{0, 1}, 5)
			e.is("derive", err, nil)
			_, err = d.Recv(nil, nil, 1, 0)
			e.is("receive", err, backend.ErrPeerLost)
		})
	})
}
