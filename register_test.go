//go:build linux && !race

package cohort_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// The backend of ExampleRegister, which wraps another one from outside, passes the conformance suite.
func TestRegisteredBackendConforms(t *testing.T) {
	l := cohorttest.Processes{Backend: "counted"}
	cohorttest.Some(t, l, 3, func(scenario string) bool { // other numbers of ranks: the tests of the backends
		if !testing.Short() {
			return true
		}
		// What stands on these families is the same on every backend.
		family, rest, _ := strings.Cut(scenario, "/")
		if strings.HasPrefix(rest, "dead-") && rest != "dead-in-receive" { // each is a job
			return false
		}
		if slices.Contains([]string{"p2p/types", "p2p/element-types", "p2p/limits", "p2p/lengths"}, scenario) {
			return false
		}
		return slices.Contains([]string{"p2p", "probe", "requests", "collectives", "faults", "recover"}, family)
	})
}
