package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// stuff returns a tensor on a device filled with bytes that depend on seed.
func stuff[T cohort.Number](d *Device, seed int, shape ...int) (*Tensor[T], error) {
	t, err := New[T](shape...)
	if err != nil {
		return nil, err
	}
	for i, b := 0, view.Bytes(t.data); i < len(b); i++ {
		b[i] = byte(uint64(seed*1000003+i) * 2654435761 >> 13)
	}
	if d == CPU {
		return t, nil
	}
	u, err := NewOn[T](d, shape...)
	if err == nil {
		err = Copy(u, t)
	}
	return u, err
}

// holds returns an error unless a tensor has the shape and the bytes of stuff.
func holds[T cohort.Number](t *Tensor[T], seed int, shape ...int) error {
	want, err := stuff[T](CPU, seed, shape...)
	if err != nil {
		return err
	}
	if !slices.Equal(t.Shape(), want.Shape()) {
		return fmt.Errorf("the shape is %v, want %v", t.Shape(), shape)
	}
	got, err := New[T](shape...)
	if err == nil {
		err = Copy(got, t)
	}
	if err == nil && !bytes.Equal(view.Bytes(got.data), view.Bytes(want.data)) {
		err = fmt.Errorf("%v has other bytes than number %d", t, seed)
	}
	return err
}

// messageComm returns a communicator with short pieces.
func messageComm(world *cohort.Comm) (*Comm, error) { return NewComm(world, &Config{Chunk: 1 << 10}) }

// messageDevices returns the processor and the devices of a new driver.
func messageDevices(c soft.Config) (devs []*Device, drv *soft.Driver, err error) {
	drv = soft.New(c)
	n, err := drv.Devices()
	devs = []*Device{CPU}
	for i := 0; err == nil && i < n; i++ {
		acc, e := drv.Device(i)
		devs, err = append(devs, newDevice("soft", acc)), e
	}
	return devs, drv, err
}

// left trims the devices and returns an error if anything else is left.
func left(devs []*Device, drv *soft.Driver) error {
	for _, d := range devs {
		d.Trim()
	}
	return errors.Join(drv.Left(), drv.Close())
}

// ways are the combinations of calls that pass a tensor to the next rank.
var ways = []string{"isend, recv", "irecv, send", "isend, recvappend", "sendrecv", "isend, irecv", "isend, mprobe, messagerecv"}

// pass sends a tensor on one device to the next rank, and receives one onto another device from the
// rank before.
func pass[T cohort.Number](c *Comm, way string, from, to *Device, shape []int) (err error) {
	n, me := c.Size(), c.Rank()
	next, prev := (me+1)%n, (me+n-1)%n
	send, err := stuff[T](from, me, shape...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, send.Close()) }()
	recv, err := NewOn[T](to, shape...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recv.Close()) }()
	const tag = 5
	var st cohort.Status
	var h, g *Handle
	switch way {
	case "isend, recv":
		if h, err = Isend(c, send, next, tag); err == nil {
			st, err = Recv(c, recv, prev, tag)
		}
	case "irecv, send":
		if g, err = Irecv(c, recv, cohort.AnySource, cohort.AnyTag); err == nil {
			err = Send(c, send, next, tag)
		}
	case "isend, irecv":
		if h, err = Isend(c, send, next, tag); err == nil {
			g, err = Irecv(c, recv, prev, cohort.AnyTag)
		}
	case "sendrecv":
		st, err = Sendrecv(c, send, next, tag, recv, prev, tag)
	case "isend, mprobe, messagerecv":
		if h, err = Isend(c, send, next, tag); err != nil {
			break
		}
		var m *Message
		var in Info
		if m, in, err = c.Mprobe(cohort.AnySource, cohort.AnyTag); err != nil {
			break
		}
		if in.Source != prev || in.Tag != tag || in.Type != kindOf[T]() || !slices.Equal(in.Shape, shape) {
			return fmt.Errorf("probed %+v, want %v%v from %d", in, kindOf[T](), shape, prev)
		}
		if st, err = MessageRecv(m, recv); err == nil {
			if _, again := MessageRecv(m, recv); !errors.Is(again, cohort.ErrRequest) {
				err = fmt.Errorf("a message is received twice: %v", again)
			}
		}
	case "isend, recvappend":
		if h, err = Isend(c, send, next, tag); err == nil {
			var none, got *Tensor[T]
			if none, err = NewOn[T](to, 0); err == nil {
				got, st, err = RecvAppend(c, none, prev, tag)
			}
			if err == nil {
				err = recv.Close()
				recv = got
			}
		}
	}
	if err = errors.Join(err, WaitAll(h, g)); err != nil {
		return err
	}
	if g != nil {
		st, _ = g.Wait()
	}
	if st.Source != prev || st.Tag != tag || cohort.Count[T](st) != recv.Len() {
		return fmt.Errorf("the status is %+v, of %d bytes", st, st.Bytes())
	}
	return holds(recv, prev, shape...)
}

