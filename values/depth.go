package values

import "reflect"

// maxDepth is how many pointers, slices and maps may lie within each other in a value. gob's functions call
// themselves for each, and a program that exhausts its stack ends.
const maxDepth = 100000

// tooDeep reports whether a value contains itself or is nested deeper than maxDepth.
func tooDeep(v reflect.Value) bool {
	w := walk{on: make(map[place]bool), leaf: make(map[reflect.Type]bool)}
	return w.deep(v)
}

// walk is a walk through all parts of a value.
type walk struct {
	on   map[place]bool        // the pointers, slices and maps that lead to the present part
	leaf map[reflect.Type]bool // whether values of a type have no parts, or gob does not look at them
}

// place is where a pointer, slice or map leads.
type place struct {
	t    reflect.Type
	addr uintptr
	n    int
}

// deep reports whether a part is nested too deep.
func (w *walk) deep(v reflect.Value) bool {
	t := v.Type()
	leaf, seen := w.leaf[t]
	if !seen {
		leaf = flat(t) || opaque(t) || (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && flat(t.Elem())
		w.leaf[t] = leaf
	}
	if leaf {
		return false
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		at := place{t: t, addr: v.Pointer()}
		if t.Kind() == reflect.Slice {
			at.n = v.Len()
		}
		switch {
		case v.IsNil():
			return false
		case w.on[at] || len(w.on) == maxDepth:
			return true
		}
		w.on[at] = true
		defer delete(w.on, at)
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && w.deep(v.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).IsExported() && w.deep(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if w.deep(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for key, elem := range v.Seq2() {
			if w.deep(key) || w.deep(elem) {
				return true
			}
		}
	}
	return false
}

// flat reports whether values of a type have no parts.
func flat(t reflect.Type) bool { return t.Kind() <= reflect.Complex128 || t.Kind() == reflect.String }
