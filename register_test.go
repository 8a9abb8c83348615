//go:build linux && !race

package cohort_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// The backend of ExampleRegister, which wraps another one from outside, passes the conformance suite.
func TestRegisteredBackendConforms(t *testing.T) {
	l := cohorttest.Processes{Backend: "counted"}
	if testing.Short() {
		cohorttest.Some(t, l, 3, func(string) bool { return true })
		return
	}
	cohorttest.Test(t, l)
}
