package cohort

import "github.com/cohort-hpc/cohort/internal/comm"

// Request is a nonblocking operation. Its buffers belong to the operation until Wait or Test finds it
// complete, or one of the functions for several requests does: WaitAll, WaitAny, WaitSome, TestAll,
// TestAny, TestSome.
//
// Several goroutines may wait for one Request. Every Wait returns the same status and error, also
// after the request is complete, or has been ended at its deadline.
type Request comm.Request

func (q *Request) base() *comm.Request { return (*comm.Request)(q) }

// Wait waits until the operation is complete and returns the status of the received message. A nil
// Request is complete.
//
// Not collective, also for a collective operation.
//
// Errors: those of the operation.
//
// Deadline: that of the handle which started the operation; Config.Timeout counts from the start. A
// send or receive ends as [Send] or [Recv] does. A collective ends, and its communicator is broken.
// The error is [ErrTimeout], or [ErrCanceled] if the context was canceled. For a collective it
// names the ranks that had not arrived (not always on mpi).
func (q *Request) Wait() (Status, error) { return status(q.base().Wait()) }

// Test makes progress without waiting and reports whether the operation is complete. A nil Request
// is complete.
//
// Not collective.
//
// Errors: those of the operation, once it is complete.
//
// Deadline: as for [Request.Wait].
func (q *Request) Test() (Status, bool, error) {
	st, done, err := q.base().Test()
	return fromBackend(st), done, err
}

// Done returns a channel that is closed when the operation is complete, or has been ended at its
// deadline. Wait then returns without waiting. The channel is for select statements. Every call on a
// Request that is not complete returns the same channel. A nil Request is complete.
//
// Not collective. The first call starts a goroutine that waits for the operation, so that no other call is
// needed to make progress. A Request on which Done is not called pays nothing.
//
// On mpi it requires that the library grants at least MPI_THREAD_SERIALIZED, as it does by default.
func (q *Request) Done() <-chan struct{} { return q.base().Done() }

// Cancel withdraws a send or receive that has not matched; Wait then returns [ErrCanceled]. An
// operation that has matched completes normally, as does a send on mpi. A message that [Comm.Mprobe]
// has taken has matched once [MessageRecv] is called. Cancel does nothing for a nil or complete Request.
//
// Not collective; errors: [ErrNotSupported] for a collective and for [Isendrecv], which cannot be canceled.
func (q *Request) Cancel() error { return q.base().Cancel() }

// setOf returns the requests as a set, which the caller puts back.
func setOf(reqs []*Request) *comm.Set {
	s := comm.NewSet()
	for _, q := range reqs {
		s.Add(q.base())
	}
	return s
}

// WaitAll waits until all requests are complete and returns their errors joined.
//
// WaitAll and the other functions of several requests ignore nil requests and requests whose
// completion has been returned before. Several goroutines may use the same requests: WaitAny,
// WaitSome, TestAny and TestSome return each completion to one of them.
//
// Not collective.
//
// Errors: those of the operations.
//
// Deadline: as for [Request.Wait], for each request.
func WaitAll(reqs ...*Request) error {
	var s *comm.Set
	for _, q := range reqs {
		if q := q.base(); !q.Succeeded() { // most messages are complete when their calls return
			if s == nil {
				s = comm.NewSet()
			}
			s.Add(q)
		}
	}
	if s == nil {
		return nil
	}
	defer s.Put()
	return s.WaitAll()
}

// WaitAny waits until one of the requests is complete and returns its index, status and error. If a
// deadline ends an operation, the index is that of this operation. If there is nothing to wait for,
// the index is -1.
//
// Not collective; errors, deadline: as for [WaitAll].
func WaitAny(reqs ...*Request) (int, Status, error) {
	s := setOf(reqs)
	defer s.Put()
	i, st, err := s.WaitAny()
	return i, fromBackend(st), err
}

// WaitSome waits until at least one of the requests is complete and returns the indices of all
// complete ones, with their errors joined. The indices include that of an operation that a deadline
// has ended. If there is nothing to wait for, the result is nil.
//
// Not collective; errors, deadline: as for [WaitAll].
func WaitSome(reqs ...*Request) ([]int, error) {
	s := setOf(reqs)
	defer s.Put()
	return s.WaitSome()
}

// TestAll makes progress without waiting and reports whether all requests are complete, with their
// errors joined if they are. Requests that it ignores count as complete.
//
// Not collective; errors, deadline: as for [WaitAll].
func TestAll(reqs ...*Request) (bool, error) {
	s := setOf(reqs)
	defer s.Put()
	return s.TestAll()
}

// TestAny makes progress without waiting and returns the index, status and error of a complete
// request, if there is one. If there is nothing to wait for, it returns -1 and true.
//
// Not collective; errors, deadline: as for [WaitAll].
func TestAny(reqs ...*Request) (int, Status, bool, error) {
	s := setOf(reqs)
	defer s.Put()
	i, st, done, err := s.TestAny()
	return i, fromBackend(st), done, err
}

// TestSome makes progress without waiting and returns the indices of the complete requests, with
// their errors joined.
//
// Not collective; errors, deadline: as for [WaitAll].
func TestSome(reqs ...*Request) ([]int, error) {
	s := setOf(reqs)
	defer s.Put()
	return s.TestSome()
}
