package tensor

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// until returns when something holds.
func until(holds func() bool) {
	for !holds() {
		runtime.Gosched()
	}
}

// While a piece is sent, the next is copied from the device; while a piece is received, the
// previous one is copied to it. A transfer holds two pieces of pinned memory, and a waiting receive
// holds none.
func TestMessagesOverlapCopies(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		const piece, pieces = 1 << 17, 6 // longer than backends buffer
		c := must.Get(NewComm(world, &Config{Chunk: piece}))
		devs, drv := must.Get2(messageDevices(soft.Config{}))
		x := must.Get(stuff[uint8](devs[1], 1, piece*pieces))
		devs[1].Trim()
		before := drv.Stats()
		pinned := func(what string, most int) error {
			if got := drv.Stats().Pinned; got > most {
				return fmt.Errorf("%s holds %d bytes of pinned memory, want %d at most", what, got, most)
			}
			return nil
		}
		if c.Rank() == 0 {
			// The other rank has not called Recv, so the first piece is still being sent.
			h, err := Isend(c, x, 1, 0)
			if err != nil {
				return err
			}
			until(func() bool { return drv.Stats().ToHost.Pinned.Copies == before.ToHost.Pinned.Copies+2 })
			err = errors.Join(pinned("a send", 2*piece), world.Barrier(), WaitAll(h), pinned("a send that is done", 2*piece))
			// Then piece by piece, until the other rank reports that it has copied it.
			p := untyped{kind: backend.Uint8, shape: []int{piece * pieces}, size: piece * pieces, host: make([]byte, piece*pieces)}
			l := &envelope{peer: 1, out: true}
			err = errors.Join(err, c.messages.begin(l, true), cohort.Send(c.head, l.write(&p, piece), 1, 0))
			f := payload{c: c, peer: 1, tag: l.number, size: p.size, piece: piece}
			for f.next() > 0 {
				if err = errors.Join(err, f.send(p.host[:f.next()]), world.Barrier()); err != nil {
					return err
				}
			}
			c.messages.done(l, true)
			return errors.Join(err, c.Close(), x.Close(), left(devs, drv))
		}
		y, err := NewOn[uint8](devs[1], piece*pieces)
		if err != nil {
			return err
		}
		if err = world.Barrier(); err != nil {
			return err
		}
		if _, err = Recv(c, y, 0, 0); err != nil {
			return err
		}
		if err = holds(y, 1, piece*pieces); err != nil {
			return err
		}
		devs[1].Trim()
		before = drv.Stats()
		var waiting []*Handle
		for range 8 {
			h := must.Get(Irecv(c, y, 0, 7))
			waiting = append(waiting, h)
		}
		err = pinned("receives that wait", 0)
		h, e := Irecv(c, y, 0, 0)
		err = errors.Join(err, e)
		for i := range pieces {
			until(func() bool { return drv.Stats().ToDevice.Pinned.Copies == before.ToDevice.Pinned.Copies+i+1 })
			err = errors.Join(err, pinned("a receive", 2*piece), world.Barrier())
		}
		err = errors.Join(err, WaitAll(h), c.Close())
		for _, h := range waiting {
			if e := WaitAll(h); !errors.Is(e, cohort.ErrPeerLost) {
				err = errors.Join(err, wantErr("a receive without a message", e, cohort.ErrClosed))
			}
		}
		return errors.Join(err, x.Close(), y.Close(), left(devs, drv))
	})
}

// A tensor is read and written after the work in its stream, and other streams see what was
// received.
func TestMessagesFollowStreamOrder(t *testing.T) {
	alone(t, func(c *Comm) error {
		devs, drv, err := messageDevices(soft.Config{})
		if err != nil {
			return err
		}
		d := devs[1]
		const n = 3000
		s, err := d.NewStream()
		if err != nil {
			return err
		}
		x, err := NewOn[uint8](d, n)
		if err != nil {
			return err
		}
		y, err := NewOn[uint8](d, n)
		if err != nil {
			return err
		}
		x, err1 := x.On(s)
		y, err2 := y.On(s)
		if err = errors.Join(err1, err2); err != nil {
			return err
		}
		want, err := stuff[uint8](CPU, 5, n)
		if err != nil {
			return err
		}
		var started atomic.Int32 // copies
		drv.SetFail(func(call soft.Call) error {
			if call.Op == soft.Copy {
				started.Add(1)
			}
			return nil
		})
		run, ran := make(chan struct{}), false
		kernel := func(mem func(accel.Address, int) []byte) {
			<-run
			copy(mem(x.at, n), want.data)
			clear(mem(y.at, n))
			ran = true
		}
		if err = s.s.(*soft.Stream).Do(kernel); err != nil {
			return err
		}
		g, err := Irecv(c, y, 0, 0)
		if err != nil {
			return err
		}
		h, err := Isend(c, x, 0, 0)
		if err != nil {
			return err
		}
		until(func() bool { return started.Load() == 2 })
		for range 1000 { // in which a copy that does not wait would be made
			if drv.Stats().ToHost.Pinned.Copies > 0 {
				return errors.New("a tensor was copied before it was written")
			}
			runtime.Gosched()
		}
		select {
		case <-h.Done():
			return errors.New("a tensor was sent before it was written")
		case <-g.Done():
			return errors.New("a tensor was received before it was sent")
		default:
		}
		close(run)
		if err = WaitAll(g, h); err != nil {
			return err
		}
		if !ran {
			return errors.New("the kernel has not run")
		}
		return errors.Join(holds(y, 5, n), s.Close(), x.Close(), y.Close(), left(devs, drv))
	})
}

