package accel

// Address is an address in a device's memory, or 0. The host must not dereference it.
type Address uintptr

// A Driver gives access to devices of one kind. Its methods, and those of the values they return,
// can be called from any goroutine and thread. Errors are of type backend.Fault:
//
//   - ErrNotSupported: no driver, or no such device; the text says why.
//   - ErrAlloc: out of memory on the device or for pinning.
//   - ErrBuffer: a range of addresses is not, or not completely, memory of the device.
//   - ErrCount: a size of 0 or less.
//   - ErrClosed: the stream or event is closed.
//   - ErrInternal: the driver failed; the text has the driver's name for the error. After some of
//     these, such as a kernel's access to an invalid address, this process cannot use the device
//     any more.
type Driver interface {
	// Name is the name of the driver in devices and errors, such as cuda.
	Name() string

	// Devices returns the number of devices, at least one unless it returns an error.
	Devices() (int, error)

	// Device returns a device, always the same for one index.
	Device(index int) (Device, error)
}

// A Device has memory and streams.
type Device interface {
	Index() int

	// Model is the maker's name for the device.
	Model() string

	// Memory returns the free and the total memory in bytes.
	Memory() (free, total int, err error)

	// Alloc allocates n > 0 bytes of device memory, aligned for any element. The contents are
	// undefined.
	Alloc(n int) (Address, error)

	// Free frees memory that Alloc returned. It waits until all streams have finished with it.
	Free(a Address) error

	// Room returns the number of bytes from an address to the end of its allocation, which may be
	// another library's.
	Room(a Address) (int, error)

	// Pin allocates n > 0 bytes of host memory, outside of Go's heap, that the device accesses
	// directly. Copies of other memory are slower and occupy the host.
	Pin(n int) ([]byte, error)

	// Unpin frees memory that Pin returned.
	Unpin(b []byte) error

	// Stream returns a new stream, which does not synchronize with others by itself.
	Stream() (Stream, error)

	// Adopt returns the stream of a handle made elsewhere; 0 is the device's default stream.
	// Closing it does nothing.
	Adopt(handle uintptr) Stream

	// Event returns a new event, which counts as having occurred.
	Event() (Event, error)

	// Run calls f in a thread in which libraries can use the device.
	Run(f func()) error

	// View returns device memory as a slice that the host must not access, for libraries that
	// accept addresses of this device as they accept host addresses.
	View(a Address, n int) []byte
}

// A Stream is a queue of device work. Its methods start work and return. The host memory of a copy
// must not change until the copy is done; a copy of memory that is not pinned is done when the
// method returns.
type Stream interface {
	// Handle is the driver's handle of the stream.
	Handle() uintptr

	ToHost(dst []byte, src Address) error
	ToDevice(dst Address, src []byte) error
	Within(dst, src Address, n int) error

	// Record lets the event occur when all work before it is done.
	Record(e Event) error

	// Follow makes later work wait for the event as last recorded.
	Follow(e Event) error

	// Sync waits until all work is done, and returns an error of any of it.
	Sync() error

	// Close waits for the stream's work and frees the stream.
	Close() error
}

// An Event is a point in a stream.
type Event interface {
	// Sync waits until the event occurs.
	Sync() error

	// Done reports whether the event has occurred.
	Done() (bool, error)

	Close() error
}
