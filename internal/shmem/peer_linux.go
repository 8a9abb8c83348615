package shmem

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Identity is what a process says of itself in shared memory: its number, and random bytes at an address of its
// memory. A process that gets the number later does not have them there.
type Identity struct {
	pid   int64
	at    uint64
	proof [16]byte
}

var proof = sync.OnceValue(func() []byte {
	b := make([]byte, len(Identity{}.proof))
	rand.Read(b)
	return b
})

// Self returns this process's Identity.
func Self() Identity { return Identity{int64(os.Getpid()), Addr(proof()), [16]byte(proof())} }

// Process returns the process that an Identity is of.
func (id Identity) Process() *Process { return &Process{PID: int(id.pid), id: id} }

// Process is another process, whose memory this one copies from and to. Several goroutines may use it.
type Process struct {
	PID int
	id  Identity

	checked atomic.Int64 // when Check has succeeded, after began
	mu      sync.Mutex   // guards got
	got     [16]byte     // not on a stack, which moves
}

// sameFor is how long what Check has said is believed. The system does not give a process number to another process
// so soon after.
const sameFor = 100 * time.Millisecond

var began = time.Now().Add(-2 * sameFor)

// Read copies from an address of the process. Gone reports whether the error is that the process has ended.
func (p *Process) Read(addr uint64, dst []byte) error {
	err := copyProcess(unix.SYS_PROCESS_VM_READV, p.PID, addr, dst)
	if other := p.still(); other != nil {
		return other
	}
	return err
}

// Write copies to an address of the process, with the error of Read.
func (p *Process) Write(addr uint64, src []byte) error {
	if err := p.still(); err != nil {
		return err
	}
	return copyProcess(unix.SYS_PROCESS_VM_WRITEV, p.PID, addr, src)
}

// still is Check, at most once in sameFor.
func (p *Process) still() error {
	now := int64(time.Since(began))
	if now-p.checked.Load() <= int64(sameFor) {
		return nil
	}
	err := p.Check()
	if err == nil {
		p.checked.Store(now)
	}
	return err
}

// Check returns an error if the process has ended, or its memory cannot be read.
func (p *Process) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := copyProcess(unix.SYS_PROCESS_VM_READV, p.PID, p.id.at, p.got[:])
	if errors.Is(err, unix.EFAULT) || err == nil && p.got != p.id.proof {
		err = fmt.Errorf("process %d is another one by now: %w", p.PID, unix.ESRCH)
	}
	return err
}

// TryCopy finds out whether this process may read and write the memory of the other one.
func (p *Process) TryCopy() error {
	if err := p.Check(); err != nil {
		return err
	}
	return copyProcess(unix.SYS_PROCESS_VM_WRITEV, p.PID, p.id.at, p.got[:])
}
