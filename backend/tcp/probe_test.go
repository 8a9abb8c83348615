//go:build linux || darwin

package tcp

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// TestImrecvOnBrokenCommunicator checks that the receive of a message that Mprobe took ends with its communicator as others do,
// whatever its record was used for before.
func TestImrecvOnBrokenCommunicator(t *testing.T) {
	c, other := single(t)
	internal := int(backend.CheckTag(0))
	other.frame(wire.Header{Kind: wire.Eager, Tag: int32(internal)}, nil)
	if _, err := c.Recv(patient, nil, 1, internal); err != nil {
		t.Fatal(err)
	}
	other.frame(wire.Header{Kind: wire.ReadyToSend, Tag: 1, Length: 8, Token: 1}, nil)
	m, _, _, err := c.Mprobe(patient, 1, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	q := &backend.Request{}
	q.Begin()
	c.Imrecv(q, m, make([]byte, 8))
	c.Break(&backend.Fault{Sentinel: backend.ErrTimeout, Text: "because of the test"})
	if err := await(t, c, q); !errors.Is(err, backend.ErrBroken) {
		t.Errorf("the receive: %v, want ErrBroken", err)
	}
}
