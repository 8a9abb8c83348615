//go:build !linux

package clp

import "testing"

func resident(t *testing.T) int {
	t.Skip("resident memory is read from /proc, which Linux has")
	return 0
}

// flush has nothing to do where the child's output is not looked at.
func flush(t *testing.T) {}
