//go:build !unix

package flight

import "errors"

func mapFile(string, []byte) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}
