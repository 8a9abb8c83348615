//go:build !linux

package spawn

import (
	"os"
	"syscall"
)

func sysProcAttr(pidfd *int) *syscall.SysProcAttr {
	if pidfd != nil {
		*pidfd = -1
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

func watch(procs []*os.Process, _ []int, ended chan<- exit) { watchEach(procs, ended) }
