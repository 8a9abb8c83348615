//go:build !linux

package file

import (
	"os"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// preallocate reserves room for the first n bytes of a file.
func preallocate(f *os.File, n int64) error {
	return backend.Faultf(cohort.ErrNotSupported, "only Linux reserves room for files")
}
