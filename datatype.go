package cohort

import (
	"reflect"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
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

// locElem distinguishes a Loc from other structs.
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

var types = datatype.New(reflect.TypeFor[Float16](), reflect.TypeFor[BFloat16](), func(t reflect.Type) (reflect.Type, bool) {
	loc, ok := reflect.Zero(t).Interface().(interface{ locElem() reflect.Type })
	if !ok {
		return nil, false
	}
	return loc.locElem(), true
})

// typeFor returns the Datatype of T, or an ErrType that names the part of T that cannot be sent.
func typeFor[T any]() (*backend.Datatype, error) { return types.Of(reflect.TypeFor[T]()) }

// SizeOf returns the size of an element of T in bytes, for packages that store elements or send them otherwise.
//
// Not collective; errors: [ErrType] if T holds pointers or has no size.
func SizeOf[T any]() (int, error) {
	typ, err := typeFor[T]()
	if err != nil {
		return 0, err
	}
	return typ.Size, nil
}

// Status describes a received message: its source, its tag and its length.
type Status struct {
	Source int // a rank, or ProcNull
	Tag    int
	bytes  int
}

func fromBackend(st backend.Status) Status {
	return Status{Source: st.Source, Tag: st.Tag, bytes: st.Bytes}
}

func status(st backend.Status, err error) (Status, error) { return fromBackend(st), err }

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
