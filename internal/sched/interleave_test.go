//go:build interleave

package sched

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// alone is a communicator without messages. Its waits with a time limit end when grace is over.
type alone struct {
	backend.Comm
	over   word.Bool
	broken error
}

func (*alone) Rank() int          { return 0 }
func (*alone) Size() int          { return 1 }
func (*alone) Caps() backend.Caps { return backend.Caps{} }
func (c *alone) Broken() error    { return c.broken }

func (c *alone) Break(err error) {
	if c.broken == nil {
		c.broken = err
	}
}

func (c *alone) Await(b *backend.Bound, p backend.Pending) error {
	for !p.Ready() {
		if b != nil && c.over.Load() {
			return errors.New("grace is over")
		}
		word.Yield()
	}
	return nil
}

func (*alone) Wake() {}

// An operation completes, fails, or ends the goroutine that reduces, while it is given up. Its check may end beside its
// data phase. All see it end in the same way, and its communicator is broken if and only if that is an error. It is ready
// only when it has no message pending, and calls no function of the user.
func TestInterleaveEndAgainstCompletion(t *testing.T) {
	mismatch := &backend.Fault{Sentinel: backend.ErrMismatch, Text: "the check"}
	reduction := &coll.Schedule{Rounds: []coll.Round{{Local: []coll.Action{{Kind: coll.Reduction}}}}}
	type parts []func(o *Op, pending func(n int)) // each ends a part of the operation
	lands := func(o *Op, pending func(n int)) {
		pending(-1)
		o.step(moving, landed)
	}
	for name, c := range map[string]struct {
		begin phase
		parts parts
	}{
		"success": {moving, parts{lands}},
		"both": {checking | moving, parts{lands, func(o *Op, pending func(n int)) {
			pending(-1)
			o.step(checking, passed)
		}}},
		"failure": {checking, parts{func(o *Op, pending func(n int)) {
			o.fail(mismatch)
			pending(-1)
			o.step(checking, failed)
		}}},
		"Goexit": {moving, parts{func(o *Op, pending func(n int)) {
			pending(-1) // its messages are complete; the function is called unless the operation has been given up
			o.call.Op = &backend.Op{Code: backend.OpUser, Apply: func(_, _, _ []byte) {
				pending(1)
				defer pending(-1)
				runtime.Goexit()
			}}
			o.data.s, o.data.wrong.receiver = reduction, -1
			o.data.resume()
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := interleave.Config{}
			if len(c.parts) > 1 {
				cfg.Preemptions = 2
			}
			interleave.Explore(t, cfg, func(x *interleave.Run) {
				comm := &alone{}
				o := newOp(New(comm))
				o.verdict.Store(nil)
				o.phase.Store(uint32(c.begin))
				x.Name(&o.verdict, "verdict")
				x.Name(&o.phase, "phase")
				pending := len(c.parts)
				var results []error
				for i, end := range c.parts {
					x.Go(fmt.Sprintf("part %d", i), func() { end(o, func(n int) { pending += n }) })
				}
				x.Go("deadline", func() {
					err := o.End(&backend.Fault{Sentinel: backend.ErrCanceled, Text: "the context"})
					if err == nil {
						if pending > 0 {
							x.Errorf("End returns nil while messages are pending")
						}
						err = o.Err()
					}
					results = append(results, err)
				})
				x.Go("waiter", func() {
					_ = comm.Await(nil, o)
					if pending > 0 {
						x.Errorf("ready while messages are pending")
					}
					results = append(results, o.Err())
				})
				x.Go("clock", func() { comm.over.Store(true) })
				x.Check(func() error {
					switch {
					case (name == "failure" || name == "Goexit") && results[0] == nil:
						return errors.New("the operation has succeeded")
					case !errors.Is(results[0], results[1]):
						return fmt.Errorf("the operation ended with %v, and with %v", results[0], results[1])
					case (results[0] == nil) != (comm.broken == nil):
						return fmt.Errorf("the operation ended with %v, and the communicator is broken: %v", results[0], comm.broken)
					}
					return nil
				})
			})
		})
	}
}

// An operation is given up while its data phase reduces. Once End has returned an error, the buffers are the program's.
func TestInterleaveBuffersAfterEnd(t *testing.T) {
	in, out := coll.Region{Space: coll.Send, N: 1}, coll.Region{Space: coll.Recv, N: 1}
	twice := make([]coll.Round, 2)
	for i := range twice {
		twice[i].Local = []coll.Action{{Kind: coll.Reduction, Dst: out, A: in, B: in}}
	}
	for _, code := range []backend.OpCode{backend.OpSum, backend.OpUser} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			interleave.Explore(t, interleave.Config{Preemptions: 2}, func(x *interleave.Run) {
				comm := &alone{}
				o := newOp(New(comm))
				var step word.Uint32 // of the function and of the program, so that others may come between
				apply := func(dst, _, _ []byte) {
					step.Add(1)
					dst[0] = 7
				}
				o.call = backend.Call{Send: []byte{2}, Recv: []byte{1}, Type: &backend.Datatype{Size: 1}, Op: &backend.Op{Code: code, Apply: apply}}
				x.Name(&o.verdict, "verdict")
				x.Name(&o.phase, "phase")
				o.data.prepare(&coll.Schedule{Rounds: twice})
				o.phase.Store(uint32(moving))
				o.verdict.Store(nil)
				o.data.wrong.receiver = -1
				x.Go("data", func() { o.data.advance(own) })
				x.Go("deadline", func() {
					if o.End(backend.Faultf(backend.ErrCanceled, "the context")) == nil {
						return
					}
					o.call.Recv[0] = 9
					for range 3 {
						if step.Add(1); o.call.Recv[0] != 9 {
							x.Errorf("the operation writes to a buffer that it has given back")
						}
					}
				})
				x.Go("clock", func() { comm.over.Store(true) })
				x.Check(func() error {
					if !o.Ready() || o.Err() == nil && comm.broken != nil {
						return fmt.Errorf("ready: %v, error: %v, broken: %v", o.Ready(), o.Err(), comm.broken)
					}
					return nil
				})
			})
		})
	}
}
