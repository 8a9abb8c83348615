//go:build !cgo || !linux

package libmpi

import "errors"

// Describe needs cgo.
func Describe(string) (Description, error) { return Description{}, ErrNoC }

// ErrNoC is why no MPI library can be loaded by this program.
var ErrNoC = errors.New("this program was built without cgo, which loading an MPI library needs; build it on Linux with CGO_ENABLED=1 and a C compiler")