// If any call of a device fails, on either side, that rank returns the error, the other gets the
// message or the error, the next message is right, and nothing is left behind.
func TestMessagesSurviveDriverErrors(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		for _, shape := range [][]int{{5}, {5, 1000}} {
			for _, lost := range []bool{false, true} {
				for bad := range 2 {
					for k, more := 1, true; more; k++ {
						var err error
						if more, err = failing(world, shape, bad, k, lost); err != nil {
							return fmt.Errorf("rank %d, %v, call %d of rank %d's device fails, for good %t: %w", world.Rank(), shape, k, bad, lost, err)
						}
					}
				}
			}
		}
		return nil
	})
}

// failing sends from one device to another and makes call k of device bad fail. It reports whether
// that call was reached. With lost, work item k fails and breaks the device.
func failing(world *cohort.Comm, shape []int, bad, k int, lost bool) (more bool, err error) {
	me := world.Rank()
	c, err := messageComm(world)
	if err != nil {
		return false, err
	}
	devs, drv, err := messageDevices(soft.Config{})
	if err != nil {
		return false, err
	}
	x, err := stuff[int16](devs[1], 1+me, shape...)
	if err != nil {
		return false, err
	}
	devs[1].Trim()
	const failed = "the device is out of order"
	calls, hit, what := 0, false, soft.Op("")
	if me == bad {
		drv.SetFail(func(call soft.Call) error {
			if lost == (call.Op == soft.Run) {
				calls++
			}
			if calls < k || hit {
				return nil
			}
			hit, what = true, call.Op
			return &backend.Fault{Sentinel: backend.ErrInternal, Text: failed}
		})
	}
	var got error
	if me == 0 {
		got = Send(c, x, 1, 0)
	} else {
		_, got = Recv(c, x, 0, 0)
	}
	drv.SetFail(nil)
	if me == bad && hit != (got != nil) && what != soft.Pin { // to pin is tried again
		err = fmt.Errorf("a call of %s has failed: %t, and the operation returns %v", what, hit, got)
	}
	if got != nil && me == bad {
		err = errors.Join(err, wantErr("the operation", got, cohort.ErrInternal, failed, fmt.Sprint("int16", shape), "soft:0"))
	}
	other, err1 := stuff[int16](CPU, 9, shape...)
	y, err2 := New[int16](shape...)
	if err = errors.Join(err, err1, err2); err != nil {
		return false, err
	}
	switch {
	case me == 0:
		if got != nil && bad == 1 {
			err = fmt.Errorf("the receiver's device has failed, and the sender gets %w", got)
		}
		err = errors.Join(err, Send(c, other, 1, 0))
	case bad == 1: // the message was dropped, or was never received
		if got == nil {
			err = errors.Join(err, holds(x, 1, shape...))
		}
		_, e := Recv(c, y, 0, 0)
		if e == nil && holds(y, 1, shape...) == nil {
			_, e = Recv(c, y, 0, 0)
		}
		err = errors.Join(err, e, holds(y, 9, shape...))
	case got != nil: // it got the error
		err = wantErr("the other's operation", got, cohort.ErrInternal, "rank 0 stopped sending", failed)
		_, e := Recv(c, y, 0, 0)
		err = errors.Join(err, e, holds(y, 9, shape...))
	case holds(x, 9, shape...) == nil: // nothing was sent
	default:
		_, e := Recv(c, y, 0, 0)
		err = errors.Join(err, holds(x, 1, shape...), e, holds(y, 9, shape...))
	}
	if err != nil {
		return false, err
	}
	if more, err = cohort.BcastOne(world, hit, bad); err != nil {
		return false, err
	}
	err = errors.Join(c.Close(), x.Close())
	if lost && me == bad && hit {
		devs[1].Trim()
		return more, drv.Close() // a lost device gives nothing back
	}
	return more, errors.Join(err, left(devs, drv))
}

