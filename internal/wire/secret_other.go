//go:build !unix

package wire

import (
	"errors"
	"os"
)

func openSecret(path string) (*os.File, error) { return os.Open(path) }

// private cannot check the permissions of a file on this system.
func private(*os.File) error {
	return errors.New("cannot be checked for its permissions on this system; pass a descriptor")
}
