package tensor

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// parcel is a tensor without its type, as messages see it.
type parcel struct {
	kind   backend.Kind
	shape  []int
	size   int // bytes
	host   []byte
	dev    *Device // nil: the processor
	at     accel.Address
	stream accel.Stream
	lent   bool // the library beneath may still be writing to it, though the receive has failed
}

// parcel returns a tensor for a message.
func (t *Tensor[T]) parcel() (parcel, error) {
	if err := t.needContiguous(); err != nil {
		return parcel{kind: kindOf[T]()}, err
	}
	if len(t.shape) > maxDims {
		return parcel{}, fault(cohort.ErrCount, "the tensor has %d dimensions: messages take %d at most", len(t.shape), maxDims)
	}
	p := parcel{kind: kindOf[T](), shape: t.shape, size: t.size(), dev: t.dev, at: t.at, stream: t.stream}
	if t.dev == nil {
		p.host = t.bytes()
	}
	return p, nil
}

// overlaps reports whether two tensors have memory in common.
func (p *parcel) overlaps(o *parcel) bool {
	if p.size == 0 || o.size == 0 || p.dev != o.dev {
		return false
	}
	if p.dev == nil {
		return view.Overlap(p.host, o.host)
	}
	return p.at < o.at+accel.Address(o.size) && o.at < p.at+accel.Address(p.size)
}

// String describes the tensor.
func (p *parcel) String() string { return fmt.Sprintf("%v%v on %v", p.kind, p.shape, p.dev) }

// named returns an error that says which tensor it is about, without the operation beneath, which means
// nothing to the user.
func (p *parcel) named(err error) error { return fmt.Errorf("%s: %w", p.String(), plain(err)) }

// plain returns why an operation beneath has failed.
func plain(err error) error {
	var e *cohort.OpError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// wrong returns the error of an operation on messages: cohort's, of the user's operation instead of those
// beneath, whose tags may be others.
func (c *Comm) wrong(op string, peer, tag int, err error) error {
	e := &cohort.OpError{Op: op, Rank: cohort.Undefined, Peer: peer, Tag: tag, Err: plain(err)}
	if c != nil && c.core != nil {
		e.Comm, e.Rank = c.head.Name(), c.head.Rank()
	}
	return fmt.Errorf("tensor: %w", e)
}

// messaging returns what c keeps of messages.
func (c *Comm) messaging() (*messages, error) {
	if c == nil || c.core == nil {
		return nil, fault(cohort.ErrComm, "the communicator is nil")
	}
	return &c.core.messages, nil
}
