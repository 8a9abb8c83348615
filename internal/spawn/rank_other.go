//go:build unix && !linux

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

type watch struct{ procs []*os.Process }

func newWatch(procs []*os.Process, _ []int) *watch { return &watch{procs} }

func (w *watch) run(ended chan<- exit) { watchEach(w.procs, ended) }
