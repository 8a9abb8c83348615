//go:build linux && (amd64 || arm64) && !cohort_nocuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/test/acceltest"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/need"
	"github.com/ebitengine/purego"
)

// A standin is a library compiled from testdata/standin.c. It checks that functions are called as
// cuda.h declares them, with a context, and that everything is freed. It does not check what a
// device does.
type standin struct {
	*driver
	t      testing.TB
	handle uintptr
}

// compiled is the library, compiled once.
var compiled = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "standin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	lib := filepath.Join(dir, "lib.so")
	if out, err := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", lib, "testdata/standin.c", "-lpthread").CombinedOutput(); err != nil {
		return nil, errors.Join(err, errors.New(string(out)))
	}
	return os.ReadFile(lib)
})

// newStandin loads its own copy of the library.
func newStandin(t testing.TB) *standin {
	t.Helper()
	need.Program(t, "gcc")
	lib := must.Get(compiled())
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(path, lib, 0o755); err != nil {
		t.Fatal(err)
	}
	handle := must.Get(purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL))
	return &standin{&driver{names: []string{path}}, t, handle}
}

// number returns one of the library's variables.
func (s *standin) number(name string) *int32 {
	s.t.Helper()
	at, err := purego.Dlsym(s.handle, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return *(**int32)(unsafe.Pointer(&at))
}

func (s *standin) left() int {
	s.t.Helper()
	at, err := purego.Dlsym(s.handle, "standin_left")
	if err != nil {
		s.t.Fatal(err)
	}
	n, _, _ := purego.SyscallN(at)
	return int(int32(n))
}

func want(t *testing.T, err, sentinel error, texts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("error %v, want %v", err, sentinel)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not say %q", err, s)
		}
	}
}

func TestSuiteWithStandin(t *testing.T) {
	s := newStandin(t)
	acceltest.Test(t, s)
	if n := s.left(); n != 0 {
		t.Errorf("%d objects and pieces of memory are left", n)
	}
	if n := *s.number("standin_open"); n != 0 {
		t.Errorf("threads keep %d contexts", n)
	}
	if n := *s.number("standin_inits"); n != 1 {
		t.Errorf("cuInit was called %d times", n)
	}
}

// TestDriverThreadsBlockSignals checks that the driver's threads block the process's signals but
// not those of their own faults, and that the calling thread blocks none afterwards. There may be
// threads of a real driver, too.
func TestDriverThreadsBlockSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := newStandin(t)
	*s.number("standin_threaded") = 1
	dev := must.Get(s.Device(0))
	stream := must.Get(dev.Stream())
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	first := s.number("standin_thread")
	of := map[int32]string{*first: "of cuInit", *(*int32)(unsafe.Add(unsafe.Pointer(first), 4)): "of the context"}
	if len(of) != 2 {
		t.Fatalf("the stand-in has started %d threads, want 2", len(of))
	}
	files := must.Get(filepath.Glob("/proc/self/task/*/status"))
	seen, own := 0, false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var tid int32
		var mask uint64
		for line := range strings.Lines(string(text)) {
			fmt.Sscanf(line, "Pid: %d", &tid)
			fmt.Sscanf(line, "SigBlk: %x", &mask)
		}
		blocked := func(s syscall.Signal) bool { return mask>>(s-1)&1 != 0 }
		what, driver := of[tid]
		if driver {
			seen++
		}
		for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGURG, syscall.SIGPROF} {
			if driver && !blocked(s) {
				t.Errorf("the thread %s takes %v", what, s)
			}
		}
		if driver && (blocked(syscall.SIGSEGV) || blocked(syscall.SIGBUS)) {
			t.Errorf("the thread %s has faults blocked: %#x", what, mask)
		}
		if int(tid) == syscall.Gettid() {
			own = true
			if blocked(syscall.SIGUSR1) || blocked(syscall.SIGTERM) {
				t.Errorf("the thread that calls the driver is left with signals blocked: %#x", mask)
			}
		}
	}
	if !own {
		t.Errorf("thread %d, which is this one, is not in /proc/self/task", syscall.Gettid())
	}
	if seen != 2 {
		t.Errorf("%d of the driver's threads are there, want 2", seen)
	}
}

