package tensor

import "github.com/cohort-hpc/cohort"

// Op is a reduction of tensors, element by element.
type Op struct {
	op      cohort.Op
	average bool
}

// The predefined operations. Average is the sum divided by the number of ranks; of integers the whole
// part of it, and a sum that is too large for the type has wrapped around before. Of floats the sum may
// overflow to infinity, where the average would not have: halves are safe from that, whose sums are
// made as float32.
//
// To the ranks Average is a sum: if some take Average and others Sum, those whose tensors are longer than
// a piece get [cohort.ErrMismatch], and those of one piece what they asked for.
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