// passes tries all ways between all pairs of devices.
func passes[T cohort.Number](c *Comm, devs []*Device, shapes [][]int, ways ...string) error {
	for i, from := range devs {
		to := devs[(i+1)%len(devs)]
		for _, shape := range shapes {
			for _, way := range ways {
				if err := pass[T](c, way, from, to, shape); err != nil {
					return fmt.Errorf("rank %d: %s of %v%v from %v to %v: %w", c.Rank(), way, kindOf[T](), shape, from, to, err)
				}
			}
		}
	}
	return nil
}

type celsius float32

// The shapes range from empty to several pieces.
var (
	shapes = [][]int{{}, {0}, {3, 0, 2}, {1}, {5}, {2, 3, 4}, {125, 2}, {1, 1021}, {64, 16}, {9, 11, 13}}
	few    = [][]int{{}, {3, 0}, {7}, {30, 41}}
)

// passAll sends tensors of all types and, in one type, of many shapes.
func passAll(c *Comm, devs []*Device, shapes [][]int) error {
	return errors.Join(
		passes[float32](c, devs, shapes, ways...),
		passType[float64](c, devs, 0),
		passType[int8](c, devs, 1),
		passType[int16](c, devs, 2),
		passType[int32](c, devs, 3),
		passType[int64](c, devs, 4),
		passType[int](c, devs, 5),
		passType[uint8](c, devs, 0),
		passType[uint16](c, devs, 1),
		passType[uint32](c, devs, 2),
		passType[uint64](c, devs, 3),
		passType[uint](c, devs, 4),
		passType[uintptr](c, devs, 5),
		passType[cohort.Float16](c, devs, 0),
		passType[cohort.BFloat16](c, devs, 1),
		passType[complex64](c, devs, 2),
		passType[complex128](c, devs, 3),
		passType[celsius](c, devs, 4),
	)
}

// passType sends tensors of a type in all ways, in one of them longer ones, too.
func passType[T cohort.Number](c *Comm, devs []*Device, way int) error {
	return errors.Join(passes[T](c, devs, [][]int{{7}}, ways...), passes[T](c, devs, few, ways[way]))
}

// passAround is passAll with new devices, and checks that nothing is left behind.
func passAround(world *cohort.Comm, shapes [][]int, config soft.Config) error {
	devs, drv, err := messageDevices(config)
	if err != nil {
		return err
	}
	c, err := messageComm(world)
	if err != nil {
		return err
	}
	if err = passAll(c, devs, shapes); err == nil {
		err = c.Close()
	}
	return errors.Join(err, left(devs, drv))
}

func TestMessagesBetweenDevices(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, func(_ *testing.T, world *cohort.Comm) error {
		return passAround(world, shapes, soft.Config{Devices: 2})
	})
}

// Devices do their work only while it is waited for, in any order among streams.
func TestMessagesOnLazyDevices(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		return passAround(world, shapes, soft.Config{Lazy: true, Seed: uint64(world.Rank())})
	})
}

// Where libraries accept device memory, payloads are not copied, unless they came in an envelope.
func TestMessagesPassDeviceMemoryDirectly(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error { return direct(world, shapes) })
}

func direct(world *cohort.Comm, shapes [][]int) error {
	devs, drv := must.Get2(messageDevices(soft.Config{HostCanRead: true}))
	c, err := NewComm(world, &Config{Chunk: 1 << 10, Direct: "on"})
	if err == nil {
		err = errors.Join(passes[float32](c, devs, shapes, ways...), c.Close())
	}
	if err != nil {
		return err
	}
	// Long pieces, which no library buffers.
	const piece = 1 << 19
	if c, err = NewComm(world, &Config{Chunk: piece, Direct: "on"}); err != nil {
		return err
	}
	other := 1 - world.Rank()
	send := must.Get(stuff[uint8](devs[1], 1, 2*piece))
	recv, err := NewOn[uint8](devs[1], 2*piece)
	if err != nil {
		return err
	}
	before := drv.Stats()
	if _, err = Sendrecv(c, send, other, 0, recv, other, 0); err != nil {
		return err
	}
	if after := drv.Stats(); after.ToHost != before.ToHost || after.ToDevice != before.ToDevice {
		err = fmt.Errorf("copies were made: %+v, before %+v", after, before)
	}
	return errors.Join(err, holds(recv, 1, 2*piece), send.Close(), recv.Close(), c.Close(), left(devs, drv))
}

