package cuda

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

// oldest is the oldest usable driver: 11.0, the first that reports the allocation of an address
// (CU_POINTER_ATTRIBUTE_RANGE_SIZE) for any allocator.
const oldest = 11000

// driver implements accel.Driver.
type driver struct {
	names []string // of the library

	once    sync.Once // load
	lib     *library
	devices []*device
	err     error // why there are no devices

	mu   sync.RWMutex
	pins span.Set[[]byte] // guarded by mu
}

var process = &driver{names: names}

// Driver returns the driver of this process. It is loaded and initialized when devices are first
// used.
func Driver() accel.Driver { return process }

// Name implements accel.Driver.
func (d *driver) Name() string { return "cuda" }

// Devices implements accel.Driver.
func (d *driver) Devices() (int, error) {
	d.once.Do(func() { withSignalsBlocked(func() { d.err = d.load() }) })
	return len(d.devices), d.err
}

// Device implements accel.Driver. The device's context is created when it is first used.
func (d *driver) Device(index int) (accel.Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fault(backend.ErrNotSupported, "no device %d: there are %d, numbered from 0%s", index, n, visible())
	}
	return d.devices[index], nil
}

// load loads the library and its devices.
func (d *driver) load() (err error) {
	if d.lib, err = bind(d.names); err != nil {
		return fault(backend.ErrNotSupported, "%v", err)
	}
	var version, count int32
	if err := d.lib.try(cuInit, 0); err != nil {
		return err
	}
	if err := d.lib.try(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return err
	}
	if version < oldest {
		return fault(backend.ErrNotSupported, "%s is a driver for CUDA %d.%d, older than %d.%d; install a newer driver",
			d.lib.name, version/1000, version%1000/10, oldest/1000, oldest%1000/10)
	}
	if err := d.lib.try(cuDeviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return err
	}
	if count < 1 {
		return fault(backend.ErrNotSupported, "%s: there is no device%s", d.lib.name, visible())
	}
	devices := make([]*device, count)
	for i := range devices {
		dev := &device{driver: d, index: i}
		var name [256]byte
		if err := d.lib.try(cuDeviceGet, uintptr(unsafe.Pointer(&dev.number)), uintptr(i)); err != nil {
			return err
		}
		if err := d.lib.try(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(dev.number)); err != nil {
			return err
		}
		name[len(name)-1] = 0
		dev.model = goString(&name[0])
		devices[i] = dev
	}
	d.devices = devices
	return nil
}

// try calls a function while devices are looked for, as call does. If it fails, there are none.
//
//go:uintptrescapes
func (l *library) try(f function, args ...uintptr) error {
	if r := l.call(f, args...); r != success {
		return fault(backend.ErrNotSupported, "%s: %v: %s%s", l.name, f, l.text(r), visible())
	}
	return nil
}

// visible formats the variable that may hide devices.
func visible() string {
	if v, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		return fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%q hides others)", v)
	}
	return ""
}

// fault returns an error with the driver's name.
func fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: "cuda: " + fmt.Sprintf(format, args...)}
}

// sentinel returns the sentinel of a driver's error.
func (r result) sentinel() error {
	switch r {
	case errOutOfMemory:
		return backend.ErrAlloc
	case errNotInitialized, errStubLibrary, errDeviceUnavail, errNoDevice, errInvalidDevice,
		errNotSupported, errSystemNotReady, errDriverMismatch, errCompatNotOffered:
		return backend.ErrNotSupported
	}
	return backend.ErrInternal
}
