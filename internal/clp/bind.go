//go:build (linux || darwin) && (amd64 || arm64) && !cohort_noclp

package clp

import (
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/ebitengine/purego"
)

// bind loads the library and finds its functions. It stays loaded: its memory and what the dynamic
// linker keeps of it are the process's from here on.
func (l *Library) bind(name string) error {
	// What the dynamic linker says of a failure is kept for the thread that it happened on, and asked
	// for by a second call.
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
