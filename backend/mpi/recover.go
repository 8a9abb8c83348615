//go:build cgo && linux

package mpi

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Recovery after losses uses the library's ULFM, if it has it (libmpi.Library.Recovery).
//
// The library's functions for agreement block, and nothing ends them early. So they run in a
// goroutine, which Agree or Shrink waits for until its deadline. A call whose time is up leaves the
// goroutine running, and the next call of the same kind continues the wait.

// recovery holds a communicator's Agree or Shrink that has not ended.
type recovery struct {
	mu   sync.Mutex
	call *recoveryCall
}

// recoveryCall is one Agree or Shrink. Its results are set before done is closed.
type recoveryCall struct {
	kind int32
	done chan struct{}
	flag int32
	made *comm
	id   uint32
	err  error
}

// Kinds of recovery calls. They share no bit, so that the bitwise and of different kinds is 0.
const (
	forAgree  int32 = 1
	forShrink int32 = 2
)

func kindName(kind int32) string {
	if kind == forAgree {
		return "Agree"
	}
	return "Shrink"
}

// unrecoverable returns an error if the library cannot go on after a loss.
func (c *comm) unrecoverable() error {
	if c.p.recovers {
		return nil
	}
	return backend.Faultf(backend.ErrNotSupported, "%s cannot continue after a loss: %s; backends local, shm and tcp can",
		c.p.lib.Name(), c.p.whyNot)
}

// Lost implements backend.Recovery. A known loss breaks the communicator: once asked, the library may
// take the loss as acknowledged, and no longer end receives that have not matched.
func (c *comm) Lost() []int {
	lost := c.lost()
	if lost != nil {
		c.breaks(&backend.Fault{Sentinel: backend.ErrPeerLost, Text: c.lostText(lost)})
	}
	return lost
}

func (c *comm) lost() []int {
	if !c.p.recovers || !c.reenter() {
		return nil
	}
	defer c.leave()
	lost, code := c.data.Lost(c.size)
	if code != 0 || len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	return lost
}

// Revoke implements backend.Recovery. The library does not pass on the cause, nor which rank
// called it.
func (c *comm) Revoke(err error) error {
	if err := c.unrecoverable(); err != nil {
		return err
	}
	c.breaks(err)
	if !c.reenter() {
		return c.usable()
	}
	defer c.leave()
	code := c.data.Revoke()
	if other := c.ctl.Revoke(); code == 0 {
		code = other
	}
	if code != 0 {
		return libmpi.Error(code)
	}
	return nil
}

// Agree implements backend.Recovery.
func (c *comm) Agree(b *backend.Bound, flag int) (int, error) {
	if flag < math.MinInt32 || flag > math.MaxInt32 {
		// The others wait for this rank, whose flag does not fit.
		_, err := c.Agree(b, 0)
		if err == nil {
			err = backend.Faultf(backend.ErrNotSupported, "flag %#x: MPI libraries agree on 32 bits; the ranks agreed on 0", flag)
		}
		return 0, err
	}
	m, err := c.runRecovery(b, forAgree, func(m *recoveryCall) { m.flag, m.err = c.agree(int32(flag)) })
	if err != nil {
		return 0, err
	}
	return int(m.flag), m.err
}

// Shrink implements backend.Recovery.
func (c *comm) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	m, err := c.runRecovery(b, forShrink, func(m *recoveryCall) { m.made, m.id, m.err = c.shrink(ids) })
	if err == nil {
		err = m.err
	}
	if err != nil {
		return nil, 0, err
	}
	return m.made, m.id, nil
}

// runRecovery waits for a recovery call: one whose time was up before, or a new one that hold runs.
func (c *comm) runRecovery(b *backend.Bound, kind int32, hold func(*recoveryCall)) (*recoveryCall, error) {
	if err := c.unrecoverable(); err != nil {
		return nil, err
	}
	r := &c.recovery
	r.mu.Lock()
	defer r.mu.Unlock() // held by the only call that is allowed
	if m := r.call; m != nil && m.kind != kind {
		return nil, backend.Faultf(backend.ErrRequest, "the last %s timed out and has not ended; call %[1]s again to continue it",
			kindName(m.kind))
	}
	if r.call == nil {
		m := &recoveryCall{kind: kind, done: make(chan struct{})}
		r.call = m
		run := func() {
			if !c.reenter() {
				m.err = c.usable()
				return
			}
			defer c.leave()
			if m.err = c.synchronize(kind); m.err == nil {
				hold(m)
			}
		}
		if c.p.level < libmpi.Multiple { // the thread level allows no other call meanwhile
			run()
			close(m.done)
		} else {
			c.p.engine.stuck.Add(1) // MPI cannot be finalized meanwhile
			go func() {
				run()
				c.p.engine.stuck.Add(-1)
				close(m.done)
			}()
		}
	}
	m := r.call
	for w := newWait(b); ; {
		select {
		case <-m.done:
			r.call = nil
			return m, nil
		default:
		}
		c.p.engine.poll(1)
		if err := w.pause(c); err != nil {
			if f, ok := err.(*backend.Fault); ok {
				err = backend.Faultf(f.Sentinel, "%s: not all remaining ranks have called %s", f.Text, kindName(kind))
			}
			return nil, err
		}
	}
}

