package denied

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/view"
)

// Syscall makes a system call fail with EPERM in this process and those that it starts, for good.
func Syscall(number uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := make([]unix.SockFprog, 1)
	program[0] = unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	var pin runtime.Pinner // the kernel gets an address
	pin.Pin(&program[0])
	pin.Pin(&filter[0])
	defer pin.Unpin()
	at := view.Address(view.Bytes(program))
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, at); e != 0 {
		return e
	}
	return nil
}
