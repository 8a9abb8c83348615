package lp

import (
	"fmt"

	"github.com/cohort-hpc/cohort/internal/clp"
)

// The kinds of solver that Open knows.
const (
	Auto     = "auto"     // embedded, and clp for programs that are too large for it where clp is there
	Embedded = "embedded" // Simplex
	CLP      = "clp"      // Clp
)

// Info says which solver Open chose.
type Info struct {
	Kind    string // Embedded or CLP
	Library string // what was loaded for it, such as libClp.so.1, "" if nothing was
	Version string // the library's, such as 1.17.6
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

// Open returns a function that makes solvers of a kind, without columns and rows. Auto is the kind
// that is faster for programs of about so many rows: it takes Clp for large ones if the library is
// there, and the embedded solver otherwise. The error says what to install if Clp is asked for and
// its library is not there; it is ErrMisuse for a kind that does not exist.
//
// Two solvers that find the same optimum need not find the same duals, nor the same bits. Who wants
// the same results everywhere has to see to it that every process opened the same kind and version,
// by Info.
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
