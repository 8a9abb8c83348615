package values

import (
	"encoding"
	"encoding/gob"
	"reflect"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// traits are the properties of a type that decide how its values are encoded.
type traits struct {
	err    error // why they cannot be
	binary bool  // by MarshalBinary
	empty  bool  // they have no content
	maps   bool  // they may contain maps
	faces  bool  // they may contain interfaces
	loops  bool  // they may contain themselves
}

var known sync.Map // of *traits by reflect.Type

func traitsOf(t reflect.Type) *traits {
	if x, ok := known.Load(t); ok {
		return x.(*traits)
	}
	x := new(traits)
	x.binary = binary(t)
	x.empty = !x.binary && t.Kind() == reflect.Struct && t.NumField() == 0
	if !x.binary && !x.empty {
		x.err = x.check(t, t.String(), make(map[reflect.Type]bool))
	}
	known.Store(t, x)
	return x
}

// binary reports whether a type encodes its values itself.
func binary(t reflect.Type) bool {
	return has[encoding.BinaryMarshaler](t) && has[encoding.BinaryUnmarshaler](t)
}

// opaque reports whether gob leaves the values of a type to the type's methods.
func opaque(t reflect.Type) bool {
	return has[gob.GobEncoder](t) && has[gob.GobDecoder](t) || binary(t)
}

// has reports whether values of a type have the methods of M.
func has[M any](t reflect.Type) bool {
	m := reflect.TypeFor[M]()
	return t.Kind() != reflect.Interface && (t.Implements(m) || reflect.PointerTo(t).Implements(m))
}

// check returns an ErrType that names the first part of a type that gob cannot send. The path leads to t;
// open says of the types seen whether their check is under way.
func (x *traits) check(t reflect.Type, path string, open map[reflect.Type]bool) error {
	if under, seen := open[t]; seen {
		x.loops = x.loops || under
		return nil
	}
	open[t] = true
	defer func() { open[t] = false }()
	if opaque(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return backend.Faultf(cohort.ErrType, "%s is a %v, which means nothing on another rank; leave it out", path, t.Kind())
	case reflect.Interface:
		x.loops, x.faces = true, true
	case reflect.Pointer:
		return x.check(t.Elem(), path, open)
	case reflect.Slice, reflect.Array:
		return x.check(t.Elem(), path+"[]", open)
	case reflect.Map:
		x.maps = true
		if err := x.check(t.Key(), path+"[key]", open); err != nil {
			return err
		}
		return x.check(t.Elem(), path+"[]", open)
	case reflect.Struct:
		return x.checkFields(t, path, open)
	}
	return nil
}

func (x *traits) checkFields(t reflect.Type, path string, open map[reflect.Type]bool) error {
	sent := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		at := path + "." + f.Name
		if !f.IsExported() {
			return backend.Faultf(cohort.ErrType, "%s is not exported, and gob leaves it out; export it, or give %v MarshalBinary and UnmarshalBinary", at, t)
		}
		if err := x.check(f.Type, at, open); err != nil {
			return err
		}
		sent++
	}
	if sent == 0 {
		return backend.Faultf(cohort.ErrType, "%s is a struct without fields, which gob cannot send; use a bool or a number", path)
	}
	return nil
}
