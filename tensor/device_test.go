package tensor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// softDevices returns the devices of a driver in software. When the test ends, nothing may be left
// on them and no violation noticed.
func softDevices(t testing.TB, c soft.Config) ([]*Device, *soft.Driver) {
	t.Helper()
	driver := soft.New(c)
	n := max(c.Devices, 1)
	devs := make([]*Device, n)
	for i := range devs {
		acc := must.Get(driver.Device(i))
		devs[i] = newDevice("soft", acc)
	}
	t.Cleanup(func() {
		driver.SetFail(nil)
		for _, d := range devs {
			d.Trim()
		}
		if err := driver.Left(); err != nil {
			t.Error(err)
		}
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	return devs, driver
}

// newOn is NewOn for tests; the tensor is closed when the test ends.
func newOn[T cohort.Number](t testing.TB, d *Device, shape ...int) *Tensor[T] {
	t.Helper()
	x := must.Get(NewOn[T](d, shape...))
	t.Cleanup(func() { _ = x.Close() }) // fails only on a device that was broken on purpose
	return x
}

// looked is look for goroutines that may end the test.
func looked[T cohort.Number](t testing.TB, x *Tensor[T]) []T {
	t.Helper()
	data := must.Get(look(x))
	return data
}

// look returns the elements in device memory: in software as the device sees them, otherwise with
// one copy by the driver.
func look[T cohort.Number](x *Tensor[T]) (data []T, err error) {
	data = make([]T, x.n)
	s := x.dev.acc.Adopt(0)
	if in, ok := s.(*soft.Stream); ok {
		err = in.Do(func(mem func(accel.Address, int) []byte) { copy(view.Bytes(data), mem(x.at, x.size())) })
	} else {
		err = s.ToHost(view.Bytes(data), x.at)
	}
	if err == nil {
		err = s.Sync()
	}
	return data, err
}

func TestProcessorIsDeviceWithoutMemory(t *testing.T) {
	for _, d := range []*Device{CPU, nil, {}} {
		free, total, err := d.Memory()
		if d.String() != "cpu" || d.Index() != -1 || d.Model() != "" || free != 0 || total != 0 || err != nil {
			t.Errorf("%v: index %d, model %q, memory %d of %d, %v", d, d.Index(), d.Model(), free, total, err)
		}
		d.Trim()
		if _, err := d.NewStream(); !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("a stream of the processor: %v", err)
		}
		if _, err := d.StreamOf(0); !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("a stream of the processor: %v", err)
		}
		if _, err := At[int8](d, 4096, 1); !errors.Is(err, cohort.ErrNotSupported) {
			t.Errorf("memory of the processor by its address: %v", err)
		}
		x, err := NewOn[int8](d, 2, 2)
		if err != nil || x.Device() != CPU || len(x.Data()) != 4 || x.Close() != nil || x.Address() != 0 {
			t.Errorf("NewOn(%v): %v, %v", d, x, err)
		}
	}
}

func TestNewOnAllocatesAndFrees(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{Devices: 2, Memory: 1 << 20})
	d := devs[1]
	if d.String() != "soft:1" || d.Index() != 1 || d.Model() == "" {
		t.Errorf("the device is %v, of model %q", d, d.Model())
	}
	x := newOn[float32](t, d, 3, 5)
	if x.String() != "float32[3 5] on soft:1" || x.Device() != d || x.Address() == 0 || x.Data() != nil || x.Raw() != nil || x.Len() != 15 {
		t.Errorf("got %v at %#x, %v", x, x.Address(), x.Data())
	}
	if free, total, err := d.Memory(); err != nil || total != 1<<20 || free != total-256 { // what the device hands out is a multiple of 256
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	if _, err := x.Elem(0, 0); !errors.Is(err, cohort.ErrNotSupported) {
		t.Errorf("an element of a device: %v", err)
	}
	if err := x.SetElem(1, 0, 0); !errors.Is(err, cohort.ErrNotSupported) {
		t.Errorf("an element of a device: %v", err)
	}
	empty := newOn[float32](t, d, 0, 4)
	if empty.Len() != 0 || empty.Close() != nil {
		t.Errorf("got %v", empty)
	}

	_, err := NewOn[float64](d, 1<<17, 2)
	if !errors.Is(err, cohort.ErrAlloc) || !strings.Contains(err.Error(), "float64[131072 2] on soft:1") {
		t.Errorf("twice the memory of the device: %v", err)
	}
	if _, err := NewOn[float64](d, -1); !errors.Is(err, cohort.ErrCount) {
		t.Errorf("a negative length: %v", err)
	}
	if n := driver.Stats().Allocations; n != 1 {
		t.Errorf("there are %d allocations, want 1", n)
	}

	// Tensors that share memory are closed together.
	part := must.Get(x.Sub(0, 1, 2))
	if err := errors.Join(x.Close(), x.Close(), part.Close()); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"a tensor": x.needContiguous(), "a part": part.needContiguous(), "Copy": Copy(x, x)} {
		if !errors.Is(err, cohort.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", what, err)
		}
	}
	driver.SetFail(soft.Nth(soft.Free, 1, nil))
	y := newOn[int8](t, d, 1)
	first := y.Close()
	if !errors.Is(first, cohort.ErrInternal) || y.Close() != first {
		t.Errorf("the driver does not take memory back: %v", first)
	}
}

