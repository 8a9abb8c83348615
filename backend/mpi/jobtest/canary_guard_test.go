//go:build cgo && linux

package jobtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

var (
	canaries   = flag.Int("canaries", 0, "random collectives of TestMismatchedCollectivesStayInBuffers; 0: as many as take some seconds")
	canarySeed = flag.Uint64("canaryseed", 0, "the `seed` of TestMismatchedCollectivesStayInBuffers; 0: random")
)

// canaryVariable holds the number of cases and the seed of a canary test.
const canaryVariable = "MPITEST_CANARIES"

// canaryCases returns the variable that starts a program of the canary tests.
func canaryCases(t *testing.T, usual int) string {
	t.Helper()
	n, seed := *canaries, *canarySeed
	if n == 0 {
		n = usual
		if testing.Short() {
			n /= 20
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d cases: -canaries=%d -canaryseed=%d", n, n, seed)
	return fmt.Sprintf("%s=%d %d", canaryVariable, n, seed)
}

// readCases returns the number of cases and the generator, the same on all ranks.
func readCases() (int, *rand.Rand, error) {
	var n int
	var seed uint64
	_, err := fmt.Sscan(os.Getenv(canaryVariable), &n, &seed)
	return n, rand.New(rand.NewPCG(seed, 0)), err
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
