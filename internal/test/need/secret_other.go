//go:build !linux || !(amd64 || arm64)

package need

import "errors"

// SecretMemory returns ErrUnsupported.
func SecretMemory(int) ([]byte, error) { return nil, errors.ErrUnsupported }