func TestAtChecksAddress(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2, Memory: 1 << 20})
	d := devs[0]
	own := newOn[uint8](t, d, 256)
	for name, c := range map[string]struct {
		at    func() (interface{ Len() int }, error)
		want  error
		elems int
	}{
		"all of it":        {func() (interface{ Len() int }, error) { return At[float64](d, own.Address(), 4, 8) }, nil, 32},
		"a part":           {func() (interface{ Len() int }, error) { return At[float64](d, own.Address()+8, 31) }, nil, 31},
		"nothing":          {func() (interface{ Len() int }, error) { return At[float64](d, 0, 0) }, nil, 0},
		"complex":          {func() (interface{ Len() int }, error) { return At[complex128](d, own.Address()+8, 15) }, nil, 15},
		"named complex":    {func() (interface{ Len() int }, error) { return At[impedance](d, own.Address()+4, 31) }, nil, 31},
		"one too many":     {func() (interface{ Len() int }, error) { return At[float64](d, own.Address(), 33) }, cohort.ErrBuffer, 0},
		"not aligned":      {func() (interface{ Len() int }, error) { return At[float64](d, own.Address()+4, 1) }, cohort.ErrBuffer, 0},
		"another device's": {func() (interface{ Len() int }, error) { return At[uint8](devs[1], own.Address(), 1) }, cohort.ErrBuffer, 0},
		"not allocated":    {func() (interface{ Len() int }, error) { return At[uint8](d, 4096, 1) }, cohort.ErrBuffer, 0},
		"null":             {func() (interface{ Len() int }, error) { return At[uint8](d, 0, 1) }, cohort.ErrBuffer, 0},
		"negative":         {func() (interface{ Len() int }, error) { return At[uint8](d, own.Address(), -1) }, cohort.ErrCount, 0},
	} {
		x, err := c.at()
		if !errors.Is(err, c.want) || c.want == nil && x.Len() != c.elems {
			t.Errorf("%s: %v, %v, want %d elements, %v", name, x, err, c.elems, c.want)
		}
	}
	x, err := At[uint8](d, own.Address(), 256)
	if err != nil || x.Close() != nil || own.usable() != nil {
		t.Errorf("closing a tensor over memory of the caller has an effect: %v, %v", err, own.usable())
	}
}

type impedance complex64

func TestOnBindsStream(t *testing.T) {
	devs, _ := softDevices(t, soft.Config{Devices: 2})
	s := must.Get(devs[0].NewStream())
	defer s.Close()
	x := newOn[float32](t, devs[0], 2)
	y, err := x.On(s)
	if err != nil || y.stream.Handle() != s.Handle() || y.at != x.at {
		t.Errorf("on a stream: %v, %v", y, err)
	}
	if part, err := y.Sub(0, 0, 1); err != nil || part.stream.Handle() != s.Handle() {
		t.Errorf("a part is not in the order of the stream: %v", err)
	}
	same, err := devs[0].StreamOf(s.Handle())
	if err != nil || same.Handle() != s.Handle() || same.Sync() != nil || same.Close() != nil || s.Sync() != nil {
		t.Errorf("the stream by its handle: %v", err)
	}
	far := newOn[float32](t, devs[1], 2)
	host, _ := New[float32](2)
	for what, on := range map[string]func() (*Tensor[float32], error){
		"no stream":            func() (*Tensor[float32], error) { return x.On(nil) },
		"another device's":     func() (*Tensor[float32], error) { return far.On(s) },
		"the processor":        func() (*Tensor[float32], error) { return host.On(s) },
		"a tensor that is nil": func() (*Tensor[float32], error) { return (*Tensor[float32])(nil).On(s) },
	} {
		if _, err := on(); !errors.Is(err, cohort.ErrBuffer) {
			t.Errorf("%s: %v, want ErrBuffer", what, err)
		}
	}
}

