// Package must ends a rank of a test at the first error, without a branch after each call.
package must

// stop is the value of the panic that ends a rank.
type stop struct{ err error }

// Error implements error, for a panic outside of Return.
func (s stop) Error() string { return s.err.Error() }

func (s stop) Unwrap() error { return s.err }

// OK ends the rank if err is not nil.
func OK(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// Get returns what a call has returned, or ends the rank with the call's error.
func Get[T any](x T, err error) T {
	OK(err)
	return x
}

// Get2 is Get for a call with two results.
func Get2[S, T any](x S, y T, err error) (S, T) {
	OK(err)
	return x, y
}

// Return makes a function of body that returns body's error, or the one with which OK or Get has ended it. They must be
// called by the goroutine of body.
func Return[C any](body func(c C) error) func(c C) error {
	return func(c C) (err error) {
		defer func() {
			switch p := recover().(type) {
			case nil:
			case stop:
				err = p.err
			default:
				panic(p)
			}
		}()
		return body(c)
	}
}