// synchronize makes sure that the remaining ranks make the same kind of call and have acknowledged
// the same losses. MPIX_Comm_agree reports to all of them alike if they have not, and each rank
// then learns of the losses that it had not acknowledged. So one more round than there are ranks is
// enough.
func (c *comm) synchronize(kind int32) error {
	for range c.size + 1 {
		if code := c.data.Acknowledge(); code != 0 {
			return libmpi.Error(code)
		}
		all, code := c.data.Agree(kind)
		if code != 0 && !libmpi.Failed(code) {
			return libmpi.Error(code)
		}
		if all != kind {
			return &backend.Fault{Sentinel: backend.ErrMismatch, Text: "some ranks called Agree and others Shrink"}
		}
		if code == 0 {
			break
		}
	}
	c.Lost()
	return nil
}

// agree agrees on a flag. A rank lost meanwhile is no error: the flag is the same on all ranks.
func (c *comm) agree(flag int32) (int32, error) {
	all, code := c.data.Agree(flag)
	if code != 0 && !libmpi.Failed(code) {
		return 0, libmpi.Error(code)
	}
	return all, nil
}

// shrink makes the communicator of the remaining ranks:
//
//  1. MPIX_Comm_shrink makes one of the ranks that the library knows to remain;
//  2. on it they make their second MPI communicator, and find and claim an id. If that fails on
//     one rank because another is lost, the rank revokes it, so that it fails on all;
//  3. they agree on whether all of that succeeded on every rank, and start again if not.
func (c *comm) shrink(ids backend.Claimer) (*comm, uint32, error) {
	var why error
	for attempt := range uint32(c.size) + 16 { // ranks can be lost, and ids be taken
		data, code := c.data.Shrink()
		if code != 0 {
			return nil, 0, libmpi.Error(code)
		}
		_ = madeByAll(data, nil) // complete may revoke it; a rank lost since then fails there
		d, id, err := c.complete(data, ids, attempt)
		if why = madeByAll(data, err); why == nil {
			d.begin()
			return d, id, nil
		}
		c.p.engine.leak() // it may be incomplete on another rank: freeing it would wait
	}
	return nil, 0, why
}

// madeByAll waits until all members of a new communicator have come to it, and returns an error unless all of
// them made what they had to make; err is this rank's. No member may revoke the communicator before: under
// Open MPI 5 a revocation crashes a rank that is still inside the call that makes it (MPI_Comm_create_group,
// MPI_Comm_dup, MPIX_Comm_shrink).
func madeByAll(data libmpi.Comm, err error) error {
	made := int32(1)
	if err != nil {
		made = 0
	}
	all, code := data.Agree(made)
	switch {
	case err != nil:
		return err
	case code != 0:
		return libmpi.Error(code)
	case all == 0:
		return &backend.Fault{Sentinel: backend.ErrAlloc, Text: "another rank could not make the communicator"}
	}
	return nil
}

// complete is the second step of shrink. After an error it revokes data.
func (c *comm) complete(data libmpi.Comm, ids backend.Claimer, attempt uint32) (*comm, uint32, error) {
	fail := func(err error) (*comm, uint32, error) {
		data.Revoke()
		return nil, 0, err
	}
	rank, size, _, code := data.Facts()
	if code != 0 {
		return fail(libmpi.Error(code))
	}
	world, code := data.WorldRanks(size)
	if code != 0 {
		return fail(libmpi.Error(code))
	}
	ctl, code := data.Dup()
	if code != 0 {
		return fail(c.unmade(code))
	}
	mine, all := []int64{int64(ids.Propose(attempt, 0))}, []int64{0}
	code = data.Allreduce(view.Bytes(mine), view.Bytes(all), 1, c.p.types.kinds[backend.Int64], c.p.ops.predefined[backend.OpMax])
	if code != 0 {
		return fail(libmpi.Error(code))
	}
	id := uint32(all[0])
	if free, err := ids.Claim(id); err != nil {
		return nil, 0, err
	} else if !free { // another communicator took it: no reason to revoke
		return nil, 0, backend.Faultf(backend.ErrAlloc, "context id %d is taken", id)
	}
	return &comm{p: c.p, data: data, ctl: ctl, rank: rank, size: size, world: world}, id, nil
}

// noteFailure returns the error of an operation that failed in the library. If the library reports
// a lost rank or a revocation, it breaks the communicator, which ends the other operations that
// wait on it, and cohort's own messages.
func (c *comm) noteFailure(err error) error {
	m, ok := err.(*backend.MPIError)
	if !ok || !c.p.recovers {
		return err
	}
	var f *backend.Fault
	switch {
	case m.Sentinel == backend.ErrPeerLost:
		f = &backend.Fault{Sentinel: backend.ErrPeerLost, Text: c.lostText(c.lost()) + ": " + m.Text}
	case m.Sentinel == backend.ErrBroken:
		f = &backend.Fault{Sentinel: backend.ErrBroken, Text: "a rank revoked it: " + m.Text}
	default:
		return err
	}
	c.breaks(f)
	return f
}

// lostText names the lost members by their rank in the communicator.
func (c *comm) lostText(lost []int) string {
	var names []string
	for _, w := range lost {
		names = append(names, fmt.Sprint(slices.Index(c.world, w)))
	}
	switch len(names) {
	case 0:
		return "a rank is lost"
	case 1:
		return "rank " + names[0] + " is lost"
	}
	return "ranks " + strings.Join(names, ", ") + " are lost"
}
