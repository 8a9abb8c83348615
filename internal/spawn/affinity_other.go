//go:build !linux

package spawn

import "errors"

// allowed returns nil: this system has no affinity mask.
func allowed() CPUs { return nil }

func setAffinity(CPUs) error {
	return errors.New("processes cannot be bound to processors on this system")
}
