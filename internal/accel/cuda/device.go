package cuda

import (
	"cmp"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// device implements accel.Device.
type device struct {
	driver *driver
	index  int
	number int32 // a CUdevice
	model  string

	context atomic.Uintptr // the primary context, retained for good once it is used

	mu     sync.RWMutex       // also held to retain the context
	allocs span.Set[struct{}] // results of Alloc; guarded by mu
}

// A frame is the state of one call: the thread's previous context, and room for the driver's
// arguments and results, outside of any stack. Frames are pooled, so that calls do not allocate.
type frame struct {
	lib    *library
	pushed bool
	old    uintptr
	args   [6]uintptr
	out    [2]uintptr
	about  about
	into   [len(attributes)]*uint64 // the fields of about, in the order of attributes
	host   []byte                   // keeps the memory in place and alive while the driver uses its address
}

var frames = sync.Pool{New: func() any {
	f := new(frame)
	f.into = [...]*uint64{&f.about.kind, &f.about.managed, &f.about.ordinal, &f.about.start, &f.about.size}
	return f
}}

// call calls a function. Arguments that are addresses of Go memory must be in the frame, or be
// those of its host.
func (f *frame) call(fn function, args ...uintptr) result {
	return f.lib.call(fn, f.args[:copy(f.args[:], args)]...)
}

// enter locks the goroutine to its thread and makes the device's context current, until leave.
func (dev *device) enter() (*frame, error) {
	context := dev.context.Load()
	if context == 0 {
		var err error
		if context, err = dev.retain(); err != nil {
			return nil, err
		}
	}
	runtime.LockOSThread()
	f := frames.Get().(*frame)
	f.lib, f.pushed = dev.driver.lib, false
	r := f.call(cuCtxGetCurrent, uintptr(unsafe.Pointer(&f.old)))
	if r != success {
		dev.leave(f)
		return nil, dev.failed(r, cuCtxGetCurrent, "")
	}
	if f.old == context {
		return f, nil
	}
	if r := f.call(cuCtxPushCurrent, context); r != success {
		dev.leave(f)
		return nil, dev.failed(r, cuCtxPushCurrent, "")
	}
	f.pushed = true
	return f, nil
}

// leave restores the thread's previous context and unlocks the goroutine.
func (dev *device) leave(f *frame) {
	if f.pushed {
		// This fails only if the driver shuts down, when contexts do not matter any more.
		f.call(cuCtxPopCurrent, uintptr(unsafe.Pointer(&f.old)))
	}
	runtime.UnlockOSThread()
	f.host = nil
	frames.Put(f)
}

// retain returns the primary context and creates it if necessary.
func (dev *device) retain() (uintptr, error) {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if context := dev.context.Load(); context != 0 {
		return context, nil
	}
	var context uintptr
	r := success
	withSignalsBlocked(func() {
		r = dev.driver.lib.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&context)), uintptr(dev.number))
	})
	if r != success {
		return 0, dev.failed(r, cuDevicePrimaryCtxRetain, "")
	}
	dev.context.Store(context)
	return context, nil
}

// do calls a function with the device's context. Arguments must not be addresses of Go memory.
func (dev *device) do(fn function, args ...uintptr) error {
	f, err := dev.enter()
	if err != nil {
		return err
	}
	r := f.call(fn, args...)
	dev.leave(f)
	return dev.failed(r, fn, "")
}

// failed converts an error of the driver. It returns nil for success.
func (dev *device) failed(r result, fn function, what string) error {
	if r == success {
		return nil
	}
	return dev.fault(r.sentinel(), "%v%s: %s", fn, what, dev.driver.lib.text(r))
}

func (dev *device) fault(sentinel error, format string, args ...any) error {
	return fault(sentinel, "device %d: %s", dev.index, fmt.Sprintf(format, args...))
}

// Index implements accel.Device.
func (dev *device) Index() int { return dev.index }

// Model implements accel.Device.
func (dev *device) Model() string { return dev.model }

// Memory implements accel.Device.
func (dev *device) Memory() (free, total int, err error) {
	f, err := dev.enter()
	if err != nil {
		return 0, 0, err
	}
	defer dev.leave(f)
	if r := f.call(cuMemGetInfo, uintptr(unsafe.Pointer(&f.out[0])), uintptr(unsafe.Pointer(&f.out[1]))); r != success {
		return 0, 0, dev.failed(r, cuMemGetInfo, "")
	}
	return int(f.out[0]), int(f.out[1]), nil
}

