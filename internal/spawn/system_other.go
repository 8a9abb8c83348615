//go:build unix && !linux

package spawn

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/cohort-hpc/cohort/topo"
)

func sysProcAttr(*int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func setAffinity(topo.CPUSet) error {
	return errors.New("processes cannot be bound to processors on this system")
}

// pidfdsWork is false: this system reports the ends of children only.
func pidfdsWork() bool { return false }

type watch struct{}

func newWatch() (*watch, error) { return nil, nil }

func (*watch) follow(int, int, *os.Process, int) error { return errors.ErrUnsupported }

func (*watch) run(chan<- exit, <-chan struct{}) {}

func (*watch) close() {}

// trusted reports true: the socket is a file that only this user may open.
func trusted(_ *net.UnixConn, pid *int) bool { return *pid > 1 }

// liftLimit does nothing: a process's limits are its own.
func liftLimit(pid, n int) {}

func liveGroups() (groups map[int]bool, ok bool) { return nil, false }

func isStopped(pid int) bool { return false }
