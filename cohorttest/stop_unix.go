//go:build unix && !linux

package cohorttest

import (
	"errors"
	"syscall"
)

func stopProcess(pid int) error     { return syscall.Kill(pid, syscall.SIGSTOP) }
func continueProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }

func limitMemory() error { return errors.ErrUnsupported }
