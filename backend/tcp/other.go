//go:build !linux && !darwin

package tcp

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
)

func join(context.Context, Config) (backend.Comm, error) {
	return nil, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "backend tcp runs on Linux and macOS only"}
}
