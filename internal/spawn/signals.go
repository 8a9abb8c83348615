//go:build unix

package spawn

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify returns a channel that gets the signals a launcher passes on to its
// ranks. Those that the launcher was started to ignore (nohup, a background job
// of a script) stay ignored, here and in the ranks.
func Notify() chan os.Signal {
	c := make(chan os.Signal, 64)
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGCONT,
		syscall.SIGPIPE, // so that a closed output is an error of the write and not the launcher's death
	} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

const onUnix = true
