package job

import (
	"os"
	"syscall"
)

// AsksForEnd reports whether a signal asks a job to end.
func AsksForEnd(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// Prepare handles signals until done is closed, while a job is being prepared. It calls stop for the first that
// asks for the job's end, and returns that signal, or 0.
func Prepare(signals <-chan os.Signal, done <-chan struct{}, stop func(syscall.Signal)) (asked syscall.Signal) {
	for {
		select {
		case <-done:
			return asked
		case sig := <-signals:
			if n, _ := sig.(syscall.Signal); asked == 0 && AsksForEnd(sig) {
				asked = n
				stop(n)
			}
			Suspend(sig)
		}
	}
}
