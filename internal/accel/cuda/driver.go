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

// oldest is the version of the driver that is needed: 11.0, the first that knows the range an address
// is in (CU_POINTER_ATTRIBUTE_RANGE_SIZE) whoever allocated it.
const oldest = 11000

// driver implements accel.Driver.
type driver struct {
	names []string // of the library

	once    sync.Once // load
	lib     *library
	devices []*device
	err     error // why there are none

	mu   sync.RWMutex
	pins span.Set[[]byte] // mu guards it
}

var process = &driver{names: names}

// Driver returns the driver of this process. It is loaded and initialised when somebody first asks for
// devices.
func Driver() accel.Driver { return process }

// Name implements accel.Driver.
func (d *driver) Name() string { return "cuda" }

// Devices implements accel.Driver.
func (d *driver) Devices() (int, error) {
	d.once.Do(func() { sheltered(d.load) })
	return len(d.devices), d.err
}

// Device implements accel.Driver. The device's context is made when it is first needed.
func (d *driver) Device(index int) (accel.Device, error) {
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fault(backend.ErrNotSupported, "there is no device %d: there are %d, numbered from 0%s", index, n, visible())
	}
	return d.devices[index], nil
}

// load finds the library and its devices, or why there are none.
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
		d.err = fault(backend.ErrNotSupported, "%s is a driver for CUDA %d.%d, and the oldest that will do is %d.%d: install a newer driver",
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

// visible says what hides devices, if something may.
func visible() string {
	if v, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		return fmt.Sprintf(" (CUDA_VISIBLE_DEVICES=%q hides others)", v)
	}
	return ""
}

// fault returns an error that says of whom it is.
func fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: "cuda: " + fmt.Sprintf(format, args...)}
}

// sentinel returns what an error of the driver's is an instance of.
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
