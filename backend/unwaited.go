package backend

import "time"

// Owner is the layer above's record of a nonblocking operation on messages.
type Owner interface {
	// Unwaited returns the error of an operation that is under way in a communicator which is being closed, and nil
	// if a goroutine waits for it.
	Unwaited() *OpError
}

// Unwaited looks for operations on messages that are under way when a job's first communicator is closed, and for
// which nobody waits. It returns the error of the first, which says how many there are. each calls f for the requests
// under way, with the lock held under which they complete. Sends get up to a second to be received: moves says that
// a request is one.
func Unwaited(c Comm, each func(f func(r *Request, moves bool))) error {
	var first *OpError
	var going []*Request
	n := 0
	each(func(r *Request, moves bool) {
		if r.Owner == nil {
			return
		}
		err := r.Owner.Unwaited()
		if err == nil {
			return
		}
		if n++; first == nil {
			first = err
		}
		if moves {
			going = append(going, r)
		}
	})
	if n == 0 {
		return nil
	}
	if n > 1 {
		first.Err = Faultf(ErrRequest, "%v, and neither for %d more", first.Err, n-1)
	}
	b := &Bound{Timeout: time.Second, Since: time.Now()}
	for _, r := range going {
		_ = c.Await(b, r)
	}
	return first
}
