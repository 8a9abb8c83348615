package lp

// Simplex is the embedded solver: a bounded-variable dual simplex method that keeps an explicit
// inverse of the kernel of the basis, which is its basic columns crossed with its tight rows. The
// cost of an iteration therefore follows the number of tight rows, not that of all rows.
//
// Results cover the columns and rows there were at the last Solve; asking for others panics.
//
// It is not safe for concurrent use. It allocates only while it grows.
type Simplex struct {
	program
	impatient bool // tests: measures against cycling from the first step

	kernel
	state
}

var _ Solver = (*Simplex)(nil)

// New returns an embedded solver without columns and rows.
func New() *Simplex { return &Simplex{program: newProgram()} }
