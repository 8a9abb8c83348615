package local

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// blocked are the ways a rank can wait for another, by name. Each returns the
// error that ends it; rank 1 is waited for and never does anything.
var blocked = map[string]func(c *Comm) error{
	"recv":     func(c *Comm) error { _, err := c.Recv(nil, nil, 1, 0); return err },
	"any":      func(c *Comm) error { _, err := c.Recv(nil, nil, backend.AnySource, 0); return err },
	"ssend":    func(c *Comm) error { return c.Send(nil, []byte{1}, 1, 0, backend.Synchronous) },
	"send":     func(c *Comm) error { return c.Send(nil, make([]byte, copyMax+1), 1, 0, backend.Standard) },
	"probe":    func(c *Comm) error { _, _, err := c.Probe(nil, 1, 0, true); return err },
	"mprobe":   func(c *Comm) error { _, _, _, err := c.Mprobe(nil, 1, 0, true); return err },
	"irecv":    func(c *Comm) error { return c.ended(c.irecv(nil, 1, 0)) },
	"issend":   func(c *Comm) error { return c.ended(c.isend(nil, 1, 0, backend.Synchronous)) },
	"barrier":  func(c *Comm) error { return c.collective(nil, &backend.Call{Coll: backend.Barrier}, 0) },
	"alltoall": func(c *Comm) error { return c.collective(nil, longAlltoall(), 0) },
}

func (c *Comm) ended(r *backend.Request) error {
	if err := c.Await(nil, r); err != nil {
		return err
	}
	return r.Err
}

func longAlltoall() *backend.Call {
	return &backend.Call{Coll: backend.Alltoall, Root: -1, Type: ranktest.Int, Count: 1000, Send: make([]byte, 24000), Recv: make([]byte, 24000)}
}

// pairs makes ranks 0 and 2 wait in all pairs of ways, on communicators of their
// own of which rank 1 is a member, and lets end end the waits.
func pairs(t *testing.T, end func(comms []backend.Comm), check func(t *testing.T, how string, c *Comm, err error)) {
	for how, wait := range blocked {
		for _, how2 := range []string{"recv", "barrier"} {
			t.Run(how+"+"+how2, func(t *testing.T) {
				comms := New(3)
				each(comms, func(c *Comm) {
					switch c.rank {
					case 0:
						check(t, how, c, wait(c))
					case 1:
						// Ends it when the others wait, or before: both must work.
						if how2 == "recv" {
							for comms[2].(*Comm).me.waiting() == 0 {
								c.Poll()
							}
						}
						end(comms)
					case 2:
						check(t, how2, c, blocked[how2](c))
					}
				})
				for _, c := range comms {
					must(t, c.Close())
				}
			})
		}
	}
}

// waiting returns the number of receives posted.
func (r *rank) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posted.Len()
}

func TestFailureEndsAllOperations(t *testing.T) {
	pairs(t, func(comms []backend.Comm) {
		_ = comms[1].(*Comm).Declare(1, backend.Faultf(backend.ErrPeerLost, "rank 1 failed: out of luck"))
	},
		func(t *testing.T, how string, c *Comm, err error) {
			if !errors.Is(err, backend.ErrPeerLost) || errors.Is(err, backend.ErrBroken) || !strings.Contains(err.Error(), "rank 1 failed: out of luck") {
				t.Errorf("%s: %v", how, err)
			}
			for how, f := range blocked { // and whatever comes later
				if err := f(c); !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "rank 1") {
					t.Errorf("later %s: %v", how, err)
				}
			}
			d, err := c.Derive(nil, []int{0, 2}, 9)
			must(t, err)
			if err := d.Send(nil, nil, 0, 0, backend.Standard); !errors.Is(err, backend.ErrPeerLost) {
				t.Errorf("on a communicator made later: %v", err)
			}
		})
}

