package cohort

import (
	"hash/fnv"
	"math"
	"reflect"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Real is the set of ordered numbers: integers and floats, including named types. [Float16] and
// [BFloat16] are among them.
type Real interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}

// Number is the set of all integers, floats and complex numbers, including named types.
type Number interface {
	Real | ~complex64 | ~complex128
}

// Reducible is the constraint of reductions. They accept every [Number] with the predefined
// operations that apply to it, [Loc] with MinLoc and MaxLoc, bool with the logical operations, and
// any element type with an operation that [NewOp] made for it. Go's constraints cannot express
// this, so the call checks it: [ErrOp] for an operation that does not apply to the type, [ErrType]
// for a type that holds pointers.
type Reducible interface{ any }

// Loc is a value with its index, for the operations [MinLoc] and [MaxLoc].
type Loc[T Real] struct {
	Val T
	Idx int64
}

// locElem lets layoutOf recognise a Loc.
func (Loc[T]) locElem() reflect.Type { return reflect.TypeFor[T]() }

// Float16 holds the bits of an IEEE 754 half-precision number. Reductions compute in float32 and
// round to nearest, ties to even.
type Float16 uint16

// ToFloat16 returns the Float16 nearest to x, ties to even.
func ToFloat16(x float32) Float16 { return Float16(kernel.F16FromF32(x)) }

// Float32 returns the exact value of h.
func (h Float16) Float32() float32 { return kernel.F16ToF32(uint16(h)) }

// String returns h in decimal.
func (h Float16) String() string {
	return strconv.FormatFloat(float64(h.Float32()), 'g', 5, 32)
}

// BFloat16 holds the bits of a bfloat16 number, the upper half of a float32. Reductions compute in
// float32 and round to nearest, ties to even.
type BFloat16 uint16

// ToBFloat16 returns the BFloat16 nearest to x, ties to even.
func ToBFloat16(x float32) BFloat16 { return BFloat16(kernel.BF16FromF32(x)) }

// Float32 returns the exact value of b.
func (b BFloat16) Float32() float32 { return kernel.BF16ToF32(uint16(b)) }

// String returns b in decimal.
func (b BFloat16) String() string {
	return strconv.FormatFloat(float64(b.Float32()), 'g', 4, 32)
}

// numberTypes contains the Datatype of every number by backend.Kind, goKinds by reflect.Kind. Other
// kinds are nil.
var (
	numberTypes = newNumberTypes()
	goKinds     = newGoKinds()
	locTypes    = newLocTypes() // of Loc[T], by the kind of T
)

type kindTable [backend.Loc]*backend.Datatype

func newNumberTypes() (t kindTable) {
	for k, size := range [...]int{
		backend.Bool: 1,
		backend.Int8: 1, backend.Int16: 2, backend.Int32: 4, backend.Int64: 8,
		backend.Uint8: 1, backend.Uint16: 2, backend.Uint32: 4, backend.Uint64: 8,
		backend.Float16: 2, backend.BFloat16: 2, backend.Float32: 4, backend.Float64: 8,
		backend.Complex64: 8, backend.Complex128: 16,
	} {
		if size > 0 {
			t[k] = &backend.Datatype{Kind: backend.Kind(k), Size: size, Name: backend.Kind(k).String(), ID: uint32(k)}
		}
	}
	return t
}

func newGoKinds() (t [reflect.UnsafePointer + 1]*backend.Datatype) {
	for gk, k := range map[reflect.Kind]backend.Kind{
		reflect.Bool: backend.Bool,
		reflect.Int8: backend.Int8, reflect.Int16: backend.Int16, reflect.Int32: backend.Int32, reflect.Int64: backend.Int64,
		reflect.Uint8: backend.Uint8, reflect.Uint16: backend.Uint16, reflect.Uint32: backend.Uint32, reflect.Uint64: backend.Uint64,
		reflect.Float32: backend.Float32, reflect.Float64: backend.Float64,
		reflect.Complex64: backend.Complex64, reflect.Complex128: backend.Complex128,
	} {
		t[gk] = numberTypes[k]
	}
	word, uword := backend.Int64, backend.Uint64
	if strconv.IntSize == 32 {
		word, uword = backend.Int32, backend.Uint32
	}
	t[reflect.Int], t[reflect.Uint], t[reflect.Uintptr] = numberTypes[word], numberTypes[uword], numberTypes[uword]
	return t
}

func newLocTypes() (t kindTable) {
	for k, d := range numberTypes {
		if d == nil || kernel.LocSize(d.Kind) == 0 {
			continue
		}
		name := "loc of " + d.Name
		t[k] = &backend.Datatype{Kind: backend.Loc, Elem: d.Kind, Size: kernel.LocSize(d.Kind), Name: name, ID: layoutID(name)}
		backend.NameType(t[k].ID, name)
	}
	return t
}

