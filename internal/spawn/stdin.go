//go:build unix

package spawn

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// openStdin returns the standard input of rank 0. No rank is in the terminal's foreground
// group, so none could read the launcher's terminal. Rank 0 then gets a pipe, and the
// caller fills it with keys.
func openStdin(from *os.File) (stdin *os.File, k *keyboard, err error) {
	if from != nil {
		if _, err := from.Stat(); err == nil { // else it is closed, and rank 0 has none either
			if _, terminal := foreground(int(from.Fd())); terminal {
				return openKeyboard(from)
			}
			return from, nil, nil
		}
	}
	stdin, err = os.Open(os.DevNull)
	return stdin, nil, err
}

// A keyboard passes on what is typed at the launcher's terminal to rank 0.
type keyboard struct {
	from   *os.File
	to     *os.File
	unread *os.File // the end of the pipe that rank 0 has too: what it has not read is there
}

func openKeyboard(from *os.File) (stdin *os.File, k *keyboard, err error) {
	stdin, to, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.FcntlInt(stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		stdin.Close()
		to.Close()
		return nil, nil, err
	}
	return stdin, &keyboard{from, to, os.NewFile(uintptr(fd), "input")}, nil
}

// waits reports whether rank 0 has not read earlier input.
func (k *keyboard) waits() bool {
	poll := []unix.PollFd{{Fd: int32(k.unread.Fd()), Events: unix.POLLIN}}
	n, _ := unix.Poll(poll, 0)
	return n > 0
}

// feed passes input on until the end of the job. It shows the user what rank 0 has not read by then: the next program at
// the terminal will not get it.
func (j *Job) feed(k *keyboard) {
	feed(k.from, k.to, j.done, k.waits)
	<-j.done
	text, _ := io.ReadAll(k.unread) // no rank is left, and to is closed
	k.unread.Close()
	if len(text) > 0 {
		j.out.say(fmt.Sprintf("cohort: rank 0 has not read this input: %q\n", text))
	}
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
		feed(from, to, done, func() bool { return false })
		return
	}
	defer to.Close()
	io.Copy(to, from)
}

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
// that reads its terminal is stopped. While waits reports true, input stays in the terminal.
func feed(from *os.File, to io.WriteCloser, done <-chan struct{}, waits func() bool) {
	defer to.Close()
	wake, end, err := os.Pipe()
	if err != nil {
		return
	}
	defer wake.Close()
	go func() {
		<-done
		end.Close()
	}()
	fd := int(from.Fd())
	buf := make([]byte, 4096)
	const most = 100 * time.Millisecond
	for wait := time.Millisecond; ; {
		poll := []unix.PollFd{{Fd: int32(wake.Fd()), Events: unix.POLLIN}, {Fd: int32(fd), Events: unix.POLLIN}}
		switch yes, terminal := foreground(fd); {
		case !terminal: // hung up
			return
		case !yes || waits():
			poll = poll[:1]
			wait = min(2*wait, most)
		default:
			wait = most
		}
		if _, err := unix.Poll(poll, int(wait.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) || poll[0].Revents != 0 {
			return
		}
		if len(poll) == 1 || poll[1].Revents == 0 {
			continue
		}
		wait = time.Millisecond
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
