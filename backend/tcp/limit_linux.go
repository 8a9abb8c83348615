package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// sockLimit ends a connection with an error when what was written has not been acknowledged for so
// long. It is a help and no need: nothing depends on its success.
func sockLimit(fd int, d time.Duration) {
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(min(d.Milliseconds(), 1<<30)))
}

// sockUnsent is how many bytes of what was written the other end's system does not have.
func sockUnsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