// A tensor over the caller's memory shares it: making it copies nothing, each sees what the other
// writes, and results of collectives arrive in the caller's memory.
func TestAtSharesMemory(t *testing.T) {
	const n, from = 64, 8 // the tensor is a part of the allocation
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		l := must.Get(newLab(world, small, soft.Config{}))
		d, v := l.devs[0], reals[float64]()
		own := must.Get(of(counting[float64](n), []int{n}).To(d))
		before := l.drv.Stats()
		x, err := At[float64](d, own.Address()+8*from, 4, 5)
		if err != nil {
			return err
		}
		if now := l.drv.Stats(); x.Address() != own.Address()+8*from || now.Allocations != before.Allocations || now.Within != before.Within ||
			now.ToHost != before.ToHost || now.ToDevice != before.ToDevice {
			err = fmt.Errorf("memory at %#x was taken or copied for a tensor at %#x", x.Address(), own.Address()+8*from)
		}
		want := counting[float64](n)
		compare := func(what string) {
			got, err1 := look(own)
			if err1 == nil && !slices.Equal(got, want) {
				err1 = fmt.Errorf("%s: the owner has %v, want %v", what, got, want)
			}
			got, err2 := look(x)
			if err2 == nil && !slices.Equal(got, want[from:from+20]) {
				err2 = fmt.Errorf("%s: the tensor has %v, want %v", what, got, want[from:from+20])
			}
			err = errors.Join(err, err1, err2)
		}
		mine := v.vector(l.rank, 0, 20)
		copy(want[from:], mine)
		err = errors.Join(err, Copy(x, of(mine, []int{4, 5})))
		compare("written through the tensor")
		clear(want)
		copy(want[from:], mine)
		err = errors.Join(err, Copy(own, of(slices.Clone(want), []int{n})))
		compare("written by the owner")
		err = errors.Join(err, Allreduce(l.c, x, x, Sum))
		copy(want[from:], v.reduced(v.ops()[0], l.size, 0, 20))
		compare("Allreduce")
		return l.close(errors.Join(err, x.Close(), own.Close()))
	})
}

// A collective on part of a slice writes only that part.
func TestCollectiveOfSliceWritesOnlyItsPart(t *testing.T) {
	const from, n = 3, 500 // several pieces
	onRanks(t, []int{2}, func(_ *testing.T, world *cohort.Comm) error {
		c := must.Get(NewComm(world, &small))
		v := reals[float64]()
		data := slices.Repeat([]float64{57}, n+2*from)
		want := slices.Concat(data[:from:from], v.reduced(v.ops()[0], 2, 0, n), data[from+n:])
		copy(data[from:], v.vector(c.Rank(), 0, n))
		x, err := Of(data[from:from+n], n)
		if err == nil {
			err = Allreduce(c, x, x, Sum)
		}
		if err == nil && !slices.Equal(data, want) {
			err = fmt.Errorf("the slice is %v, want %v", data, want)
		}
		return errors.Join(err, c.Close())
	})
}

// TestPinnedMemoryStaysWithinTheJobsLimit sets Slurm's memory limit below what this process uses,
// and then 1000 MiB above that.
func TestPinnedMemoryStaysWithinTheJobsLimit(t *testing.T) {
	devs, driver := softDevices(t, soft.Config{})
	t.Setenv("SLURM_JOB_ID", "7")
	t.Setenv("SLURM_NODEID", "0")
	t.Setenv("SLURM_MEM_PER_NODE", "1")
	_, err := devs[0].pin(4096)
	if !errors.Is(err, cohort.ErrAlloc) || !strings.Contains(err.Error(), "SLURM_MEM_PER_NODE") {
		t.Fatalf("pinning more than the job may use: %v", err)
	}
	var process int64 // MiB
	_, text, _ := strings.Cut(err.Error(), "of which this process uses ")
	must.Get(fmt.Sscan(text, &process))
	limit := process + 1000
	t.Setenv("SLURM_MEM_PER_NODE", fmt.Sprint(limit))
	const piece = 8 << 20
	most := limit << 20 / pinsPart
	var used [][]byte
	for total := int64(0); total <= most; total += piece {
		p, err := devs[0].pin(piece)
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, p)
	}
	for _, p := range used {
		devs[0].unpin(p)
	}
	if kept := int64(driver.Stats().Pinned); kept > most || kept < piece {
		t.Errorf("%d bytes stay pinned, want at most %d and at least one piece", kept, most)
	}
}
