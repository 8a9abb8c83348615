package tensor

import (
	"reflect"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

var (
	float16Type  = reflect.TypeFor[cohort.Float16]()
	bfloat16Type = reflect.TypeFor[cohort.BFloat16]()
)

// kinds has the numbers' kinds by those of Go.
var kinds = func() (k [reflect.UnsafePointer + 1]backend.Kind) {
	for of, kind := range map[reflect.Kind]backend.Kind{
		reflect.Int8: backend.Int8, reflect.Int16: backend.Int16, reflect.Int32: backend.Int32, reflect.Int64: backend.Int64,
		reflect.Uint8: backend.Uint8, reflect.Uint16: backend.Uint16, reflect.Uint32: backend.Uint32, reflect.Uint64: backend.Uint64,
		reflect.Float32: backend.Float32, reflect.Float64: backend.Float64,
		reflect.Complex64: backend.Complex64, reflect.Complex128: backend.Complex128,
	} {
		k[of] = kind
	}
	k[reflect.Int], k[reflect.Uint], k[reflect.Uintptr] = backend.Int64, backend.Uint64, backend.Uint64
	if reflect.TypeFor[int]().Size() == 4 {
		k[reflect.Int], k[reflect.Uint], k[reflect.Uintptr] = backend.Int32, backend.Uint32, backend.Uint32
	}
	return k
}()

// kindOf returns the kind of T's numbers: of named types that of what they are.
func kindOf[T cohort.Number]() backend.Kind {
	switch t := reflect.TypeFor[T](); t {
	case float16Type:
		return backend.Float16
	case bfloat16Type:
		return backend.BFloat16
	default:
		return kinds[t.Kind()]
	}
}

// typeName returns what errors and messages call T's numbers, such as float32.
func typeName[T cohort.Number]() string { return kindOf[T]().String() }
