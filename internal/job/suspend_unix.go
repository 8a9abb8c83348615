//go:build unix

package job

import (
	"os"
	"syscall"
)

// Suspend stops this process if sig is that of a terminal's suspend key, as the shell expects.
func Suspend(sig os.Signal) {
	if sig == syscall.SIGTSTP {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}