// If device memory is missing, RecvAppend returns an error and drops the message.
func TestRecvAppendReportsMissingMemory(t *testing.T) {
	alone(t, func(c *Comm) error {
		devs, drv, err := messageDevices(soft.Config{Memory: 1 << 12})
		if err != nil {
			return err
		}
		x, err := stuff[int32](CPU, 1, 5000)
		none, err0 := NewOn[int32](devs[1], 0)
		if err = errors.Join(err, err0); err != nil {
			return err
		}
		h, err1 := Isend(c, x, 0, 0)
		g, err2 := Isend(c, x, 0, 0)
		y, st, err := RecvAppend(c, none, 0, 0)
		if y != none || st.Source != 0 || st.Tag != 0 {
			return fmt.Errorf("got %v, %+v", y, st)
		}
		err = wantErr("RecvAppend", err, cohort.ErrAlloc, "int32[5000] on soft:0")
		z, _, err3 := RecvAppend[int32](c, nil, 0, 0)
		if err = errors.Join(err, err1, err2, err3, WaitAll(h, g)); err != nil {
			return err
		}
		return errors.Join(holds(z, 1, 5000), left(devs, drv))
	})
}

// RecvAppend joins messages along the first dimension, in the tensor's memory where that has room.
func TestRecvAppendJoinsMessages(t *testing.T) {
	alone(t, func(c *Comm) error {
		devs, drv, err := messageDevices(soft.Config{})
		if err != nil {
			return err
		}
		var all []error
		for _, d := range devs {
			for _, width := range []int{3, 700} { // in the envelope, and after it
				all = append(all, joinMessages(c, drv, d, width))
			}
		}
		return errors.Join(append(all, left(devs, drv))...)
	})
}

func joinMessages(c *Comm, drv *soft.Driver, d *Device, width int) error {
	var all []error
	receive := func(dst *Tensor[int32], seed int, shape ...int) (*Tensor[int32], error) {
		x, err := stuff[int32](CPU, seed, shape...)
		if err != nil {
			return nil, err
		}
		h, err := Isend(c, x, 0, 0)
		if err != nil {
			return nil, err
		}
		got, st, err := RecvAppend(c, dst, 0, 0)
		if st != cohort.NewStatus(0, 0, x.size()) {
			err = errors.Join(err, fmt.Errorf("the status is %+v", st))
		}
		return got, errors.Join(err, WaitAll(h))
	}
	rows := func(x *Tensor[int32], lo, hi int) *Tensor[int32] {
		part, err := x.Sub(0, lo, hi)
		all = append(all, err)
		return part
	}
	x, err := stuff[int32](d, 1, 6, width)
	last, err2 := stuff[int32](CPU, 2, 1, width)
	if err := errors.Join(err, err2, Copy(rows(x, 5, 6), last)); err != nil {
		return err
	}
	before := drv.Stats().Allocations
	five, err := receive(rows(x, 0, 2), 3, 3, width)
	if err != nil {
		return err
	}
	if n := drv.Stats().Allocations; n != before {
		all = append(all, fmt.Errorf("%d pieces of device memory, want %d", n, before))
	}
	seven, err := receive(five, 4, 2, width) // x has room for one more row
	if err != nil {
		return err
	}
	for _, t := range []*Tensor[int32]{x, five, seven} {
		all = append(all, holds(rows(t, 0, 2), 1, 2, width), holds(rows(t, 2, 5), 3, 3, width))
	}
	all = append(all, holds(rows(x, 5, 6), 2, 1, width), holds(rows(seven, 5, 7), 4, 2, width))
	for _, shape := range [][]int{{1, width + 1}, {width}, {1, 1, width}, {}} {
		got, err := receive(five, 5, shape...)
		if got != five {
			err = errors.Join(err, fmt.Errorf("got %v, want %v", got, five))
		}
		all = append(all, wantErr("a message of another shape", err, cohort.ErrMismatch, "cannot be appended to int32[5 "))
	}
	// Without elements, dst takes any shape.
	got, err := receive(rows(x, 3, 3), 6, 2, 1, width)
	if err != nil {
		return err
	}
	same, err := rows(x, 3, 5).Reshape(2, 1, width)
	return errors.Join(append(all, err, holds(got, 6, 2, 1, width), holds(same, 6, 2, 1, width), seven.Close(), x.Close())...)
}
