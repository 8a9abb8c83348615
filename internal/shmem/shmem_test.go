//go:build linux

package shmem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	switch os.Getenv("SHMEM_TEST") {
	case "create":
		s, err := Create("test", 64<<20)
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		mem := Slice[byte](s, 0, 64<<20)
		for i := 0; i < len(mem); i += 4096 {
			mem[i] = 1
		}
		os.Exit(0)
	case "denied":
		if err := watchDenied(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	case "noexec":
		if err := createNoExec(); err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		os.Exit(0)
	case "end":
		os.Exit(0)
	case "sleep":
		time.Sleep(time.Minute) // on purpose: it runs until it is killed
	}
	os.Exit(m.Run())
}

func TestSegmentIsSealedAndShared(t *testing.T) {
	s, err := Create("test", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(s.FD(), 100); err == nil {
		t.Error("a sealed segment could be made shorter")
	}
	fd, err := unix.Dup(s.FD())
	if err != nil {
		t.Fatal(err)
	}
	o, err := OpenSparse(fd, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	At[atomic.Uint64](s, 4088).Store(77)
	if got := At[atomic.Uint64](o, 4088).Load(); got != 77 {
		t.Errorf("the other mapping has %d, want 77", got)
	}
	for _, f := range []func(){
		func() { At[uint64](s, 1<<16-4) },
		func() { At[atomic.Uint64](s, 4) },
		func() { At[uint64](s, -8) },
		func() { Slice[uint64](s, 8, 1<<13) },
		func() { Slice[byte](s, 0, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("access outside the segment was allowed")
				}
			}()
			f()
		}()
	}
	for _, c := range []*Segment{s, o} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A peer's descriptor that is not sealed, or of another size, is refused.
func TestOpenRefusesUnsealedSegment(t *testing.T) {
	fd, err := unix.MemfdCreate("loose", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unix.Ftruncate(fd, 4096)
	if _, err := OpenSparse(fd, 4096); err == nil || !strings.Contains(err.Error(), "not a sealed segment") {
		t.Errorf("unsealed: %v", err)
	}
	s, err := Create("test", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, _ = unix.Dup(s.FD())
	if _, err := OpenSparse(fd, 4096); err == nil || !strings.Contains(err.Error(), "8192 bytes, want 4096") {
		t.Errorf("other size: %v", err)
	}
}

// Under a memory limit that is too small, Create returns an error and no process is killed.
func TestCreateFailsUnderMemoryLimit(t *testing.T) {
	const limit = 40 << 20
	var dir, file string
	for _, c := range [][2]string{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		d := filepath.Join(c[0], fmt.Sprintf("cohort-test-%d", os.Getpid()))
		if os.Mkdir(d, 0o755) != nil {
			continue
		}
		defer os.Remove(d)
		if os.WriteFile(filepath.Join(d, c[1]), []byte(fmt.Sprint(limit)), 0o644) == nil {
			dir, file = d, filepath.Join(d, c[1])
			break
		}
	}
	if dir == "" {
		t.Skip("no memory cgroup can be made here (that needs root and a writable /sys/fs/cgroup): the limit is not tested")
	}
	cmd := exec.Command("/bin/sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=create")
	out, err := cmd.CombinedOutput()
	var x *exec.ExitError
	if !errors.As(err, &x) || x.ExitCode() != 3 || !strings.Contains(string(out), file) {
		t.Errorf("creating 64 MiB under a limit of 40 MiB: %v\n%s", err, out)
	}
}

// rank returns a process of which this one has the proof.
func rank(pid int) *Process {
	id := Self()
	id.pid = int64(pid)
	return id.Process()
}

func TestKernelCopiesBetweenProcesses(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=sleep")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int, 1)
	w, err := NewWatch(map[int]int{7: cmd.Process.Pid}, func(id int) { ended <- id })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	self := rank(os.Getpid())
	src := bytes.Repeat([]byte("cohort"), 100000)
	dst := make([]byte, len(src))
	if err := self.Read(Addr(src), dst); err != nil || !bytes.Equal(src, dst) {
		t.Errorf("reading %d bytes: %v", len(src), err)
	}
	clear(dst)
	if err := self.Write(Addr(dst), src); err != nil || !bytes.Equal(src, dst) {
		t.Errorf("writing %d bytes: %v", len(src), err)
	}
	if err := self.Read(8, dst[:8]); err == nil || Gone(err) {
		t.Errorf("reading a bad address: %v", err)
	}
	cmd.Process.Signal(syscall.SIGKILL)
	if id := <-ended; id != 7 {
		t.Errorf("process %d ended, want 7", id)
	}
	if err := rank(cmd.Process.Pid).Read(Addr(src), dst); !Gone(err) {
		t.Errorf("reading a process that has ended: %v", err)
	}
	cmd.Wait()
}

// The number of a rank's process belongs to another process by now, which has other memory, or the same with another
// proof in it. Nothing that is read there counts, and nothing is written there.
func TestAnotherProcessHasTheNumber(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHMEM_TEST=sleep")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	other := Self()
	other.proof[15]++
	src, dst := []byte("cohort"), make([]byte, 6)
	for what, p := range map[string]*Process{"other memory": rank(cmd.Process.Pid), "another proof": other.Process(),
		"no such process": rank(0x40000000), "a negative number": rank(-1), "nothing": rank(0)} {
		if err := p.Read(Addr(src), dst); !Gone(err) {
			t.Errorf("%s: reading: %v", what, err)
		}
		if err := p.Write(Addr(dst), make([]byte, 6)); !Gone(err) {
			t.Errorf("%s: writing: %v", what, err)
		}
		if err := p.TryCopy(); err == nil {
			t.Errorf("%s: copies are possible", what)
		}
	}
	if string(src) != "cohort" {
		t.Errorf("%q was written to", src)
	}
}

func TestMoveCopiesEveryLength(t *testing.T) {
	src := make([]byte, 5000)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	for _, n := range []int{0, 1, 7, 64, 4095, 4096, 4999} {
		for off := range 3 {
			dst := bytes.Repeat([]byte{0xa5}, n+64)
			if off+n > len(src) {
				continue
			}
			if got := Move(dst[32:32+n], src[off:]); got != min(n, len(src)-off) {
				t.Errorf("moved %d bytes from offset %d, want %d", got, off, n)
			}
			if !bytes.Equal(dst[32:32+n], src[off:off+n]) || !bytes.Equal(dst[:32], dst[32+n:]) || dst[0] != 0xa5 {
				t.Errorf("moving %d bytes from offset %d: wrong", n, off)
			}
		}
	}
}

func TestFutexSleepsUntilWokenOrLate(t *testing.T) {
	s, err := Create("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	word := At[atomic.Uint32](s, 64)
	FutexWait(word, 1, 0) // the value is another one: no sleep
	begin := time.Now()
	FutexWait(word, 0, 20*time.Millisecond)
	if d := time.Since(begin); d < 10*time.Millisecond {
		t.Errorf("a sleep of 20 ms ended after %v", d)
	}
	done := make(chan struct{})
	go func() {
		for word.Load() == 0 {
			FutexWait(word, 0, 0)
		}
		close(done)
	}()
	word.Store(1)
	FutexWake(word, 1)
	<-done
}
