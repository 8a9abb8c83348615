//go:build (linux || darwin) && (amd64 || arm64) && !cohort_noclp

package clp

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/ebitengine/purego"
)

// bind loads the library and finds its functions. The library stays loaded until the process ends.
func (l *Library) bind(name string) error {
	// The dynamic linker keeps the text of an error for the thread of the failed call; a second call
	// reads it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	symbols := l.symbols()
	for _, symbol := range slices.Sorted(maps.Keys(symbols)) {
		at, err := purego.Dlsym(handle, symbol)
		if err != nil {
			return fmt.Errorf("%s has no %s", name, symbol)
		}
		purego.RegisterFunc(symbols[symbol], at)
	}
	return nil
}
