//go:build unix

package spawn

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify returns a channel that receives the signals that a launcher passes on to its
// ranks. Signals that the launcher was started to ignore (by nohup, or as a background
// job of a script) stay ignored, here and in the ranks.
func Notify() chan os.Signal {
	c := make(chan os.Signal, 64)
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGCONT,
		syscall.SIGPIPE, // so that writing to a closed pipe returns an error and does not kill the launcher
	} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

const onUnix = true
