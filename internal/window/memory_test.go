package window

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestMemoryIsOpenUntilItsLastUserClosesIt has users that share one mapping, as ranks of one process do.
func TestMemoryIsOpenUntilItsLastUserClosesIt(t *testing.T) {
	m, err := Anonymous(1)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.Retain(); again != m || err != nil {
		t.Fatalf("one more user: %v", err)
	}
	if err := m.Close(nil); err != nil || m.Bytes() == nil {
		t.Errorf("closed by one of two: %v, %d bytes left", err, len(m.Bytes()))
	}
	if err := m.Close(nil); err != nil || m.Bytes() != nil {
		t.Errorf("closed by both: %v, %d bytes left", err, len(m.Bytes()))
	}
	if _, err := m.Retain(); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("a user after that: %v", err)
	}
}
