//go:build !((linux || darwin) && (amd64 || arm64)) || cohort_noclp

package clp

import (
	"fmt"
	"runtime"
)

func (l *Library) bind(string) error {
	return fmt.Errorf("%w: for %s/%s or with the build tag cohort_noclp", errLeftOut, runtime.GOOS, runtime.GOARCH)
}
