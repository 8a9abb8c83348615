//go:build unix && !linux

package cohorttest

import "syscall"

func stopProcess(pid int) error     { return syscall.Kill(pid, syscall.SIGSTOP) }
func continueProcess(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