func TestBreakEndsTheCommunicator(t *testing.T) {
	cause := &backend.Fault{Sentinel: backend.ErrMismatch, Text: "what was wrong"}
	pairs(t, func(comms []backend.Comm) {
		comms[1].Break(cause)
		comms[1].Break(errors.New("the second has no effect"))
	}, func(t *testing.T, how string, c *Comm, err error) {
		collective := how == "barrier" || how == "alltoall"
		if !errors.Is(err, backend.ErrMismatch) || !strings.Contains(err.Error(), "what was wrong") {
			t.Errorf("%s: %v", how, err)
		}
		if !collective && !errors.Is(err, backend.ErrBroken) {
			t.Errorf("%s: %v is not ErrBroken", how, err)
		}
		if err := c.Send(nil, nil, 0, 0, backend.Standard); !errors.Is(err, backend.ErrBroken) || !errors.Is(err, backend.ErrMismatch) {
			t.Errorf("later: %v", err)
		}
		if c.Broken() != error(cause) {
			t.Errorf("Broken says %v", c.Broken())
		}
		// Others are not affected.
		d, err := c.Derive(nil, []int{c.rank}, 9)
		must(t, err)
		must(t, d.Send(nil, nil, 0, 0, backend.Standard))
		_, err = d.Recv(nil, nil, 0, 0)
		must(t, err)
	})
}

// Ranks that have left a finished collective do not end it for those that are
// still on their way out.
func TestCloseAfterCollective(t *testing.T) {
	for range 100 {
		comms := New(4)
		each(comms, func(c *Comm) {
			if err := c.collective(nil, longCall(), 0); err != nil {
				t.Errorf("rank %d: %v", c.rank, err)
			}
			must(t, c.Close())
		})
	}
}

func longCall() *backend.Call {
	return &backend.Call{Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: 5000,
		Send: make([]byte, 40000), Recv: make([]byte, 40000)}
}

// A receive from any source ends when all other ranks have left.
func TestAnySourceEndsWhenAllOthersHaveLeft(t *testing.T) {
	comms := New(3)
	each(comms, func(c *Comm) {
		if c.rank > 0 {
			must(t, c.Close())
			return
		}
		var fault *backend.Fault
		if err := blocked["any"](c); !errors.As(err, &fault) || fault.Sentinel != backend.ErrPeerLost || !fault.Left {
			t.Errorf("got %v, want ErrPeerLost of ranks that have left in good order", err)
		}
		must(t, c.Close())
	})
}

// Closing the first communicator closes the rank's others. When all ranks have done so,
// the job has no communicators left.
func TestCloseOfTheWorldClosesAllCommunicators(t *testing.T) {
	comms := New(2)
	j := comms[0].(*Comm).group.job
	each(comms, func(c *Comm) {
		d, err := c.Derive(nil, []int{0, 1}, 1)
		must(t, err)
		must(t, d.Send(nil, nil, c.rank, 0, backend.Standard))
		must(t, c.Close())
		if err := d.Send(nil, nil, 1-c.rank, 0, backend.Standard); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("derived communicator: %v", err)
		}
		if _, err := c.Derive(nil, []int{c.rank}, 2); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("derive after close: %v", err)
		}
	})
	if len(j.groups) != 0 {
		t.Errorf("%d communicators are left", len(j.groups))
	}
}

// A rank leaves the job and takes no part in a communicator that others derive, before it leaves or after.
// Operations of theirs that need it end.
func TestDerivedCommunicatorKnowsWhoHasLeft(t *testing.T) {
	for how, wait := range blocked {
		for _, first := range []bool{false, true} {
			comms := New(3)
			if first {
				must(t, comms[1].Close())
			}
			d, err := comms[0].Derive(nil, []int{0, 1, 2}, 5)
			must(t, err)
			_, err = comms[2].Derive(nil, []int{0, 1, 2}, 5)
			must(t, err)
			var ended sync.WaitGroup
			if how != "any" { // ranks 0 and 2 are in the communicator
				ended.Go(func() {
					if err := wait(d.(*Comm)); !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "rank 1 has left the job") {
						t.Errorf("%s, first %v: %v", how, first, err)
					}
				})
			}
			if !first {
				must(t, comms[1].Close())
			}
			ended.Wait()
			for _, r := range []int{0, 2} {
				must(t, comms[r].Close())
			}
			if n := len(comms[0].(*Comm).group.job.groups); n != 0 {
				t.Errorf("%d communicators are left", n)
			}
		}
	}
}