var (
	float16Type  = reflect.TypeFor[Float16]()
	bfloat16Type = reflect.TypeFor[BFloat16]()
)

// typeFor returns the Datatype of T, or an ErrType that names the part of T that cannot be sent. It
// allocates only the first time it sees a T.
func typeFor[T any]() (*backend.Datatype, error) {
	t := reflect.TypeFor[T]()
	if d := goKinds[t.Kind()]; d != nil {
		if d.Kind == backend.Uint16 {
			d = kindOf16(t)
		}
		return d, nil
	}
	return layoutOf(t)
}

// kindOf16 distinguishes the three types of kind uint16.
func kindOf16(t reflect.Type) *backend.Datatype {
	switch t {
	case float16Type:
		return numberTypes[backend.Float16]
	case bfloat16Type:
		return numberTypes[backend.BFloat16]
	}
	return numberTypes[backend.Uint16]
}

// numberType returns the Datatype of a number type, nil for other types.
func numberType(t reflect.Type) *backend.Datatype {
	d := goKinds[t.Kind()]
	if d != nil && d.Kind == backend.Uint16 {
		d = kindOf16(t)
	}
	return d
}

// layouts caches the results of layoutOf by reflect.Type.
var layouts sync.Map // of *layout

type layout struct {
	typ *backend.Datatype
	err error
}

// layoutOf returns the Datatype of a type that is not a number.
func layoutOf(t reflect.Type) (*backend.Datatype, error) {
	if l, ok := layouts.Load(t); ok {
		l := l.(*layout)
		return l.typ, l.err
	}
	l := newLayout(t)
	layouts.Store(t, l)
	return l.typ, l.err
}

func newLayout(t reflect.Type) *layout {
	if t.Kind() == reflect.Struct {
		if loc, ok := reflect.Zero(t).Interface().(interface{ locElem() reflect.Type }); ok {
			return &layout{typ: locTypes[numberType(loc.locElem()).Kind]}
		}
	}
	text, bad := describe(t, t.String())
	switch {
	case bad != "":
		return &layout{err: fault(ErrType, bad)}
	case t.Size() == 0:
		return &layout{err: fault(ErrType, t.String()+" has no size")}
	case t.Size() > math.MaxInt:
		return &layout{err: fault(ErrType, t.String()+" is too large")}
	}
	d := &backend.Datatype{Kind: backend.Opaque, Size: int(t.Size()), Name: t.String(), ID: layoutID(text)}
	backend.NameType(d.ID, d.Name)
	return &layout{typ: d}
}

// describe returns a text that is equal for types with the same layout. If a part of the type
// cannot be sent, bad names the part and the reason. The path leads to t.
func describe(t reflect.Type, path string) (text, bad string) {
	if d := numberType(t); d != nil {
		return d.Name, ""
	}
	switch t.Kind() {
	case reflect.Array:
		elem, bad := describe(t.Elem(), path+"[0]")
		return strconv.Itoa(t.Len()) + " of " + elem, bad
	case reflect.Struct:
		text = "{"
		for i := range t.NumField() {
			f := t.Field(i)
			ft, bad := describe(f.Type, path+"."+f.Name)
			if bad != "" {
				return "", bad
			}
			text += strconv.Itoa(int(f.Offset)) + ":" + ft + " "
		}
		return text + strconv.Itoa(int(t.Size())) + "}", ""
	case reflect.Pointer, reflect.UnsafePointer:
		return "", path + " is a pointer, which is not valid on another rank"
	}
	return "", path + " is a " + t.Kind().String() + ", which holds pointers"
}

// layoutID returns the ID of a type that is not a number. Its top bit distinguishes it from kinds.
func layoutID(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return h.Sum32() | 1<<31
}

// Status describes a received message: its source, its tag and its length.
type Status struct {
	Source int // a rank, or ProcNull
	Tag    int
	bytes  int
}

// NewStatus returns a Status for a message that did not arrive through a receive of this package.
// It serves libraries that are built on cohort and receive messages for their users. If the length
// is not known, bytes is [Undefined] (MPI_Status_set_elements, MPI-4.1 section 13.3).
func NewStatus(source, tag, bytes int) Status { return Status{Source: source, Tag: tag, bytes: bytes} }

// Bytes returns the length of the message in bytes. It is [Undefined] if the message was too long
// for the buffer ([ErrTruncate]) and the MPI library does not report its length.
func (s Status) Bytes() int {
	if s.bytes < 0 {
		return Undefined
	}
	return s.bytes
}

// Count returns the number of elements of T in the message. It is [Undefined] if the message is not
// a whole number of them or its length is not known (see [Status.Bytes]).
func Count[T any](st Status) int {
	size := view.Size[T]()
	if size == 0 || st.bytes < 0 || st.bytes%size != 0 {
		return Undefined
	}
	return st.bytes / size
}
