//go:build !unix

package remote

import (
	"os"

	"github.com/cohort-hpc/cohort/internal/spawn"
)

// Run returns the error of [spawn.Supported].
func Run(Config) (int, error) { return 2, spawn.Supported() }

// Agent reports the error of [spawn.Supported]: no ranks can be started here.
func Agent(_, _ *os.File, _, _ string) int {
	os.Stderr.WriteString("cohort: " + spawn.Supported().Error() + "\n")
	return 2
}
