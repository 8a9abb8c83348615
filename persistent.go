package cohort

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Persistent is an operation with fixed arguments that can be started any number of times.
// [SendInit], [RecvInit] and the Init functions of the collectives return one. From Start until the
// operation is complete, its buffers belong to it. Start and Wait do not allocate.
//
// Any number of goroutines may call its methods; all that wait for a completion get it.
type Persistent comm.Persistent

func (p *Persistent) base() *comm.Persistent { return (*comm.Persistent)(p) }

// SendInit is the persistent form of [Send]. Unlike that of a collective, it does not wait. Each Start
// sends the current contents of buf, which must not be written until the operation is complete.
func SendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	return persistent(c.base().SendInit("sendinit", typ, view.Bytes(buf), dest, tag, backend.Standard, err))
}

// SsendInit is the persistent form of [Ssend], as SendInit is that of Send.
func SsendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	return persistent(c.base().SendInit("ssendinit", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err))
}

// RecvInit is the persistent form of [Recv]. It does not wait. buf must not be used between Start and
// completion.
func RecvInit[T any](c *Comm, buf []T, source, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	return persistent(c.base().RecvInit("recvinit", typ, view.Bytes(buf), source, tag, err))
}

// Start starts the operation and returns without waiting.
//
// Not collective for point-to-point operations. Collective otherwise: all ranks start the operation equally
// often, and different operations in any order.
//
// Errors: [ErrRequest] if the operation is nil or under way, [ErrClosed] after Close of it or of
// the communicator. Failures of the operation come from Wait or Test.
//
// Deadline: none. Start does not wait.
func (p *Persistent) Start() error { return p.base().Start() }

// Wait waits until the started operation is complete and returns its status. If it has not been
// started since its last completion, Wait returns that status and error again. Before the first
// Start, and for nil, it returns at once.
//
// Not collective.
//
// Errors: those of the operation.
//
// Deadline: as for [Request.Wait]. A point-to-point operation that was withdrawn can be started
// again.
func (p *Persistent) Wait() (Status, error) { return status(p.base().Wait()) }

// Run is Start and Wait.
//
// Collective for collective operations, as [Persistent.Start].
//
// Errors: those of Start and of the operation.
//
// Deadline: as for [Persistent.Wait].
func (p *Persistent) Run() (Status, error) {
	if err := p.Start(); err != nil {
		return Status{}, err
	}
	return p.Wait()
}

// Test makes progress without waiting and reports whether the operation is complete. An operation
// that is not started counts as complete.
//
// Not collective.
//
// Errors: those of the operation, once it is complete.
//
// Deadline: as for [Persistent.Wait].
func (p *Persistent) Test() (Status, bool, error) {
	st, done, err := p.base().Test()
	return fromBackend(st), done, err
}

// Close releases the operation. Closing it twice, or closing nil, does nothing.
//
// Not collective; errors: [ErrRequest] if the operation is under way on an open communicator.
func (p *Persistent) Close() error { return p.base().Close() }

// StartAll starts all operations. If some cannot be started, it still starts the others, and
// returns the errors joined.
//
// Collective for collective operations, as [Persistent.Start].
//
// Errors: those of Start.
//
// Deadline: none. StartAll does not wait.
func StartAll(ops ...*Persistent) error {
	var errs []error
	for _, p := range ops {
		if err := p.Start(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WaitAllPersistent waits until all operations are complete and returns their errors joined. It
// ignores nil operations and operations that are not under way.
//
// Not collective.
//
// Errors: those of the operations.
//
// Deadline: as for [Persistent.Wait], for each operation.
func WaitAllPersistent(ops ...*Persistent) error {
	var few [16]*comm.Request
	held := few[:0] // all at once, so that Close sees that a goroutine waits for them
	for _, p := range ops {
		if q := p.base().Hold(); q != nil {
			held = append(held, q)
		}
	}
	var errs []error
	for _, q := range held {
		if err := q.Await(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
