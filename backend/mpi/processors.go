//go:build cgo && linux

package mpi

import (
	"os"
	"runtime"
)

// addProcessor raises GOMAXPROCS from 1 to 2. With one, as on a rank that is bound to a core, Go's
// scheduler takes the processor from a call into the library that lasts 20 µs, and gives it to a
// thread that looks for other work. That thread runs on the core of the call, and delays it. While
// there is an idle processor, the scheduler leaves calls alone for 10 ms. A program that is started
// with the variable GOMAXPROCS keeps its value.
func (p *process) addProcessor() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2)
		p.added = true
	}
}

// removeProcessor undoes addProcessor, unless the program has changed GOMAXPROCS since.
func (p *process) removeProcessor() {
	if p.added && runtime.GOMAXPROCS(0) == 2 {
		runtime.SetDefaultGOMAXPROCS()
	}
}
