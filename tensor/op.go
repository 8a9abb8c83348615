package tensor

import "github.com/cohort-hpc/cohort"

// Op is a reduction of tensors, element by element.
type Op struct {
	op      cohort.Op
	average bool
}

// The predefined operations. Average is the sum divided by the number of ranks; of integers the whole
// part of it.
var (
	Sum     = Op{op: cohort.Sum}
	Prod    = Op{op: cohort.Prod}
	Min     = Op{op: cohort.Min}
	Max     = Op{op: cohort.Max}
	Average = Op{op: cohort.Sum, average: true}
)

// OpOf returns one of cohort's operations, predefined or the user's, as one of tensors.
func OpOf(op cohort.Op) Op { return Op{op: op} }

// String returns the operation's name.
func (o Op) String() string {
	if o.average {
		return "average"
	}
	return o.op.String()
}
