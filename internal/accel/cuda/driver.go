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
	d.once.Do(func() { withSignalsBlocked(d.load) })
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

// load loads the library and its devices, or sets err.
func (d *driver) load() {
	lib, err := bind(d.names)
	if err != nil {
		d.err = fault(backend.ErrNotSupported, "%v", err)
		return
	}
	d.lib = lib
	if r := lib.call(cuInit, 0); r != success {
		d.err = fault(backend.ErrNotSupported, "%s: %v: %s%s", lib.name, cuInit, lib.text(r), visible())
		return
	}
	var version, count int32
	if r := lib.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); r != success {
		d.err = fault(backend.ErrNotSupported, "%s: %v: %s", lib.name, cuDriverGetVersion, lib.text(r))
		return
	}
	if version < oldest {
		d.err = fault(backend.ErrNotSupported, "%s is a driver for CUDA %d.%d, older than %d.%d; install a newer driver",
			lib.name, version/1000, version%1000/10, oldest/1000, oldest%1000/10)
		return
	}
	if r := lib.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&count))); r != success || count < 1 {
		why := "there is no device"
		if r != success {
			why = fmt.Sprintf("%v: %s", cuDeviceGetCount, lib.text(r))
		}
		d.err = fault(backend.ErrNotSupported, "%s: %s%s", lib.name, why, visible())
		return
	}
	devices := make([]*device, count)
	for i := range devices {
		dev := &device{driver: d, index: i}
		var name [256]byte
		if r := lib.call(cuDeviceGet, uintptr(unsafe.Pointer(&dev.number)), uintptr(i)); r != success {
			d.err = fault(backend.ErrNotSupported, "device %d: %v: %s", i, cuDeviceGet, lib.text(r))
			return
		}
		if r := lib.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(dev.number)); r != success {
			d.err = fault(backend.ErrNotSupported, "device %d: %v: %s", i, cuDeviceGetName, lib.text(r))
			return
		}
		name[len(name)-1] = 0
		dev.model = goString(&name[0])
		devices[i] = dev
	}
	d.devices = devices
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
