//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a command that has not been started a process group, which is killed when its context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
