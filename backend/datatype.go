package backend

import "fmt"

// Kind says which arithmetic a Datatype's elements allow.
type Kind uint8

// The kinds. Opaque elements can be moved but not reduced; Loc elements are
// pairs of a value and an index, for MinLoc and MaxLoc only.
const (
	Opaque Kind = iota
	Bool
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
	Loc
	numKinds
)

var kindNames = [numKinds]string{
	"opaque", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
	"float16", "bfloat16", "float32", "float64", "complex64", "complex128", "loc",
}

// String returns the kind's name.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return "invalid kind"
}

// Datatype describes the elements of a buffer. There is one for each Go type, and
// it never changes. Ranks compare datatypes by ID.
type Datatype struct {
	Kind Kind
	Elem Kind   // for Loc: the kind of its value
	Size int    // bytes of one element, at least 1
	Name string // the Go type's name, for messages
	ID   uint32 // equal on all ranks for the same layout: the kind for numbers, a hash of the layout otherwise
	Call bool   // no element type: it names a collective call that cohort makes itself

	Whole *Datatype // the same for a receive that takes only whole elements, whose own Whole it is; nil: there is none
}

// Elems is what a message says about its elements: their kind, and for opaque ones their size. 0: nothing.
type Elems uint16

const (
	opaqueElems Elems = 1 << 15 // the size follows, or the largest one for longer elements
	locElems    Elems = 1 << 5  // times the kind of a Loc's value
)

// Elems returns what a message with elements of the type says.
func (d *Datatype) Elems() Elems {
	if d.Kind == Opaque {
		return opaqueElems | Elems(min(d.Size, int(opaqueElems-1)))
	}
	return Elems(d.Kind) + Elems(d.Elem)*locElems
}

// Matches reports whether a message with elements e can be received as the elements want. Bytes match everything.
func (e Elems) Matches(want Elems) bool {
	return e == want || e == 0 || want == 0 || e == Elems(Uint8) || want == Elems(Uint8)
}

// String names the elements.
func (e Elems) String() string {
	switch k := Kind(e % locElems); {
	case e&opaqueElems != 0:
		return fmt.Sprintf("%d-byte arrays or structs", e&^opaqueElems)
	case k == Loc:
		return fmt.Sprintf("Loc[%v]", Kind(e/locElems))
	default:
		return k.String()
	}
}
