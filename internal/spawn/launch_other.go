//go:build unix && !linux

package spawn

import (
	"net"
	"syscall"
)

// pidfdsWork is false: this system reports the ends of children only.
func pidfdsWork() bool { return false }

type follower struct{}

func newFollower() (*follower, error) { return nil, nil }

func (*follower) follow(int, int) error { return nil }

func (*follower) run(chan<- exit, <-chan struct{}) {}

func (*follower) how(int) (syscall.WaitStatus, bool) { return 0, false }

func (*follower) close() {}

// trusted reports true: the socket is a file that only this user may open.
func trusted(_ *net.UnixConn, pid *int) bool { return *pid > 1 }

// liftLimit does nothing: a process's limits are its own.
func liftLimit(pid, n int) {}
