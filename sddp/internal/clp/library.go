package clp

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// ErrUnavailable is wrapped by the error of Open.
var ErrUnavailable = errors.New("clp: the library is not available")

// errLeftOut reports that Open did not search for a library.
var errLeftOut = errors.New("this program was built without it")

// Library is the loaded library. It is safe for concurrent use.
type Library struct {
	// Name is the file name of the library.
	Name string
	// Version is the version that the library reports, such as 1.17.6.
	Version string

	functions
}

// functions holds the functions of Clp_C_Interface.h in use. A model is a pointer to memory of the library.
// The library copies arrays or reads them only during the call.
type functions struct {
	version   func() string
	newModel  func() uintptr
	delete    func(model uintptr)
	logLevel  func(model uintptr, level int32)
	scaling   func(model uintptr, mode int32)
	primalTol func(model uintptr, tolerance float64)
	dualTol   func(model uintptr, tolerance float64)
	maximum   func(model uintptr, iterations int32)
	load      func(model uintptr, cols, rows int32, start, row []int32, value, lo, hi, cost, rowLo, rowHi []float64)
	elements  func(model uintptr) int32
	setPlaces func(model uintptr, places []Place)
	dual      func(model uintptr, valuesPass int32) int32
	primal    func(model uintptr, valuesPass int32) int32
	status    func(model uintptr) int32
	count     func(model uintptr) int32
	places    func(model uintptr) *Place
	values    func(model uintptr) *float64
	duals     func(model uintptr) *float64
	reduced   func(model uintptr) *float64
}

// symbols returns the functions by their names in the library.
func (f *functions) symbols() map[string]any {
	return map[string]any{
		"Clp_Version":              &f.version,
		"Clp_newModel":             &f.newModel,
		"Clp_deleteModel":          &f.delete,
		"Clp_setLogLevel":          &f.logLevel,
		"Clp_scaling":              &f.scaling,
		"Clp_setPrimalTolerance":   &f.primalTol,
		"Clp_setDualTolerance":     &f.dualTol,
		"Clp_setMaximumIterations": &f.maximum,
		"Clp_loadProblem":          &f.load,
		"Clp_getNumElements":       &f.elements,
		"Clp_copyinStatus":         &f.setPlaces,
		"Clp_dual":                 &f.dual,
		"Clp_primal":               &f.primal,
		"Clp_status":               &f.status,
		"Clp_numberIterations":     &f.count,
		"Clp_statusArray":          &f.places,
		"Clp_getColSolution":       &f.values,
		"Clp_getRowPrice":          &f.duals,
		"Clp_getReducedCost":       &f.reduced,
	}
}

// names returns the names that the library may have, the usual one first.
func names() []string {
	if runtime.GOOS == "darwin" {
		return []string{"libClp.1.dylib", "libClp.dylib", "/opt/homebrew/opt/clp/lib/libClp.1.dylib"}
	}
	return []string{"libClp.so.1", "libClp.so"}
}

var library = sync.OnceValues(func() (*Library, error) { return open(names()) })

// Open loads the library, once for the process.
//
// Errors: ErrUnavailable, with the names that were tried and the package to install.
func Open() (*Library, error) { return library() }

// open loads the first of the named libraries that exists.
func open(names []string) (*Library, error) {
	var failures []string
	for _, name := range names {
		l := &Library{Name: name}
		err := l.bind(name)
		if err == nil {
			err = l.probe()
		}
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errLeftOut):
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		failures = append(failures, err.Error())
	}
	return nil, fmt.Errorf("%w: %s: install it (Debian: apt-get install coinor-libclp1) "+
		"or add its folder to LD_LIBRARY_PATH", ErrUnavailable, strings.Join(failures, "; "))
}

// probe checks that the library was built with the CoinBigIndex that this package assumes, 32 bits wide.
// No function reports its width, but a 64-bit library reads the starts below as {0, 1}, not {0, 0}.
func (l *Library) probe() error {
	m := l.newModel()
	defer l.delete(m)
	l.logLevel(m, 0)
	one := []float64{1}
	l.load(m, 1, 1, []int32{0, 0, 1, 0}, []int32{0}, one, one, one, one, one, one)
	if n := l.elements(m); n != 0 {
		return fmt.Errorf("%s has matrix indices of 64 bits (COIN_BIG_INDEX), want 32: install a build without that option", l.Name)
	}
	l.Version = l.version()
	return nil
}
