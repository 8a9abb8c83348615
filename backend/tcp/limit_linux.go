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

// sockUnsent is how many bytes of what was written the other end's system does not have, and may get.
func sockUnsent(fd int) int {
	const closed = 7 // TCP_CLOSE: by a reset; what was unsent then is always counted
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State == closed {
		return 0
	}
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// sockWithinHost has a connection that does not leave the machine go without a congestion control that paces
// what is sent, as the system's may be (BBR), which on the way through memory costs a third of the rate. A
// process that may not choose goes on with the system's.
func sockWithinHost(fd int) {
	unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
}
