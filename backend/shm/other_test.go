//go:build !linux

package shm

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func TestOpenReportsUnsupportedSystem(t *testing.T) {
	_, err := Open(context.Background(), backend.Config{Size: 1, Job: "job"})
	if !errors.Is(err, backend.ErrNotSupported) || !strings.Contains(err.Error(), "Linux") {
		t.Errorf("got %v, want ErrNotSupported that says what shm needs", err)
	}
}
