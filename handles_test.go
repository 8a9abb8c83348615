package cohort

import (
	"reflect"
	"testing"
)

// No method of a nil handle panics. The methods that Cart and Graph have from their Comm are called on that.
func TestMethodsOfNilHandlesDoNotPanic(t *testing.T) {
	ofComm := reflect.TypeFor[*Comm]()
	for _, h := range []any{(*Comm)(nil), new(Comm), (*Cart)(nil), (*Graph)(nil), (*Group)(nil), (*Message)(nil), (*Request)(nil),
		(*Persistent)(nil), (*Window[int])(nil), (*SharedRegion[int])(nil),
		(*LockGuard)(nil), (*LockAllGuard)(nil)} {
		v := reflect.ValueOf(h)
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			if _, promoted := ofComm.MethodByName(m.Name); promoted && v.Type() != ofComm {
				if f, has := v.Type().Elem().FieldByName("Comm"); has && f.Anonymous {
					continue
				}
			}
			var args []reflect.Value
			for j := 1; j < m.Type.NumIn() && !(m.Type.IsVariadic() && j == m.Type.NumIn()-1); j++ {
				args = append(args, reflect.Zero(m.Type.In(j)))
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%v.%s: %v", v.Type(), m.Name, p)
					}
				}()
				v.Method(i).Call(args)
			}()
		}
	}
}
