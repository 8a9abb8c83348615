package frame

import "github.com/cohort-hpc/cohort/internal/shmem"

// An Arrival is a frame that is arriving on a link. The link sets Head and Left, calls Begin, copies the
// payload to where Begin has said, and calls End when Left is 0. An error of either means that the frame
// is not valid, and that the link is of no more use.
type Arrival struct {
	Head Header // Head.Kind is 0 between two frames
	Left int    // bytes of the payload that have not arrived
	Dst  []byte // where the next of them go; those that it has no room for are dropped

	Receiver Receiver
}

// A Receiver acts on the frames that arrive.
type Receiver interface {
	// Begin is called when the header of a frame has arrived. It sets Dst.
	Begin(a *Arrival) error
	// End is called when all of the frame has arrived.
	End(a *Arrival) error
}

// Begin calls the receiver's method.
func (a *Arrival) Begin() error {
	a.Dst = nil
	return a.Receiver.Begin(a)
}

// End calls the receiver's method.
func (a *Arrival) End() error {
	err := a.Receiver.End(a)
	a.Head.Kind, a.Dst = 0, nil
	return err
}

// Take copies the next bytes of the payload to their place.
func (a *Arrival) Take(b []byte) {
	n := shmem.Move(a.Dst, b)
	a.Dst = a.Dst[n:]
	a.Left -= len(b)
}
