//go:build !linux

package shmem

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Supported reports whether this system has what the package needs.
const Supported = false

// MaxCopy is the most bytes one ReadProcess or WriteProcess moves.
const MaxCopy = 1 << 20

var errOther = errors.New("shared memory between ranks needs Linux (memfd, futex, pidfd)")

// Create returns the reason why there is no shared memory here.
func Create(string, int) (*Segment, error) { return nil, errOther }

// CreateSparse returns the reason why there is no shared memory here.
func CreateSparse(string, int, int) (*Segment, error) { return nil, errOther }

// Allocate returns the reason why there is no shared memory here.
func (s *Segment) Allocate(int, int) error { return errOther }

// Open returns the reason why there is no shared memory here.
func Open(int, int) (*Segment, error) { return nil, errOther }

// FD returns -1: there is no segment.
func (s *Segment) FD() int { return -1 }

// CloseFD does nothing.
func (s *Segment) CloseFD() {}

// Close does nothing.
func (s *Segment) Close() error { return nil }

// An Export cannot be made here.
type Export struct{ Name string }

// NewOffer returns the reason why it cannot.
func NewExport(int, int) (*Export, error) { return nil, errOther }

// Close does nothing.
func (*Export) Close() {}

// Fetch returns the reason why it cannot.
func Fetch(context.Context, string) (int, error) { return -1, errOther }

// FutexWait does nothing: there is no segment to wait in.
func FutexWait(*atomic.Uint32, uint32, time.Duration) {}

// FutexWake does nothing.
func FutexWake(*atomic.Uint32, int) {}

// Yield does nothing.
func Yield() {}

// ReadProcess returns the reason why it cannot.
func ReadProcess(int, uint64, []byte) error { return errOther }

// WriteProcess returns the reason why it cannot.
func WriteProcess(int, uint64, []byte) error { return errOther }

// Watch cannot be made here.
type Watch struct{}

// NewWatch returns the reason why it cannot.
func NewWatch(map[int]int, func(int)) (*Watch, error) { return nil, errOther }

// Close does nothing.
func (*Watch) Close() {}

// CPUs returns the reason why it cannot.
func CPUs() ([16]uint64, error) { return [16]uint64{}, errOther }

// Gone returns false: there are no peers.
func Gone(error) bool { return false }

// Process cannot be opened here.
type Process struct{}

// OpenProcess returns the reason why it cannot.
func OpenProcess(int) (*Process, error) { return nil, errOther }

// Kill does nothing.
func (*Process) Kill() {}

// Close does nothing.
func (*Process) Close() {}
