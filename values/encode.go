package values

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// An encoded value begins with a byte that says what follows.
const (
	gobValue    = 'g' // gob's encoding
	binaryValue = 'b' // what MarshalBinary returned
	nilValue    = 'n' // nothing: a nil pointer, interface, map or slice, or a struct without fields
	noValue     = 'x' // the text of the error for which there is no value
)

// operand returns what the methods of T and gob work on: a pointer to the value, or the pointer that it
// is.
func operand[T any](x *T) any {
	if reflect.TypeFor[T]().Kind() == reflect.Pointer {
		return *x
	}
	return x
}

// nilable reports whether a value may be nil. gob cannot encode a nil pointer or interface, and does not tell a nil map
// or slice from an empty one.
func nilable(v reflect.Value) bool {
	k := v.Kind()
	return k == reflect.Pointer || k == reflect.Interface || k == reflect.Map || k == reflect.Slice
}

// Encode returns x as the functions of this package send it, for packages that send it in messages of their
// own.
//
// Not collective.
//
// Errors: [cohort.ErrType], as for [Send].
func Encode[T any](x T) ([]byte, error) {
	var buf bytes.Buffer
	if err := encode(&buf, x, nil); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// guarded calls f, which calls functions of the user, in a goroutine that these may end. If f does not return, guarded
// says why. A collective then goes on, because other ranks wait for this one.
func guarded(f func()) (failed string) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = "ended its goroutine (runtime.Goexit)"
		defer func() {
			if p := recover(); p != nil {
				failed = backend.Panicked(p)
			}
		}()
		f()
		failed = ""
	}()
	<-ended
	return failed
}

// encode appends the encoding of x to buf. If x cannot be encoded, or bad is an argument error, encode appends
// the error for the ranks that wait for the value, and returns it.
func encode[T any](buf *bytes.Buffer, x T, bad error) (err error) {
	begin := buf.Len()
	if err = bad; err == nil {
		if failed := guarded(func() { err = marshal(buf, x) }); failed != "" {
			err = backend.Faultf(cohort.ErrType, "encoding %v %s", reflect.TypeFor[T](), failed)
		}
	}
	if err != nil {
		buf.Truncate(begin)
		buf.WriteByte(noValue)
		buf.WriteString(err.Error())
	}
	return err
}

// marshal appends the encoding of x to buf.
func marshal[T any](buf *bytes.Buffer, x T) error {
	t := traitsOf(reflect.TypeFor[T]())
	v := reflect.ValueOf(&x).Elem()
	switch {
	case t.err != nil:
		return t.err
	case t.empty || nilable(v) && v.IsNil():
		return buf.WriteByte(nilValue)
	case t.binary:
		b, err := operand(&x).(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			return backend.Faultf(cohort.ErrType, "MarshalBinary of %v: %v", v.Type(), err)
		}
		buf.Grow(1 + len(b))
		buf.WriteByte(binaryValue)
		buf.Write(b)
		return nil
	case t.loops && tooDeep(v):
		return backend.Faultf(cohort.ErrType, "the %v contains itself, or is nested deeper than %d", v.Type(), maxDepth)
	}
	buf.WriteByte(gobValue)
	if err := gob.NewEncoder(buf).Encode(operand(&x)); err != nil {
		return backend.Faultf(cohort.ErrType, "%v: %v", v.Type(), err)
	}
	return nil
}

// Decode returns the value that a rank has encoded. It does not trust b, and names the rank in its errors.
//
// Not collective.
//
// Errors: [cohort.ErrType] if b is not the encoding of a T.
func Decode[T any](b []byte, from int) (x T, err error) {
	t := traitsOf(reflect.TypeFor[T]())
	switch {
	case t.err != nil:
		return x, t.err
	case len(b) > 0 && b[0] == noValue:
		return x, backend.Faultf(cohort.ErrMismatch, "rank %d has no value: %s", from, b[1:])
	}
	if failed := guarded(func() { err = unmarshal(b, &x, t) }); failed != "" {
		err = fmt.Errorf("decoding it %s", failed)
	}
	if err != nil {
		var zero T
		return zero, backend.Faultf(cohort.ErrType, "the message of rank %d is not a %v: %v", from, reflect.TypeFor[T](), err)
	}
	return x, nil
}

// unmarshal sets x to the value that all of b encodes.
func unmarshal[T any](b []byte, x *T, t *traits) error {
	v := reflect.ValueOf(x).Elem()
	var kind byte
	if len(b) > 0 {
		kind, b = b[0], b[1:]
	}
	if kind == nilValue && (t.empty || nilable(v)) && len(b) == 0 {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
	}
	switch {
	case kind == binaryValue && t.binary:
		return operand(x).(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
	case kind == gobValue && !t.binary:
		if v.Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // gob leaves it if the message is empty
		}
		return ungob(b, operand(x), t.maps && !t.faces)
	}
	return errors.New("it was encoded differently, or not by this package")
}

// ungob decodes a value that is all of b. gob allocates a map as large as the message says it is, before
// it reads the elements. With check, the message is first read without storing it, which fails if it says wrong.
// gob cannot read interfaces in this way: it fails at a nil one, and does not find types in others (golang.org/issue/34879).
func ungob(b []byte, x any, check bool) error {
	r := bytes.NewReader(b)
	if check {
		if err := gob.NewDecoder(r).DecodeValue(reflect.Value{}); err != nil {
			return err
		}
		r.Reset(b)
	}
	if err := gob.NewDecoder(r).Decode(x); err != nil {
		return err
	}
	if r.Len() > 0 {
		return fmt.Errorf("%d bytes follow it", r.Len())
	}
	return nil
}
