package backend

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
}
