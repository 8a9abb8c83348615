package lp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/sddp/internal/clp"
)

// The kinds of solver.
const (
	Auto     = "auto"     // CLP for large programs if it is installed, otherwise Embedded
	Embedded = "embedded" // Simplex
	CLP      = "clp"      // Clp
)

// Info describes the solver that Open chose.
type Info struct {
	Kind    string // Embedded or CLP
	Library string // the loaded library, such as libClp.so.1; "" for Embedded
	Version string // of the library, such as 1.17.6
}

// String returns the solver and its version.
func (i Info) String() string {
	if i.Library == "" {
		return i.Kind
	}
	return fmt.Sprintf("%s %s (%s)", i.Kind, i.Version, i.Library)
}

// autoRows is the number of rows from which Auto prefers Clp: see docs/adr/0013-clp.md.
const autoRows = 100

// Open returns a function that creates empty solvers of a kind. Auto chooses the kind that is faster for
// programs of about the given number of rows: Clp for large ones if its library is installed, otherwise
// the embedded solver.
//
// Two solvers that find the same optimum may find different duals and different bits. To get the same
// results everywhere, compare the Info of all processes.
//
// Errors: [ErrMisuse] for an unknown kind; for CLP without its library, one that names the package to
// install.
func Open(kind string, rows int) (func() Solver, Info, error) {
	embedded := func() Solver { return New() }
	switch kind {
	case Embedded:
		return embedded, Info{Kind: Embedded}, nil
	case Auto:
		if rows < autoRows {
			return embedded, Info{Kind: Embedded}, nil
		}
	case CLP:
	default:
		return nil, Info{}, fmt.Errorf("%w: open: got solver %q, want %s, %s or %s", ErrMisuse, kind, Auto, Embedded, CLP)
	}
	library, err := clp.Open()
	switch {
	case err == nil:
		make := func() Solver { return &Clp{program: newProgram(), library: library} }
		return make, Info{Kind: CLP, Library: library.Name, Version: library.Version}, nil
	case kind == Auto:
		return embedded, Info{Kind: Embedded}, nil
	}
	return nil, Info{}, fmt.Errorf("solver %s: %w; solver %s needs no library", CLP, err, Embedded)
}
