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

// Going on after losses, by the library's ULFM where it has it (libmpi.Library.Recovery).
//
// The functions of the library that the ranks agree in block, and nothing ends them early but their
// outcome. So they run in a goroutine of their own, which a call waits for as long as it may. One whose
// time is up leaves it there, and the next call of the same kind goes on waiting.

// recovery is the Agree or Shrink of a communicator that has not been heard the end of.
type recovery struct {
	mu   sync.Mutex
	call *meeting
}

// meeting is one Agree or Shrink. What it is over with is set before done is closed.
type meeting struct {
	kind int32
	done chan struct{}
	flag int32
	made *comm
	id   uint32
	err  error
}

// What ranks meet for. No bit is in both, so that the and of different ones is nothing.
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

// Recovers implements backend.Recoverer.
func (c *comm) Recovers() error {
	if c.p.recovers {
		return nil
	}
	return &backend.Fault{Sentinel: backend.ErrNotSupported, Text: fmt.Sprintf("%s does not go on after a loss: %s; backends local, shm and tcp do go on",
		c.p.lib.Name(), c.p.whyNot)}
}

// Lost implements backend.Recoverer. A loss ends the communicator when it is known: the library may take one
// that was asked about for acknowledged, and say no more of it to receives that have not matched.
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

// Revoke implements backend.Recoverer. The library does not tell the others what for, nor who.
func (c *comm) Revoke(err error) error {
	if err := c.Recovers(); err != nil {
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

// Agree implements backend.Recoverer.
func (c *comm) Agree(b *backend.Bound, flag int) (int, error) {
	if flag < math.MinInt32 || flag > math.MaxInt32 {
		// The others wait for this rank, which has none of their bits to give.
		_, err := c.Agree(b, 0)
		if err == nil {
			err = &backend.Fault{Sentinel: backend.ErrNotSupported, Text: fmt.Sprintf("flag %#x: MPI libraries agree on 32 bits; 0 was agreed on", flag)}
		}
		return 0, err
	}
	m, err := c.meet(b, forAgree, func(m *meeting) { m.flag, m.err = c.agree(int32(flag)) })
	if err != nil {
		return 0, err
	}
	return int(m.flag), m.err
}

// Shrink implements backend.Recoverer.
func (c *comm) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	m, err := c.meet(b, forShrink, func(m *meeting) { m.made, m.id, m.err = c.shrink(ids) })
	if err == nil {
		err = m.err
	}
	if err != nil {
		return nil, 0, err
	}
	return m.made, m.id, nil
}

// meet waits for a meeting: the one whose time was up, or a new one.
func (c *comm) meet(b *backend.Bound, kind int32, hold func(*meeting)) (*meeting, error) {
	if err := c.Recovers(); err != nil {
		return nil, err
	}
	r := &c.recovery
	r.mu.Lock()
	defer r.mu.Unlock() // held by the only call there may be
	if m := r.call; m != nil && m.kind != kind {
		return nil, &backend.Fault{Sentinel: backend.ErrRequest, Text: fmt.Sprintf("the last %s has not ended, its time ran out: call %[1]s again to go on with it",
			kindName(m.kind))}
	}
	if r.call == nil {
		m := &meeting{kind: kind, done: make(chan struct{})}
		r.call = m
		run := func() {
			if !c.reenter() {
				m.err = c.usable()
				return
			}
			defer c.leave()
			if m.err = c.gather(kind); m.err == nil {
				hold(m)
			}
		}
		if c.p.level < libmpi.Multiple { // no other call may be made meanwhile
			run()
			close(m.done)
		} else {
			c.p.engine.stuck.Add(1) // while it is there MPI cannot be finalized
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
				err = &backend.Fault{Sentinel: f.Sentinel, Text: fmt.Sprintf("%s: not all ranks that are left have called %s", f.Text, kindName(kind))}
			}
			return nil, err
		}
	}
}

// gather has the ranks that are left find out that they call the same, and acknowledge the same losses.
// The library says to all of them alike when they have not (MPIX_Comm_agree), and then has told each of
// what it had not acknowledged: so a round more for each rank that can be lost is enough.
func (c *comm) gather(kind int32) error {
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

// agree agrees on a flag. That a rank was lost meanwhile is no error: the flag is the same on all ranks.
func (c *comm) agree(flag int32) (int32, error) {
	all, code := c.data.Agree(flag)
	if code != 0 && !libmpi.Failed(code) {
		return 0, libmpi.Error(code)
	}
	return all, nil
}

// shrink makes the communicator of the ranks that are left:
//
//  1. the library makes one of those that it knows to be left;
//  2. on that they make the second one that a communicator has, and find and claim an id. What fails there
//     on one rank, because another is lost, is revoked, so that it fails on all that are still at it;
//  3. they agree on whether all of it has succeeded everywhere; if not, again from 1.
func (c *comm) shrink(ids backend.Claimer) (*comm, uint32, error) {
	var why error
	for attempt := range uint32(c.size) + 16 { // as often as ranks can be lost, and ids be taken
		data, code := c.data.Shrink()
		if code != 0 {
			return nil, 0, libmpi.Error(code)
		}
		_ = madeByAll(data, nil) // remade may revoke it; a rank lost since then fails there
		d, id, err := c.remade(data, ids, attempt)
		if why = madeByAll(data, err); why == nil {
			d.begin()
			return d, id, nil
		}
		c.p.engine.leak() // it may be half made elsewhere: freeing it would wait
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

// remade is the second step of shrink. After an error data is revoked.
func (c *comm) remade(data libmpi.Comm, ids backend.Claimer, attempt uint32) (*comm, uint32, error) {
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
		return fail(libmpi.Error(code))
	}
	mine, all := []int64{int64(ids.Propose(attempt))}, []int64{0}
	code = data.Allreduce(view.Bytes(mine), view.Bytes(all), 1, c.p.types.kinds[backend.Int64], c.p.ops.predefined[backend.OpMax])
	if code != 0 {
		return fail(libmpi.Error(code))
	}
	id := uint32(all[0])
	if !ids.Claim(id) { // by another communicator that is being made; not a reason to end what others do
		return nil, 0, &backend.Fault{Sentinel: backend.ErrAlloc, Text: fmt.Sprintf("context id %d is taken, or beyond the last one", id)}
	}
	return &comm{p: c.p, data: data, ctl: ctl, rank: rank, size: size, world: world}, id, nil
}

// heard is the error of an operation that the library ended with one. If that says that a rank is lost, or
// that the communicator was revoked, the communicator is broken: what else waits on it, here and in
// messages of cohort's own, must not go on waiting.
func (c *comm) heard(err error) error {
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

// lostText names the members that are lost, by their rank here.
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
