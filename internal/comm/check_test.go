package comm

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// The product of the length of a block and the number of ranks may be 0 in an int of 32 bits.
func TestBlocksLongerThanAnIntDoNotFitAnEmptyBuffer(t *testing.T) {
	call := &backend.Call{Type: &backend.Datatype{Size: 4}}
	if checkBytes(call, "recv", []byte{}, 1<<16, 1<<16) || !errors.Is(call.Err, backend.ErrCount) {
		t.Errorf("an empty buffer has room for 2^32 bytes: %v", call.Err)
	}
}