// TestUnavailableDriverIsNotSupported checks the errors without a device or driver, and that nothing is
// initialized too early.
func TestUnavailableDriverIsNotSupported(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.so.1")
	if err := os.WriteFile(garbage, []byte("no library"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		prepare func(s *standin)
		says    []string
	}{
		{"missing", func(s *standin) { s.names = []string{"libcuda-of-nobody.so.1", dir + "/none/libcuda.so.1"} }, []string{"libcuda-of-nobody.so.1"}},
		{"nowhere", func(s *standin) { s.names = []string{dir + "/none/libcuda.so.1"} }, []string{"/none/libcuda.so.1"}},
		{"garbage", func(s *standin) { s.names = []string{dir + "/none/libcuda.so.1", garbage} }, []string{"garbage.so.1"}},
		{"another library", func(s *standin) { s.names = []string{"libc.so.6"} }, []string{"libc.so.6 has no function cu"}},
		{"cuInit fails", func(s *standin) { *s.number("standin_init") = 100 }, []string{"cuInit", "CUDA_ERROR_NO_DEVICE (100)", "no CUDA-capable device", `CUDA_VISIBLE_DEVICES=""`}},
		{"cuInit fails oddly", func(s *standin) { *s.number("standin_init") = 12345 }, []string{"cuInit", "error 12345"}},
		{"too old", func(s *standin) { *s.number("standin_version") = 10020 }, []string{"CUDA 10.2", "11.0", "newer driver"}},
		{"no device", func(s *standin) { *s.number("standin_count") = 0 }, []string{"no device", `CUDA_VISIBLE_DEVICES=""`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", "")
			s := newStandin(t)
			c.prepare(s)
			if s.Name() != "cuda" || *s.number("standin_inits") != 0 {
				t.Error("the driver was initialized before devices were used")
			}
			for range 2 {
				_, err := s.Devices()
				want(t, err, backend.ErrNotSupported, append(c.says, "cuda: ")...)
				_, err = s.Device(0)
				want(t, err, backend.ErrNotSupported, c.says...)
			}
		})
	}
}

func firstDevice(t testing.TB, d accel.Driver) accel.Device {
	t.Helper()
	dev := must.Get(d.Device(0))
	return dev
}

// TestDriverErrorsAreConverted checks how the driver's errors are converted.
func TestDriverErrorsAreConverted(t *testing.T) {
	s := newStandin(t)
	dev := firstDevice(t, s)
	_, err := dev.Alloc(1 << 40)
	want(t, err, backend.ErrAlloc, "device 0: cuMemAlloc of 1099511627776 bytes", "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", "67108864 of 67108864 free")
	want(t, dev.Adopt(0x1234).Sync(), backend.ErrInternal, "cuStreamSynchronize", "error 400")

	a := must.Get(dev.Alloc(100))
	broken := s.number("standin_broken")
	for _, c := range []struct {
		code     int32
		sentinel error
	}{{2, backend.ErrAlloc}, {3, backend.ErrNotSupported}, {46, backend.ErrNotSupported}, {700, backend.ErrInternal}, {719, backend.ErrInternal}} {
		*broken = c.code
		_, err := dev.Alloc(1)
		want(t, err, c.sentinel)
		_, err = dev.Pin(1)
		want(t, err, c.sentinel)
		_, err = dev.Stream()
		want(t, err, c.sentinel)
		_, err = dev.Event()
		want(t, err, c.sentinel)
		want(t, dev.Adopt(0).ToDevice(a, make([]byte, 10)), c.sentinel, " of 10 bytes")
		want(t, dev.Adopt(0).Sync(), c.sentinel)
	}
	if n := s.left(); n != 1 {
		t.Errorf("%d objects and pieces of memory are there after calls that failed, want the one from before", n)
	}
	*broken = 700
	want(t, dev.Free(a), backend.ErrInternal, "cuMemFree", "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access")
	want(t, dev.Free(a), backend.ErrBuffer) // freed, although the driver returned an error
	if n := *s.number("standin_open"); n != 0 {
		t.Errorf("threads keep %d contexts", n)
	}
	if n := s.left(); n != 1 { // which the driver has not taken back
		t.Errorf("%d objects and pieces of memory are left, want one", n)
	}
}

// TestAddressesOfOtherLibraries checks addresses of other libraries' device memory, and invalid
// ones.
func TestAddressesOfOtherLibraries(t *testing.T) {
	s := newStandin(t)
	dev := firstDevice(t, s)
	f := must.Get(dev.(*device).enter())
	alloc := func(symbol string) (a uint64) {
		at := must.Get(purego.Dlsym(s.handle, symbol))
		if r, _, _ := purego.SyscallN(at, uintptr(unsafe.Pointer(&a)), 1000, 1); r != 0 {
			t.Fatalf("%s: %d", symbol, r)
		}
		return a
	}
	foreign, managed := accel.Address(alloc("cuMemAlloc_v2")), accel.Address(alloc("cuMemAllocManaged"))
	dev.(*device).leave(f)
	if room, err := dev.Room(foreign + 100); room != 900 || err != nil {
		t.Errorf("room %d, %v, want 900", room, err)
	}
	st := dev.Adopt(0)
	if err := st.ToDevice(foreign+1, []byte("hello")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 5)
	if err := st.ToHost(got, foreign+1); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	want(t, st.ToHost(make([]byte, 10), foreign+995), backend.ErrBuffer, "10 bytes", "ends after 5")
	want(t, dev.Free(foreign), backend.ErrBuffer, "not returned by Alloc", "allocation of 1000 bytes of device 0")
	_, err := dev.Room(managed)
	want(t, err, backend.ErrBuffer, "managed memory (cuMemAllocManaged)")
	pin := must.Get(dev.Pin(10))
	_, err = dev.Room(accel.Address(uintptr(unsafe.Pointer(&pin[0]))))
	want(t, err, backend.ErrBuffer, "pinned memory of the host")
	_, err = dev.Room(accel.Address(uintptr(unsafe.Pointer(&got[0]))))
	want(t, err, backend.ErrBuffer, "memory of the host, or none")
	other := must.Get(s.Device(1))
	_, err = other.Room(foreign)
	want(t, err, backend.ErrBuffer, "device 1: ", "allocation of 1000 bytes of device 0")
	if err := dev.Unpin(pin); err != nil {
		t.Error(err)
	}
}

// TestThreadsKeepTheirContext checks that a thread keeps its context, of whatever device, across
// calls, and that a context that is current already is not pushed again.
func TestThreadsKeepTheirContext(t *testing.T) {
	s := newStandin(t)
	dev := firstDevice(t, s).(*device)
	other := must.Get(s.Device(1))
	if _, _, err := other.Memory(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := must.Get(dev.enter()) // stands for another library that leaves its context current
	defer dev.leave(f)
	pushes := *s.number("standin_pushes")
	if _, _, err := dev.Memory(); err != nil || *s.number("standin_pushes") != pushes {
		t.Errorf("the context that is current was pushed once more, %v", err)
	}
	if _, _, err := other.Memory(); err != nil || *s.number("standin_pushes") != pushes+1 {
		t.Errorf("the other device's context was not pushed, %v", err)
	}
	var now uintptr
	if r := s.lib.call(cuCtxGetCurrent, uintptr(unsafe.Pointer(&now))); r != success || now != dev.context.Load() {
		t.Errorf("the thread's context is %#x, and was %#x", now, dev.context.Load())
	}
}

// TestCallsDoNotAllocate checks that copies and the calls around them do not allocate.
func TestCallsDoNotAllocate(t *testing.T) {
	s := newStandin(t)
	dev := firstDevice(t, s)
	a := must.Get(dev.Alloc(1000))
	pin := must.Get(dev.Pin(1000))
	e := must.Get(dev.Event())
	st, heap := dev.Adopt(0), make([]byte, 1000)
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"ToHost", func() error { return st.ToHost(pin, a) }},
		{"ToDevice", func() error { return st.ToDevice(a, pin) }},
		{"ToHost of a slice", func() error { return st.ToHost(heap, a) }},
		{"Within", func() error { return st.Within(a, a+500, 100) }},
		{"Record", func() error { return st.Record(e) }},
		{"Follow", func() error { return st.Follow(e) }},
		{"Sync", func() error { return st.Sync() }},
		{"Event.Sync", func() error { return e.Sync() }},
		{"Event.Done", func() error { _, err := e.Done(); return err }},
		{"Room", func() error { _, err := dev.Room(a); return err }},
	} {
		var failed error
		if n := testing.AllocsPerRun(200, func() {
			if err := c.call(); err != nil {
				failed = err
			}
		}); n != 0 && !raceEnabled || failed != nil {
			t.Errorf("%s: %v allocations, %v", c.name, n, failed)
		}
	}
}
