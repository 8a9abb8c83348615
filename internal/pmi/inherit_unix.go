//go:build unix

package pmi

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// inherit takes over a socket that this process was started with. Programs that this one starts do not inherit it.
func inherit(fd int) (net.Conn, error) {
	// The runtime owns descriptors too, so this function closes only one that is a socket.
	copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(copied), "PMI_FD")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	unix.Close(fd)
	return conn, nil
}
