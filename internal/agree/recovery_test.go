package agree

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// closing is a communicator that is closed while its control communicator is made.
type closing struct {
	Comm
	r      *Recovery
	closed bool // the control communicator
}

func (c *closing) ID() uint32 { return 1 }
func (c *closing) Size() int  { return 1 }

func (c *closing) Control(uint32) (backend.Comm, error) {
	c.r.Close()
	return c, nil
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// To make a communicator, the engine moves messages and calls functions of the program. One of them may close the
// communicator.
func TestCloseDuringFirstAgree(t *testing.T) {
	c := &closing{r: new(Recovery)}
	c.r.Of = c
	if _, err := c.r.Agree(nil, 0); !errors.Is(err, backend.ErrClosed) || !c.closed {
		t.Errorf("Agree: %v, want ErrClosed; the control communicator is closed: %v", err, c.closed)
	}
}
