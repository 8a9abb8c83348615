package lp

// Simplex is the embedded solver: a bounded-variable dual simplex method that keeps an explicit
// inverse of the kernel of the basis, which is its basic columns crossed with its tight rows. The
// cost of an iteration therefore depends on the number of tight rows, not on that of all rows.
//
// Results cover the columns and rows of the last Solve; an index beyond them panics.
//
// A Simplex is not safe for concurrent use. It allocates memory only while it grows.
type Simplex struct {
	program
	impatient bool // for tests: measures against cycling start at the first step

	kernel
	state
}

var _ Solver = (*Simplex)(nil)

// New returns an embedded solver without columns and rows.
func New() *Simplex { return &Simplex{program: newProgram()} }
