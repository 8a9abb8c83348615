//go:build !linux

package flight

import "errors"

func inMemory(string) bool { return false }

func mapFile(string, []byte) ([]byte, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}
