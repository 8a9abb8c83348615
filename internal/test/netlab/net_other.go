//go:build !linux

package netlab

import (
	"errors"
	"net/netip"
	"os/exec"
	"testing"
)

// Config describes a network.
type Config struct {
	Hosts int
	MTU   int
	Seed  uint64
}

// A Net is a network of hosts. There is none on this system.
type Net struct{}

// ErrUnavailable is New's error.
var ErrUnavailable = errors.New("no network can be made here: it takes the namespaces of Linux")

// New returns ErrUnavailable.
func New(Config) (*Net, error) { return nil, ErrUnavailable }

// Need skips the test.
func Need(t testing.TB) bool {
	t.Helper()
	t.Skip(ErrUnavailable)
	return false
}

// Addr is the address of a host.
func (*Net) Addr(int) netip.Addr { return netip.Addr{} }

// Do returns ErrUnavailable.
func (*Net) Do(int, func() error) error { return ErrUnavailable }

// Start returns ErrUnavailable.
func (*Net) Start(int, *exec.Cmd) error { return ErrUnavailable }

// Set does nothing.
func (*Net) Set(int, int, Path) {}

// Isolate does nothing.
func (*Net) Isolate(int, bool) {}

// Count returns nothing.
func (*Net) Count(int, int) Count { return Count{} }

// Record does nothing.
func (*Net) Record() {}

// Trace returns nothing.
func (*Net) Trace() Trace { return nil }

// On does nothing.
func (*Net) On(string, func()) {}

// Marker returns ErrUnavailable.
func Marker() (mark func(string) error, end func() error, err error) { return nil, nil, ErrUnavailable }

// Close does nothing.
func (*Net) Close() error { return nil }
