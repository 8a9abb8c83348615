//go:build unix

package spawn

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openStdin returns the standard input of rank 0. No rank is in the terminal's foreground
// group, so none could read the launcher's terminal. Rank 0 then gets a pipe, and the
// caller fills pump, the pipe's other end, with feed.
func openStdin(from *os.File) (stdin, pump *os.File, err error) {
	if from != nil {
		if _, err := from.Stat(); err == nil { // else it is closed, and rank 0 has none either
			if _, terminal := foreground(int(from.Fd())); terminal {
				return os.Pipe()
			}
			return from, nil, nil
		}
	}
	stdin, err = os.Open(os.DevNull)
	return stdin, nil, err
}

// Feed copies a launcher's standard input to rank 0 of a larger job, which is on another host. It ends with the
// input, when a write to to fails, or, if the input is a terminal, when done is closed.
func Feed(from *os.File, to io.WriteCloser, done <-chan struct{}) {
	if from == nil {
		to.Close()
		return
	}
	if _, err := from.Stat(); err != nil { // it is closed
		to.Close()
		return
	}
	if _, terminal := foreground(int(from.Fd())); terminal {
		feed(from, to, done)
		return
	}
	defer to.Close()
	io.Copy(to, from)
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// foreground reports whether a descriptor is this process's terminal, and
// whether the process is in its foreground group.
func foreground(fd int) (yes, terminal bool) {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return group == syscall.Getpgrp(), err == nil
}

// feed copies a terminal to rank 0 until its end, the rank's end, or done. It reads only
// if there is input and the launcher is in the foreground, because a background process
// that reads its terminal is stopped.
func feed(from *os.File, to io.WriteCloser, done <-chan struct{}) {
	defer to.Close()
	fd := int(from.Fd())
	buf := make([]byte, 4096)
	wait := time.NewTicker(100 * time.Millisecond)
	defer wait.Stop()
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		switch yes, terminal := foreground(fd); {
		case !terminal: // hung up
			return
		case yes:
			if _, err := unix.Poll(poll, 100); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		default:
			<-wait.C
		}
		select {
		case <-done:
			return
		default:
		}
		if poll[0].Revents == 0 {
			continue
		}
		n, err := syscall.Read(fd, buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		switch {
		case errors.Is(err, syscall.EINTR), errors.Is(err, syscall.EAGAIN):
		case err != nil, n <= 0:
			return
		}
	}
}
