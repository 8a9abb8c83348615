package tensor

import (
	"errors"
	"reflect"

	"github.com/cohort-hpc/cohort"
)

// Handle is an operation under way. The tensors it was given must not be written before it is done, nor
// read if the operation writes them. Its methods can be called from any number of goroutines, any number
// of times, and after the communicator is closed. One that is nil, or the zero value, counts as done.
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

// always is the channel of a handle of no operation.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wait waits until the operation is done, and returns its error.
func (h *Handle) Wait() error {
	<-h.Done()
	return h.Err()
}

// Done returns a channel that is closed when the operation is done.
func (h *Handle) Done() <-chan struct{} {
	if h == nil || h.done == nil {
		return always
	}
	return h.done
}

// Err returns the operation's error; nil while it is under way.
func (h *Handle) Err() error {
	if h == nil {
		return nil
	}
	select {
	case <-h.Done():
		return h.err
	default:
		return nil
	}
}

// Status returns where a message came from, once the operation that receives it is done.
func (h *Handle) Status() cohort.Status {
	if h != nil && h.done != nil {
		select {
		case <-h.done:
			return h.status
		default:
		}
	}
	return noStatus
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

// selectMost is how many handles WaitAny waits for with one reflect.Select, which takes 65536 at most.
const selectMost = 1 << 15

// WaitAny waits until one operation of a set is done, and returns its index and its error. Handles that
// are nil are left out; -1 if there is no other.
func WaitAny(handles ...*Handle) (int, error) {
	if len(handles) <= selectMost {
		return waitAny(handles, nil)
	}
	type end struct {
		i   int
		err error
	}
	parts := (len(handles) + selectMost - 1) / selectMost
	ends, stop := make(chan end, parts), make(chan struct{})
	defer close(stop)
	for lo := 0; lo < len(handles); lo += selectMost {
		go func() {
			i, err := waitAny(handles[lo:min(lo+selectMost, len(handles))], stop)
			if i >= 0 {
				i += lo
			}
			ends <- end{i, err}
		}()
	}
	for range parts {
		if e := <-ends; e.i >= 0 {
			return e.i, e.err
		}
	}
	return -1, nil
}

// waitAny is WaitAny of a few handles. It returns -1 as well when stop is closed, unless that is nil.
func waitAny(handles []*Handle, stop chan struct{}) (int, error) {
	cases := make([]reflect.SelectCase, len(handles), len(handles)+1)
	some := false
	for i, h := range handles {
		cases[i].Dir = reflect.SelectRecv
		if h != nil {
			cases[i].Chan, some = reflect.ValueOf(h.Done()), true
		}
	}
	if !some {
		return -1, nil
	}
	if stop != nil {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(stop)})
	}
	i, _, _ := reflect.Select(cases)
	if i == len(handles) {
		return -1, nil
	}
	return i, handles[i].err
}
