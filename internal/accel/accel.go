package accel

// Address is a place in a device's memory; 0 is none. It is not for the host to follow.
type Address uintptr

// A Driver is a kind of devices. All methods here, and those of what they return, can be called from
// any number of goroutines, on any thread. Errors are backend.Faults:
//
//   - ErrNotSupported: there is no driver, or no such device; the text says why.
//   - ErrAlloc: there is no memory left, on the device or for pinning.
//   - ErrBuffer: an address is not, or not to its end, memory of the device.
//   - ErrCount: memory of no bytes, or of fewer, was asked for.
//   - ErrClosed: the stream or event was closed before.
//   - ErrInternal: the driver failed, with its own name for the error. After some of these, such as
//     a kernel's access to memory that is not there, the device is of no use to this process any more.
type Driver interface {
	// Name is what devices and errors are called by, such as cuda.
	Name() string

	// Devices returns how many devices there are, at least one if there is no error.
	Devices() (int, error)

	// Device returns a device, the same for the same index.
	Device(index int) (Device, error)
}

// A Device has memory, and streams.
type Device interface {
	Index() int

	// Model is the maker's name for it.
	Model() string

	// Memory returns how many bytes are free, and how many there are.
	Memory() (free, total int, err error)

	// Alloc returns memory of the device, of n > 0 bytes, aligned for any element. Its contents are
	// anything.
	Alloc(n int) (Address, error)

	// Free gives back what Alloc returned, once all streams are done with it, for which it waits.
	Free(a Address) error

	// Room returns how many bytes there are from an address to the end of the allocation it is in, who
	// ever made that.
	Room(a Address) (int, error)

	// Pin returns memory of the host, of n > 0 bytes, which the device reads and writes by itself:
	// copies of other memory keep the host busy, and are slower. It is outside of Go's heap.
	Pin(n int) ([]byte, error)

	// Unpin gives back what Pin returned.
	Unpin(b []byte) error

	// Stream returns a new stream, which does not wait for others by itself.
	Stream() (Stream, error)

	// Adopt returns the stream of a handle that somebody else made; 0 is the device's default stream.
	// To close it does nothing.
	Adopt(handle uintptr) Stream

	// Event returns a new event, which counts as having happened.
	Event() (Event, error)

	// View returns memory of the device as a slice that must not be looked into: for a library that
	// takes addresses of this device as it takes those of the host.
	View(a Address, n int) []byte
}

// A Stream is a queue of work of a device. Its methods start work, and return. The host memory of a
// copy has to stay as it is until the work is done, which for memory that is not pinned it is when the
// method returns.
type Stream interface {
	// Handle is what the driver knows the stream by.
	Handle() uintptr

	ToHost(dst []byte, src Address) error
	ToDevice(dst Address, src []byte) error
	Within(dst, src Address, n int) error

	// Record has the event happen when all work before it is done.
	Record(e Event) error

	// Follow has the work after it wait for the event as it was last recorded.
	Follow(e Event) error

	// Sync waits until all work is done. It returns the error of any of it.
	Sync() error

	// Close gives the stream back, once its work is done, for which it waits.
	Close() error
}

// An Event is a moment in a stream.
type Event interface {
	// Sync waits for the moment.
	Sync() error

	// Done reports whether it has come.
	Done() (bool, error)

	Close() error
}
