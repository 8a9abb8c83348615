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

// An operation completes, fails, or ends the goroutine that reduces, while it is given up. All see it end in the same way,
// and its communicator is broken if and only if that is an error. It is ready only when it has no message pending, and
// calls no function of the user.
func TestInterleaveEndAgainstCompletion(t *testing.T) {
	mismatch := &backend.Fault{Sentinel: backend.ErrMismatch, Text: "the check"}
	reduction := &coll.Schedule{Rounds: []coll.Round{{Local: []coll.Action{{Kind: coll.Reduction}}}}}
	for name, ends := range map[string]func(o *Op, quiet func()){
		"success": func(o *Op, quiet func()) {
			quiet()
			o.step(moving, landed)
		},
		"failure": func(o *Op, quiet func()) {
			o.fail(mismatch)
			quiet()
			o.step(checking, failed)
		},
		"Goexit": func(o *Op, quiet func()) {
			o.call.Op = &backend.Op{Code: backend.OpUser, Apply: func(_, _, _ []byte) {
				defer quiet()
				runtime.Goexit()
			}}
			o.data.s, o.data.wrong.receiver = reduction, -1
			o.data.resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
				c := &alone{}
				o := newOp(New(c))
				o.verdict.Store(nil)
				o.phase.Store(uint32(moving))
				if name == "failure" {
					o.phase.Store(uint32(checking))
				}
				x.Name(&o.verdict, "verdict")
				x.Name(&o.phase, "phase")
				pending := true
				var results []error
				x.Go("messages", func() { ends(o, func() { pending = false }) })
				x.Go("deadline", func() {
					err := o.End(&backend.Fault{Sentinel: backend.ErrCanceled, Text: "the context"})
					if err == nil {
						if pending {
							x.Errorf("End returns nil while messages are pending")
						}
						err = o.Err()
					}
					results = append(results, err)
				})
				x.Go("waiter", func() {
					_ = c.Await(nil, o)
					if pending {
						x.Errorf("ready while messages are pending")
					}
					results = append(results, o.Err())
				})
				x.Go("clock", func() { c.over.Store(true) })
				x.Check(func() error {
					switch {
					case name != "success" && results[0] == nil:
						return errors.New("the operation has succeeded")
					case !errors.Is(results[0], results[1]):
						return fmt.Errorf("the operation ended with %v, and with %v", results[0], results[1])
					case (results[0] == nil) != (c.broken == nil):
						return fmt.Errorf("the operation ended with %v, and the communicator is broken: %v", results[0], c.broken)
					}
					return nil
				})
			})
		})
	}
}
