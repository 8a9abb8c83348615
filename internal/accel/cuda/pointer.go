package cuda

import (
	"fmt"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// attributes are the CUpointer_attribute constants of cuda.h to ask for, in the order of about.
var attributes = [...]uint32{
	2,  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
	8,  // CU_POINTER_ATTRIBUTE_IS_MANAGED
	9,  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
	11, // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
	12, // CU_POINTER_ATTRIBUTE_RANGE_SIZE
}

// about is what the driver reports about an address. Some values have 4 bytes or 1; on the
// processors with drivers these come first in 8 bytes.
type about struct {
	kind, managed, ordinal uint64
	start, size            uint64
}

// The kinds of memory, CUmemorytype of cuda.h; 0 is memory that the driver does not know.
const (
	kindHost   = 1
	kindDevice = 2
	kindArray  = 3
)

// ask asks the driver about an address. The result is zero for an address it does not know.
func (dev *device) ask(a accel.Address) (about, error) {
	f, err := dev.enter()
	if err != nil {
		return about{}, err
	}
	defer dev.leave(f)
	f.about = about{}
	r := f.call(cuPointerGetAttributes, uintptr(len(attributes)), uintptr(unsafe.Pointer(&attributes[0])), uintptr(unsafe.Pointer(&f.into[0])), uintptr(a))
	switch r {
	case success:
		got := f.about
		got.kind, got.ordinal, got.managed = got.kind&0xffffffff, got.ordinal&0xffffffff, got.managed&0xff
		return got, nil
	case errInvalidValue: // older drivers return this for host memory
		return about{}, nil
	}
	return about{}, dev.failed(r, cuPointerGetAttributes, "")
}

// Room implements accel.Device. It knows the memory of Alloc. For other memory it asks the driver
// each time, because its owner may free it at any time.
func (dev *device) Room(a accel.Address) (int, error) {
	dev.mu.RLock()
	p, known := dev.allocs.Find(uintptr(a))
	dev.mu.RUnlock()
	if known {
		return int(p.N - (uintptr(a) - p.At)), nil
	}
	got, err := dev.ask(a)
	if err != nil {
		return 0, err
	}
	if got.kind != kindDevice || got.managed != 0 || got.ordinal != uint64(dev.index) || uint64(a)-got.start >= got.size {
		return 0, dev.fault(backend.ErrBuffer, "address %#x is not memory of this device; it is %s", uintptr(a), got)
	}
	return int(got.size - (uint64(a) - got.start)), nil
}

// String describes the memory at the address.
func (a about) String() string {
	switch {
	case a.managed != 0:
		return "managed memory (cuMemAllocManaged), which moves between host and device"
	case a.kind == kindHost:
		return "pinned memory of the host"
	case a.kind == kindArray:
		return "an array of textures"
	case a.kind == kindDevice:
		return fmt.Sprintf("in an allocation of %d bytes of device %d", a.size, a.ordinal)
	}
	return "memory of the host, or none"
}

// describe describes the memory at an address, if the driver knows it.
func (dev *device) describe(a accel.Address) string {
	got, err := dev.ask(a)
	if err != nil {
		return "unknown"
	}
	return got.String()
}

// check returns an error unless n bytes at an address are memory of the device.
func (dev *device) check(a accel.Address, n int) error {
	room, err := dev.Room(a)
	if err == nil && (n < 0 || n > room) {
		err = dev.fault(backend.ErrBuffer, "%d bytes at address %#x exceed its allocation, which ends after %d", n, uintptr(a), room)
	}
	return err
}
