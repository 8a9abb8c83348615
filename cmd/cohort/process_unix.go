//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives a command that has not been started a process group, which is killed when its context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// suspend stops this process if the signal is that of a terminal's suspend key (SIGTSTP).
func suspend(s os.Signal) {
	if s == syscall.SIGTSTP {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}