// The same with every way to start ranks.
func TestMessagesOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: messages arrive over shm, tcp and mpi; make test-all runs it")
	}
	onProcesses(t, []int{1, 2, 3, 4}, "messages")
}

func init() {
	programs["messages"] = func(world *cohort.Comm) error {
		err := passAround(world, few, soft.Config{})
		if world.Size() == 2 { // what is between two ranks
			err = errors.Join(err, direct(world, few), mixed(world))
		}
		if world.Size() > 3 { // more than there may be processors, each of which looks for messages all the time
			return errors.Join(err, storm(world, 5))
		}
		return errors.Join(err, storm(world, 30))
	}
}

// mixed sends long tensors between two ranks in pieces of the default length, and does what else
// depends on the library.
func mixed(world *cohort.Comm) error {
	c, err := NewComm(world, nil)
	if err != nil {
		return err
	}
	devs, drv, err := messageDevices(soft.Config{})
	if err == nil {
		err = passes[float64](c, devs, [][]int{{1<<20 + 1}}, ways[0], ways[1], ways[3])
	}
	if err == nil {
		err = templates(c, devs)
	}
	return errors.Join(err, c.Close(), left(devs, drv))
}

// A mismatch of type or shape gives an error that names both, and the next message is right.
func TestMismatchedMessageIsDropped(t *testing.T) {
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(messageComm(world))
		devs, drv, err := messageDevices(soft.Config{})
		if err == nil {
			err = templates(c, devs)
		}
		return errors.Join(err, c.Close(), left(devs, drv))
	})
}

func templates(c *Comm, devs []*Device) error {
	other, me := 1-c.Rank(), c.Rank()
	var all []error
	mismatch := func(st cohort.Status, err error, words ...string) {
		if !errors.Is(err, cohort.ErrMismatch) || st.Source != other || st.Tag != 3 {
			all = append(all, fmt.Errorf("a wrong template: %+v, %v", st, err))
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				all = append(all, fmt.Errorf("%q does not name %s", err, w))
			}
		}
	}
	for _, d := range devs {
		for _, shape := range [][]int{{2, 3}, {20, 300}} {
			n := shape[0] * shape[1]
			send, err := stuff[float32](d, me, shape...)
			if err != nil {
				return err
			}
			const sends = 6
			hs := make([]*Handle, sends)
			for i := range hs {
				if hs[i], err = Isend(c, send, other, 3); err != nil {
					return err
				}
			}
			flat, err1 := stuff[float32](d, 77, n)
			ints, err2 := stuff[int32](d, 78, shape...)
			right, err3 := NewOn[float32](d, shape...)
			if err = errors.Join(err1, err2, err3); err != nil {
				return err
			}
			theirs := fmt.Sprintf("float32%v", shape)
			st, err := Recv(c, flat, other, 3)
			mismatch(st, err, theirs, fmt.Sprintf("float32[%d]", n))
			st, err = Recv(c, ints, other, 3)
			mismatch(st, err, theirs, fmt.Sprintf("int32%v", shape))
			h, err := Irecv(c, flat, cohort.AnySource, 3)
			if err != nil {
				return err
			}
			st, err = h.Wait()
			mismatch(st, err, theirs)
			none, st, err := RecvAppend[float64](c, nil, other, 3)
			mismatch(st, err, theirs, "float64")
			if none != nil {
				all = append(all, fmt.Errorf("RecvAppend of a wrong type: %v", none))
			}
			st, err = Sendrecv(c, right, cohort.ProcNull, 0, flat, other, 3)
			mismatch(st, err, theirs)
			if _, err = Recv(c, right, other, 3); err != nil {
				return err
			}
			all = append(all, holds(right, other, shape...), holds(flat, 77, n), holds(ints, 78, shape...), WaitAll(hs...),
				send.Close(), flat.Close(), ints.Close(), right.Close())
		}
	}
	return errors.Join(all...)
}
