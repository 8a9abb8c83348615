//go:build !linux

package shmem

import (
	"errors"
	"sync/atomic"
	"time"
)

// Supported reports whether this system has what the package needs.
const Supported = false

var errOther = errors.New("shared memory between ranks needs Linux (memfd, futex, pidfd)")

// Create returns the reason why there is no shared memory here.
func Create(string, int) (*Segment, error) { return nil, errOther }

// Allocate returns the reason why there is no shared memory here.
func (s *Segment) Allocate(int, int) error { return errOther }

// CloseFD does nothing.
func (s *Segment) CloseFD() {}

// Close does nothing.
func (s *Segment) Close() error { return nil }

// Anonymous allocates size bytes that begin on a page.
func Anonymous(size int) ([]byte, error) {
	return Aligned(make([]byte, size+PageSize))[:size:size], nil
}

// Unmap leaves the memory to the garbage collector.
func Unmap([]byte) error { return nil }

// Populate touches the pages of b, which has not been written yet. It calls stop between the steps
// and ends with its error.
func Populate(b []byte, stop func() error) error { return touch(b, stop) }

// FutexWait sleeps for a moment. The caller looks again.
func FutexWait(*atomic.Uint32, uint32, time.Duration) { time.Sleep(50 * time.Microsecond) }

// FutexWake does nothing.
func FutexWake(*atomic.Uint32, int) {}

// Yield does nothing.
func Yield() {}

// Process is another process, whose memory cannot be read here.
type Process struct{ PID int }

// Read returns the reason why it cannot.
func (*Process) Read(uint64, []byte) error { return errOther }

// Write returns the reason why it cannot.
func (*Process) Write(uint64, []byte) error { return errOther }

// Check returns the reason why it cannot.
func (*Process) Check() error { return errOther }

// Identity is what a process says of itself.
type Identity struct{ _ [32]byte }

// Self returns an empty Identity.
func Self() (id Identity) { return id }

// Process returns a process that cannot be read.
func (Identity) Process() *Process { return new(Process) }

// Watch cannot be made here.
type Watch struct{ Polled error }

// NewWatch returns the reason why it cannot.
func NewWatch(map[int]int, func(int)) (*Watch, error) { return nil, errOther }

// Close does nothing.
func (*Watch) Close() {}

// CPUs returns the reason why it cannot.
func CPUs() ([16]uint64, error) { return [16]uint64{}, errOther }

// Gone returns false: there are no peers.
func Gone(error) bool { return false }

// Copyable reports true: nothing is copied here.
func Copyable([]byte) bool { return true }

// Runs returns false: nothing is known.
func Runs(int) bool { return false }
