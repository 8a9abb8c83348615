package tensor

import (
	"errors"
	"reflect"

	"github.com/cohort-hpc/cohort"
)

// Handle is a pending operation. Until it is done, the caller must not write its tensors, nor read
// those that it writes. Any number of goroutines can call its methods, any number of times, also
// after the communicator is closed. A nil or zero Handle counts as done.
type Handle struct {
	done   chan struct{}
	status cohort.Status // written before done is closed, as err is
	err    error
}

// noStatus is the status of an operation that receives no message.
var noStatus = cohort.NewStatus(cohort.Undefined, cohort.Undefined, cohort.Undefined)

func newHandle() *Handle { return &Handle{done: make(chan struct{})} }

// finish completes an operation.
func (h *Handle) finish(st cohort.Status, err error) {
	h.status, h.err = st, err
	close(h.done)
}

// always is the channel of a Handle without an operation.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wait waits until the operation is done, and returns the status of the received message and the
// operation's error.
func (h *Handle) Wait() (cohort.Status, error) {
	<-h.Done()
	st, _, err := h.Test()
	return st, err
}

// Test reports without waiting whether the operation is done. If it is, Test also returns what
// [Handle.Wait] does.
func (h *Handle) Test() (cohort.Status, bool, error) {
	if h == nil || h.done == nil {
		return noStatus, true, nil
	}
	select {
	case <-h.done:
		return h.status, true, h.err
	default:
		return noStatus, false, nil
	}
}

// Done returns a channel that is closed when the operation is done.
func (h *Handle) Done() <-chan struct{} {
	if h == nil || h.done == nil {
		return always
	}
	return h.done
}

// WaitAll waits until all operations are done and returns their errors, joined. Nil handles are
// ignored.
func WaitAll(handles ...*Handle) error {
	var all []error
	for _, h := range handles {
		if h != nil {
			_, err := h.Wait()
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// waitAnyMost is the most handles that [WaitAny] takes: the limit of reflect.Select.
const waitAnyMost = 1 << 16

// WaitAny waits until one operation is done and returns its index, status and error. Nil handles are
// ignored; the index is -1 if all are nil. More than 65536 handles are [cohort.ErrCount].
func WaitAny(handles ...*Handle) (int, cohort.Status, error) {
	if len(handles) > waitAnyMost {
		return -1, noStatus, failed("waitany", fault(cohort.ErrCount, "%d handles; want at most %d", len(handles), waitAnyMost))
	}
	cases := make([]reflect.SelectCase, len(handles))
	some := false
	for i, h := range handles {
		cases[i].Dir = reflect.SelectRecv
		if h != nil {
			cases[i].Chan, some = reflect.ValueOf(h.Done()), true
		}
	}
	if !some {
		return -1, noStatus, nil
	}
	i, _, _ := reflect.Select(cases)
	st, err := handles[i].Wait()
	return i, st, err
}
