package tensor

import (
	"errors"
	"reflect"

	"github.com/cohort-hpc/cohort"
)

// Handle is an operation under way. The tensors it was given must not be written before it is done, nor
// read if the operation writes them. Its methods can be called from any number of goroutines, any number of times, and after the
// communicator is closed.
type Handle struct {
	done   chan struct{}
	status cohort.Status // written before done is closed, as err is
	err    error
}

func newHandle() *Handle { return &Handle{done: make(chan struct{})} }

// finish completes an operation.
func (h *Handle) finish(st cohort.Status, err error) {
	h.status, h.err = st, err
	close(h.done)
}

// Wait waits until the operation is done, and returns its error.
func (h *Handle) Wait() error {
	<-h.done
	return h.err
}

// Done returns a channel that is closed when the operation is done.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Err returns the operation's error; nil while it is under way.
func (h *Handle) Err() error {
	select {
	case <-h.done:
		return h.err
	default:
		return nil
	}
}

// Status returns where a message came from, once the operation that receives it is done.
func (h *Handle) Status() cohort.Status {
	select {
	case <-h.done:
		return h.status
	default:
		return cohort.Status{Source: cohort.Undefined, Tag: cohort.Undefined}
	}
}

// WaitAll waits until all operations of a set are done, and returns their errors, joined. Handles that
// are nil count as done.
func WaitAll(handles ...*Handle) error {
	var all []error
	for _, h := range handles {
		if h != nil {
			all = append(all, h.Wait())
		}
	}
	return errors.Join(all...)
}

// WaitAny waits until one operation of a set is done, and returns its index and its error. Handles that are nil are left out; -1
// if there is no other.
func WaitAny(handles ...*Handle) (int, error) {
	cases := make([]reflect.SelectCase, len(handles))
	some := false
	for i, h := range handles {
		cases[i].Dir = reflect.SelectRecv
		if h != nil {
			cases[i].Chan, some = reflect.ValueOf(h.done), true
		}
	}
	if !some {
		return -1, nil
	}
	i, _, _ := reflect.Select(cases)
	return i, handles[i].err
}
