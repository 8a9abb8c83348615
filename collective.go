package cohort

import (
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// Collectives of one communicator come from one goroutine at a time. A call
// takes the communicator with begin (blocking forms, which use the
// communicator's own Call) or in start and persist (the other forms, which are
// handed a Call of their own), and run, start and persist give it back. A second
// call that comes in between gets ErrBusy and nothing is sent for it.

// begin takes the communicator for a blocking collective and returns its Call,
// which is zero but for the root, -1. After begin comes run.
func (c *Comm) begin(coll backend.Coll) (*backend.Call, error) {
	if err := c.take(); err != nil {
		return nil, c.failed(collName(coll, backend.Blocking), Undefined, Undefined, err)
	}
	return &c.core.call, nil
}

// take makes the caller the one whose collective this is.
func (c *Comm) take() error {
	if c == nil || c.core == nil {
		return fault(ErrComm, "the communicator is nil")
	}
	k := c.core
	if !k.busy.CompareAndSwap(false, true) {
		return fault(ErrBusy, "another goroutine is in a collective of this communicator")
	}
	if k.closed.Load() {
		k.busy.Store(false)
		return fault(ErrClosed, "the communicator is closed")
	}
	return nil
}

// run makes the blocking collective that begin returned the Call for.
func (c *Comm) run(call *backend.Call) error {
	k := c.core
	err := k.collective(c.bound, call)
	if err != nil {
		err = c.collError(call, err)
	}
	*call = backend.Call{Root: -1}
	k.busy.Store(false)
	return err
}

// collective makes a blocking collective, natively or as a schedule.
func (k *core) collective(b *backend.Bound, call *backend.Call) error {
	call.Form, call.Seq = backend.Blocking, k.seq
	k.seq++
	if k.native == nil {
		return k.runner.Run(b, call, true)
	}
	done, err := k.callNative(b, call)
	if done || err != nil {
		return err
	}
	return k.runner.Run(b, call, false)
}

func (k *core) callNative(b *backend.Bound, call *backend.Call) (done bool, err error) {
	if call.Op == nil || call.Op.Code != backend.OpUser {
		return k.native.Collective(b, call)
	}
	defer func() {
		if p := recover(); p != nil {
			done, err = true, sched.Panicked(p)
			k.bc.Break(err)
		}
	}()
	return k.native.Collective(b, call)
}

// start makes a nonblocking collective. The call is the caller's no more.
func (c *Comm) start(call *backend.Call) (*Request, error) {
	call.Form = backend.Nonblocking
	if err := c.take(); err != nil {
		return nil, c.collError(call, err)
	}
	k := c.core
	call.Seq = k.seq
	k.seq++
	op, err := k.runner.Start(call)
	k.busy.Store(false)
	if err != nil {
		return nil, c.collError(call, err)
	}
	return &Request{c: c, op: op, coll: call.Coll, peer: rootOf(call), begun: c.now()}, nil
}

// persist prepares a persistent collective. It waits for the other ranks to do
// the same, so that a difference between them is found here.
func (c *Comm) persist(call *backend.Call) (*Persistent, error) {
	call.Form = backend.Persistent
	if err := c.take(); err != nil {
		return nil, c.collError(call, err)
	}
	k := c.core
	call.Seq = k.seq
	k.seq++
	op, err := k.runner.Prepare(c.bound, call)
	k.busy.Store(false)
	if err != nil {
		return nil, c.collError(call, err)
	}
	return newPersistentColl(c, op, call), nil
}

// collError wraps the error of a collective.
func (c *Comm) collError(call *backend.Call, err error) error {
	return c.failed(collName(call.Coll, call.Form), rootOf(call), Undefined, err)
}

// rootOf returns the rank that an error of a collective names as the other one.
func rootOf(call *backend.Call) int {
	if call.Root >= 0 {
		return call.Root
	}
	return Undefined
}

// collName is the name of a collective's function in lower case.
func collName(coll backend.Coll, form backend.Form) string {
	name := strings.ToLower(coll.String())
	switch form {
	case backend.Nonblocking:
		return "i" + name
	case backend.Persistent:
		return name + "init"
	}
	return name
}
