//go:build !(linux && (amd64 || arm64)) || cohort_nocuda

package cuda

import (
	"fmt"
	"runtime"
)

func bind([]string) (*library, error) {
	return nil, fmt.Errorf("this program was built without CUDA (for %s/%s, or with the build tag cohort_nocuda)", runtime.GOOS, runtime.GOARCH)
}

func withSignalsBlocked(f func()) { f() }

// call is never called, as there is no library.
func (l *library) call(function, ...uintptr) result { return errNotInitialized }