// Alloc implements accel.Device.
func (dev *device) Alloc(n int) (accel.Address, error) {
	if n <= 0 {
		return 0, dev.fault(backend.ErrCount, "allocation of %d bytes; want 1 or more", n)
	}
	f, err := dev.enter()
	if err != nil {
		return 0, err
	}
	defer dev.leave(f)
	f.out[0] = 0
	switch r := f.call(cuMemAlloc, uintptr(unsafe.Pointer(&f.out[0])), uintptr(n)); r {
	case success:
	case errOutOfMemory, errInvalidValue: // only the size can be invalid
		return 0, dev.fault(backend.ErrAlloc, "%v of %d bytes: %s%s", cuMemAlloc, n, dev.driver.lib.text(r), dev.free(f))
	default:
		return 0, dev.failed(r, cuMemAlloc, fmt.Sprintf(" of %d bytes", n))
	}
	at := f.out[0]
	dev.mu.Lock()
	dev.allocs.Add(span.Span[struct{}]{At: at, N: uintptr(n)})
	dev.mu.Unlock()
	return accel.Address(at), nil
}

// free formats the free memory if the driver reports it. The device has been entered.
func (dev *device) free(f *frame) string {
	if f.call(cuMemGetInfo, uintptr(unsafe.Pointer(&f.out[0])), uintptr(unsafe.Pointer(&f.out[1]))) != success {
		return ""
	}
	return fmt.Sprintf(" (%d of %d free)", f.out[0], f.out[1])
}

// Free implements accel.Device. It waits for all work of the device, which cuMemFree usually, but
// not certainly, does.
func (dev *device) Free(a accel.Address) error {
	dev.mu.Lock()
	known := dev.allocs.Remove(uintptr(a))
	dev.mu.Unlock()
	if !known {
		return dev.fault(backend.ErrBuffer, "address %#x was not returned by Alloc, or is freed already; it is %s", uintptr(a), dev.describe(a))
	}
	f, err := dev.enter()
	if err != nil {
		return err
	}
	defer dev.leave(f)
	waited := f.call(cuCtxSynchronize)
	freed := f.call(cuMemFree, uintptr(a))
	return cmp.Or(dev.failed(freed, cuMemFree, ""), dev.failed(waited, cuCtxSynchronize, ""))
}

// Run implements accel.Device.
func (dev *device) Run(f func()) error {
	frame, err := dev.enter()
	if err != nil {
		return err
	}
	defer dev.leave(frame)
	f()
	return nil
}

// View implements accel.Device.
func (dev *device) View(a accel.Address, n int) []byte {
	if a == 0 || n <= 0 {
		return nil
	}
	// SAFETY: nothing reads through the slice. The garbage collector ignores addresses outside Go's
	// heap, and the driver's always are.
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&a))), n)
}

// Pin implements accel.Device. The memory is pinned for all devices.
func (dev *device) Pin(n int) ([]byte, error) {
	if n <= 0 {
		return nil, dev.fault(backend.ErrCount, "pinned memory of %d bytes; want 1 or more", n)
	}
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE: for all contexts
	f, err := dev.enter()
	if err != nil {
		return nil, err
	}
	defer dev.leave(f)
	var p *byte
	switch r := dev.driver.lib.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(n), portable); r {
	case success:
	case errOutOfMemory, errInvalidValue: // only the size can be invalid
		return nil, dev.fault(backend.ErrAlloc, "%v of %d bytes: %s", cuMemHostAlloc, n, dev.driver.lib.text(r))
	default:
		return nil, dev.failed(r, cuMemHostAlloc, fmt.Sprintf(" of %d bytes", n))
	}
	// SAFETY: the driver has just allocated these n bytes outside of Go's heap, and only Unpin
	// frees them.
	b := unsafe.Slice(p, n)
	d := dev.driver
	d.mu.Lock()
	d.pins.Add(span.Span[[]byte]{At: span.Address(b), N: uintptr(n), Value: b})
	d.mu.Unlock()
	return b, nil
}

// Unpin implements accel.Device.
func (dev *device) Unpin(b []byte) error {
	d := dev.driver
	d.mu.Lock()
	known := d.pins.Remove(span.Address(b))
	d.mu.Unlock()
	if !known {
		return dev.fault(backend.ErrBuffer, "the memory was not returned by Pin, or is unpinned already")
	}
	return dev.do(cuMemFreeHost, span.Address(b))
}

// pinned reports whether Pin returned the memory that b is part of. Memory pinned by other
// libraries counts as not pinned; its copies are correct, but slower.
func (d *driver) pinned(b []byte) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	// SAFETY: the address is only compared.
	return d.pins.Holds(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
}
