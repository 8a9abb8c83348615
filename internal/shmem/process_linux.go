package shmem

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxCopy is the most bytes that one system call copies: the calls do
// not report to the Go scheduler that they block, so they must be short.
const maxCopy = 1 << 20

type iovec struct{ base, len uintptr }

// copyProcess copies between b and address addr of a process, at most maxCopy bytes at a time.
func copyProcess(call uintptr, pid int, addr uint64, b []byte) error {
	does := "reading"
	if call == unix.SYS_PROCESS_VM_WRITEV {
		does = "writing to"
	}
	for len(b) > 0 {
		n := min(len(b), maxCopy)
		local := iovec{uintptr(Addr(b)), uintptr(n)}
		remote := iovec{uintptr(addr), uintptr(n)}
		// SAFETY: local names n bytes of b, which b keeps alive; remote is the
		// kernel's to check against the other process.
		got, _, e := syscall.RawSyscall6(call, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1,
			uintptr(unsafe.Pointer(&remote)), 1, 0)
		switch {
		case e == unix.EINTR:
			continue
		case e != 0:
			return fmt.Errorf("%s the memory of process %d: %w", does, pid, e)
		case got == 0 || got > uintptr(n):
			return fmt.Errorf("%s the memory of process %d stopped after %d of %d bytes", does, pid, got, n)
		}
		b = b[got:]
		addr += uint64(got)
	}
	return nil
}

var dump [2]byte // what Copyable reads, and nobody else

// Copyable reports whether other processes may copy b. It looks at the first byte and at the last by system calls, but
// takes memory in Go's heap for copyable.
func Copyable(b []byte) bool {
	const near = 1 << 38 // the system puts other memory far from the heap
	addr := Addr(b)
	if len(b) == 0 || addr/near == Addr(proof())/near {
		return true
	}
	local := iovec{uintptr(Addr(dump[:])), 2}
	remote := [2]iovec{{uintptr(addr), 1}, {uintptr(addr) + uintptr(len(b)) - 1, 1}}
	// SAFETY: local names dump, which stays in its place; remote is the kernel's to check.
	n, _, e := syscall.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 2, 0)
	return e == 0 && n == 2
}

// Gone reports whether a copy failed because the other process has ended.
func Gone(err error) bool { return errors.Is(err, unix.ESRCH) }

// Runs reports whether a process lives and is not stopped, by a signal or a debugger. It allocates nothing, as ranks ask
// it while others wait. A process of which the system does not tell, such as for lack of descriptors, counts as running.
func Runs(pid int) bool {
	var path [32]byte
	name := append(strconv.AppendInt(append(path[:0], "/proc/"...), int64(pid), 10), "/stat\x00"...)
	dir := unix.AT_FDCWD
	// SAFETY: name ends with a zero byte. It and b live until the calls return.
	fd, _, e := syscall.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if e != 0 {
		return e != unix.ENOENT
	}
	defer unix.Close(int(fd))
	var b [512]byte
	n, _, e := syscall.Syscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if e != 0 {
		return e != unix.ESRCH
	}
	s := state(b[:n])
	return s != 0 && strings.IndexByte("TtZXx", s) < 0
}

// Apart returns the number of a process that runs the program of this one with such an environment, in another network
// namespace, which sockets without a file do not cross; 0 if it sees none.
func Apart(env ...string) (pid int) {
	exe, err := os.Stat("/proc/self/exe")
	net, _ := os.Readlink("/proc/self/ns/net")
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if other, e := os.Readlink(p + "/ns/net"); e != nil || other == net {
			continue // first: it holds for nearly all
		}
		if file, e := os.Stat(p + "/exe"); err != nil || e != nil || !os.SameFile(file, exe) {
			continue
		}
		has, _ := os.ReadFile(p + "/environ")
		lacks := func(v string) bool { return !bytes.Contains(has, []byte(v+"\x00")) }
		if !slices.ContainsFunc(env, lacks) {
			pid, _ = strconv.Atoi(filepath.Base(p))
		}
	}
	return pid
}

// state returns the state that a file /proc/PID/stat shows, 0 if it is empty.
func state(stat []byte) byte {
	if at := bytes.LastIndexByte(stat, ')') + 2; at < len(stat) { // behind the name, which may have anything in it
		return stat[at]
	}
	return 0
}

// CPUs returns the processor cores this process may run on, as a bit set of the first 1024.
func CPUs() (set [16]uint64, err error) {
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		return set, err
	}
	for i := range 1024 {
		if s.IsSet(i) {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set, nil
}

// ReceiveFD reads from a socket, and returns the descriptor that came with the bytes, -1 if none did.
func ReceiveFD(c *net.UnixConn, b []byte) (n, fd int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, -1, err
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range msgs {
		fds, _ := unix.ParseUnixRights(&m)
		if len(fds) == 1 {
			return n, fds[0], nil
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return n, -1, fmt.Errorf("no descriptor is left for shared memory; raise the limit (ulimit -n): %w", unix.EMFILE)
	}
	return n, -1, nil
}

// PeerOf returns the user and the process at the other end of a socket.
func PeerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, 0, err
	}
	var cred *unix.Ucred
	err2 := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, err2); err != nil {
		return -1, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
