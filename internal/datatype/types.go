package datatype

import (
	"hash/fnv"
	"math"
	"reflect"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
)

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
			t[k] = withWhole(backend.Datatype{Kind: backend.Kind(k), Size: size, Name: backend.Kind(k).String(), ID: uint32(k)})
		}
	}
	return t
}

// withWhole returns a Datatype that has its Whole.
func withWhole(d backend.Datatype) *backend.Datatype {
	whole := d
	whole.Whole = &whole
	d.Whole = &whole
	return &d
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
		t[k] = withWhole(backend.Datatype{Kind: backend.Loc, Elem: d.Kind, Size: kernel.LocSize(d.Kind), Name: name, ID: ID(name)})
		backend.NameType(t[k].ID, name)
	}
	return t
}

// Types converts Go types to datatypes.
type Types struct {
	float16, bfloat16 reflect.Type
	locElem           func(t reflect.Type) (reflect.Type, bool)
	layouts           sync.Map // of *layout by reflect.Type
}

// New returns the Types with two types of kind uint16 that are floats, and a function that returns
// the type of the value in a pair for MinLoc and MaxLoc.
func New(float16, bfloat16 reflect.Type, locElem func(t reflect.Type) (reflect.Type, bool)) *Types {
	return &Types{float16: float16, bfloat16: bfloat16, locElem: locElem}
}

// Of returns the Datatype of a type, or an ErrType that names the part of it that cannot be sent. It
// allocates only the first time it sees a type.
func (x *Types) Of(t reflect.Type) (*backend.Datatype, error) {
	if d := x.number(t); d != nil {
		return d, nil
	}
	return x.layoutOf(t)
}

// kindOf16 distinguishes the three types of kind uint16.
func (x *Types) kindOf16(t reflect.Type) *backend.Datatype {
	switch t {
	case x.float16:
		return numberTypes[backend.Float16]
	case x.bfloat16:
		return numberTypes[backend.BFloat16]
	}
	return numberTypes[backend.Uint16]
}

// number returns the Datatype of a number type, nil for other types.
func (x *Types) number(t reflect.Type) *backend.Datatype {
	d := goKinds[t.Kind()]
	if d != nil && d.Kind == backend.Uint16 {
		d = x.kindOf16(t)
	}
	return d
}

type layout struct {
	typ *backend.Datatype
	err error
}

// layoutOf returns the Datatype of a type that is not a number.
func (x *Types) layoutOf(t reflect.Type) (*backend.Datatype, error) {
	if l, ok := x.layouts.Load(t); ok {
		l := l.(*layout)
		return l.typ, l.err
	}
	l := x.newLayout(t)
	x.layouts.Store(t, l)
	return l.typ, l.err
}

func (x *Types) newLayout(t reflect.Type) *layout {
	if t.Kind() == reflect.Struct {
		if elem, ok := x.locElem(t); ok {
			return &layout{typ: locTypes[x.number(elem).Kind]}
		}
	}
	text, bad := x.describe(t, t.String())
	switch {
	case bad != "":
		return &layout{err: backend.Faultf(backend.ErrType, "%s", bad)}
	case t.Size() == 0:
		return &layout{err: backend.Faultf(backend.ErrType, "%v has no size", t)}
	case t.Size() > math.MaxInt:
		return &layout{err: backend.Faultf(backend.ErrType, "%v is too large", t)}
	}
	d := withWhole(backend.Datatype{Kind: backend.Opaque, Size: int(t.Size()), Name: t.String(), ID: ID(text)})
	backend.NameType(d.ID, d.Name)
	return &layout{typ: d}
}

// describe returns a text that is equal for types with the same layout. If a part of the type
// cannot be sent, bad names the part and the reason. The path leads to t.
func (x *Types) describe(t reflect.Type, path string) (text, bad string) {
	if d := x.number(t); d != nil {
		return d.Name, ""
	}
	switch t.Kind() {
	case reflect.Array:
		elem, bad := x.describe(t.Elem(), path+"[0]")
		return strconv.Itoa(t.Len()) + " of " + elem, bad
	case reflect.Struct:
		text = "{"
		for i := range t.NumField() {
			f := t.Field(i)
			ft, bad := x.describe(f.Type, path+"."+f.Name)
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

// ID returns the ID of a type that is not a number. Its top bit distinguishes it from kinds.
func ID(text string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(text))
	return h.Sum32() | 1<<31
}

// numberOps and locOps contain the predefined operations by code and kind, nil where an operation
// does not apply.
var (
	numberOps = newOps(kernel.For, &numberTypes)
	locOps    = newOps(kernel.ForLoc, &locTypes)
)

type opTable [backend.OpMaxLoc + 1][backend.Loc + 1]*backend.Op // with nothing for Loc itself

func newOps(apply func(backend.OpCode, backend.Kind) kernel.Apply, types *kindTable) (t opTable) {
	for code := backend.OpSum; code <= backend.OpMaxLoc; code++ {
		for k, d := range types {
			if d == nil {
				continue
			}
			if f := apply(code, backend.Kind(k)); f != nil {
				t[code][k] = &backend.Op{Code: code, Commutative: true, Type: d, Apply: f}
			}
		}
	}
	return t
}

// Number returns the Datatype of a kind of numbers.
func Number(kind backend.Kind) *backend.Datatype { return numberTypes[kind] }

// Op returns a predefined operation on elements of a type, nil if it does not apply to them.
func Op(code backend.OpCode, elem *backend.Datatype) *backend.Op {
	switch {
	case code > backend.OpMaxLoc || elem.Kind > backend.Loc:
		return nil
	case elem.Kind == backend.Loc:
		return locOps[code][elem.Elem]
	}
	return numberOps[code][elem.Kind]
}

// OpFor returns a predefined operation for elements of a type, or ErrOp if it does not apply to them. It
// allocates for errors only.
func (x *Types) OpFor(code backend.OpCode, t reflect.Type) (*backend.Op, error) {
	if d := goKinds[t.Kind()]; d != nil && d.Kind != backend.Uint16 { // without a call, for speed
		if op := numberOps[code][d.Kind]; op != nil {
			return op, nil
		}
	}
	d, err := x.Of(t)
	if err != nil {
		return nil, err
	}
	switch op := Op(code, d); {
	case op != nil:
		return op, nil
	case code == backend.OpUser:
		return nil, backend.Faultf(backend.ErrOp, "invalid op does not apply to %v", t)
	}
	return nil, backend.Faultf(backend.ErrOp, "%v does not apply to %v", code, t)
}
