package tcp

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

func (s socket) read(a, b []byte) (int, error)  { return shmem.ReadNow(int(s), a, b) }
func (s socket) write(a, b []byte) (int, error) { return shmem.WriteNow(int(s), a, b) }

// Limit ends a connection with an error when what was written has not been acknowledged for so long. It is
// a help: nothing depends on its success.
func (s socket) Limit(d time.Duration) {
	unix.SetsockoptInt(int(s), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(min(d.Milliseconds(), 1<<30)))
}

// Unsent is how many bytes of what was written the other end's system does not have, and may get.
func (s socket) Unsent() int {
	const closed = 7 // TCP_CLOSE: by a reset; what was unsent then is always counted
	info, err := unix.GetsockoptTCPInfo(int(s), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State == closed {
		return 0
	}
	n, _ := unix.IoctlGetInt(int(s), unix.SIOCOUTQ)
	return n
}

// withinHost has a connection that does not leave the machine go without a congestion control that paces what
// is sent. The system's may be one (BBR), which on the way through memory costs a third of the rate. A process
// that may not choose goes on with the system's.
func (s socket) withinHost() {
	unix.SetsockoptString(int(s), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
}
