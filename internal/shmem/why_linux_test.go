package shmem

import (
	"context"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestWhyEnded checks what a rank says of a fetch that failed.
func TestWhyEnded(t *testing.T) {
	failed, over := errors.New("no answer"), &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "rank 0"}
	late, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ended, end := context.WithCancelCause(t.Context())
	end(over)
	for _, c := range []struct {
		name string
		ctx  context.Context
		want error
	}{
		{"nothing has ended it", t.Context(), failed},
		{"its time", late, backend.ErrTimeout},
		{"its caller", canceled, backend.ErrCanceled},
		{"the communicator", ended, backend.ErrPeerLost},
	} {
		if err := whyEnded(c.ctx, failed); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
