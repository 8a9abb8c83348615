//go:build !linux && !darwin

package shmem

import "os"

// PageSize is the unit in which memory is mapped.
var PageSize = os.Getpagesize()

// Area is memory that users hold slices of; here it is Go's.
type Area struct{ mem []byte }

// Anonymous makes an area of size bytes.
func Anonymous(size int) (*Area, error) { return &Area{mem: make([]byte, size)}, nil }

// Bytes returns the memory; nil after Close.
func (a *Area) Bytes() []byte { return a.mem }

// Close leaves the memory to the garbage collector.
func (a *Area) Close() error {
	a.mem = nil
	return nil
}
