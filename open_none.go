//go:build !cgo || !linux || cohort_nompi || cohort_notcp || cohort_noshm

package cohort

import (
	"fmt"
	"strings"
)

// absent is the error of a backend that was asked for, or detected, and is not
// there.
func absent(name, why string) error {
	var there []string
	for _, b := range []string{"local", "shm", "tcp", "mpi"} {
		if _, out := missing[b]; !out {
			there = append(there, b)
		}
	}
	return fault(ErrNotSupported, fmt.Sprintf("backend %s is not there: %s; there is %s", name, why, strings.Join(there, " and ")))
}
