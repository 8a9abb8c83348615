package tensor

import (
	"reflect"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Op is a reduction of tensors, element by element.
type Op struct {
	op      cohort.Op
	average bool
}

// The predefined operations. Average is the sum divided by the number of ranks. For integers the
// result is truncated, and a sum too large for the type wraps around before the division. For
// floats the sum may overflow to infinity where the average would not; Float16 and BFloat16 are
// safe from that, because their sums are computed as float32.
var (
	Sum     = Op{op: cohort.Sum}
	Prod    = Op{op: cohort.Prod}
	Min     = Op{op: cohort.Min}
	Max     = Op{op: cohort.Max}
	Average = Op{op: cohort.Sum, average: true}
)

// OpOf returns an operation on tensors for one of cohort's operations, predefined or user-defined.
func OpOf(op cohort.Op) Op { return Op{op: op} }

// String returns the operation's name.
func (o Op) String() string {
	if o.average {
		return "average"
	}
	return o.op.String()
}

var types = datatype.New(reflect.TypeFor[cohort.Float16](), reflect.TypeFor[cohort.BFloat16](), nil)

// kindOf returns the kind of T's numbers; for a named type, the kind of its underlying type.
func kindOf[T cohort.Number]() backend.Kind {
	d, _ := types.Of(reflect.TypeFor[T]()) // every number has one
	return d.Kind
}

// typeName returns the name of T's numbers in errors and messages, such as float32.
func typeName[T cohort.Number]() string { return kindOf[T]().String() }

// variant says how an operation on numbers of a kind differs from the calls of the root package that it makes.
type variant struct {
	kind           backend.Kind
	widen, average bool
}

// variants contains the types under which ranks compare these calls.
var variants = func() map[variant]*backend.Datatype {
	all := make(map[variant]*backend.Datatype)
	add := func(v variant, travels backend.Kind, what string) {
		d := *datatype.Number(travels)
		d.Name = d.Name + " (" + what + ")"
		d.ID = datatype.ID("tensor " + d.Name)
		backend.NameType(d.ID, d.Name)
		all[v] = &d
	}
	for kind := backend.Int8; kind < backend.Loc; kind++ {
		add(variant{kind, false, true}, kind, "average")
	}
	for _, half := range []backend.Kind{backend.Float16, backend.BFloat16} {
		add(variant{half, true, false}, backend.Float32, "of "+half.String())
		add(variant{half, true, true}, backend.Float32, "average of "+half.String())
	}
	return all
}()

// divide divides numbers of a kind by n, the number of ranks. Integers are truncated. Float16 and
// BFloat16 do not occur here: their averages are computed as float32.
func divide(kind backend.Kind, b []byte, n int) {
	if n == 1 {
		return
	}
	switch kind {
	case backend.Int8:
		divideInts[int8, int32](b, n)
	case backend.Int16:
		divideInts[int16, int32](b, n)
	case backend.Int32:
		divideInts[int32, int32](b, n)
	case backend.Int64:
		divideInts[int64, int64](b, n)
	case backend.Uint8:
		divideInts[uint8, uint32](b, n)
	case backend.Uint16:
		divideInts[uint16, uint32](b, n)
	case backend.Uint32:
		divideInts[uint32, uint32](b, n)
	case backend.Uint64:
		divideInts[uint64, uint64](b, n)
	case backend.Float32, backend.Complex64: // each part of a complex number
		divideFloats[float32](b, n)
	case backend.Float64, backend.Complex128:
		divideFloats[float64](b, n)
	}
}

// divideInts divides as W, because n may not fit in T.
func divideInts[T, W int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](b []byte, n int) {
	x, d := view.Of[T](b), W(n)
	for i := range x {
		x[i] = T(W(x[i]) / d)
	}
}

func divideFloats[T float32 | float64](b []byte, n int) {
	x, d := view.Of[T](b), T(n)
	for i := range x {
		x[i] /= d
	}
}
