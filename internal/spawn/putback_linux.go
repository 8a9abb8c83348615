package spawn

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// putBack makes text the next input of a terminal. It reports false if this process is in the background, or the kernel does
// not permit it (dev.tty.legacy_tiocsti).
//
//  1. The terminal is set to give out unfinished lines too, and to show nothing.
//  2. The text is added behind what has been typed since. If that is not permitted, nothing has changed.
//  3. All of it is read, and added again with the text first.
func putBack(fd int, text []byte) bool {
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if yes, _ := foreground(fd); err != nil || !yes {
		return false
	}
	defer unix.IoctlSetTermios(fd, unix.TCSETS, old)
	quiet := *old
	quiet.Lflag &^= unix.ECHO
	raw := quiet
	raw.Lflag &^= unix.ICANON
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 0
	if unix.IoctlSetTermios(fd, unix.TCSETS, &raw) != nil || !addInput(fd, text) {
		return false
	}
	var all []byte
	for buf := make([]byte, 4096); ; {
		n, err := syscall.Read(fd, buf)
		if n <= 0 && err != syscall.EINTR {
			break
		}
		all = append(all, buf[:max(n, 0)]...)
	}
	unix.IoctlSetTermios(fd, unix.TCSETS, &quiet)
	return addInput(fd, append(text, all[:max(len(all)-len(text), 0)]...))
}

func addInput(fd int, text []byte) bool {
	for _, c := range text {
		first := int32(binary.NativeEndian.Uint32([]byte{c, 0, 0, 0})) // the kernel takes the first byte
		if unix.IoctlSetPointerInt(fd, unix.TIOCSTI, int(first)) != nil {
			return false
		}
	}
	return true
}
