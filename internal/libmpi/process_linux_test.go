//go:build cgo

package libmpi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// pathVariable holds the library that a process of these tests loads.
const pathVariable = "COHORT_TEST_LIBMPI"

// alone runs body as a job of one process for each installed library.
func alone(t *testing.T, body func(path string) error, env ...string) {
	if path := os.Getenv(pathVariable); path != "" {
		if err := body(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.EachLibrary(t, func(t *testing.T, l mpifind.Library) {
		cmd := exec.Command(exe, "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
		cmd.Env = append(append(os.Environ(), pathVariable+"="+l.Path, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// joined loads and initializes a library.
func joined(path string) (*Library, error) {
	l, err := Open(path)
	if err != nil {
		return nil, err
	}
	runtime.LockOSThread()
	if level, code := Init(Multiple); code != 0 || level != Multiple {
		return nil, fmt.Errorf("level %v, %v", level, Error(code))
	}
	return l, nil
}

// handlers are the signal settings of a thread.
type handlers struct {
	actions [65]struct {
		handler, flags, restorer uintptr
		mask                     uint64
	}
	stack struct {
		at    uintptr
		flags int32
		size  uintptr
	}
}

func signals() (h handlers) {
	for s := 1; s < len(h.actions); s++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&h.actions[s])), 8, 0, 0)
	}
	syscall.RawSyscall(syscall.SYS_SIGALTSTACK, 0, uintptr(unsafe.Pointer(&h.stack)), 0)
	return h
}

// TestSignalHandlersStay checks that loading and initializing change neither the disposition of a
// signal nor the alternate stack, whatever the libraries are set to do with signals.
func TestSignalHandlersStay(t *testing.T) {
	alone(t, func(path string) error {
		runtime.LockOSThread()
		before := signals()
		if before.stack.at == 0 || before.stack.flags != 0 || before.actions[syscall.SIGSEGV].handler == 0 {
			return fmt.Errorf("this is no Go program: %+v", before.stack)
		}
		if _, err := Open(path); err != nil {
			return err
		}
		if h := signals(); h != before {
			return fmt.Errorf("loading has changed %+v to %+v", before, h)
		}
		if _, err := joined(path); err != nil {
			return err
		}
		if h := signals(); h != before {
			return fmt.Errorf("MPI_Init_thread has changed %+v to %+v", before, h)
		}
		return Error(Finalize())
	}, "UCX_HANDLE_ERRORS=bt,freeze", "UCX_DEBUG_SIGNO=SIGHUP")
}

// TestClassesAgreeWithLibrary compares the table of error classes with the library: a class is a code of
// the same class, and has a text.
func TestClassesAgreeWithLibrary(t *testing.T) {
	alone(t, func(path string) error {
		l, err := joined(path)
		if err != nil {
			return err
		}
		words := map[string]string{ // that the texts of both have
			"MPI_ERR_TRUNCATE": "truncate", "MPI_ERR_NO_MEM": "memory", "MPI_ERR_RANK": "rank", "MPI_ERR_ROOT": "root",
			"MPI_ERR_TAG": "tag", "MPI_ERR_COMM": "communicator", "MPI_ERR_TYPE": "datatype", "MPI_ERR_COUNT": "count",
			"MPI_ERR_WIN": "win", "MPI_ERR_GROUP": "group", "MPI_ERR_BUFFER": "buffer",
		}
		for _, c := range classes {
			class := c.numbers[l.ABI-1]
			if class == 0 || class > 60 { // which classes there are beyond depends on the version
				continue
			}
			var e *backend.MPIError
			if err := Error(Code(class)); !errors.As(err, &e) {
				return fmt.Errorf("class %d: %v", class, err)
			}
			if e.Class != class || e.Code != class || e.Text == "" || e.Sentinel != c.sentinel {
				return fmt.Errorf("%s: %+v", c.name, e)
			}
			if w := words[c.name]; !strings.Contains(strings.ToLower(e.Text), w) {
				return fmt.Errorf("the library's text for %s: %q", c.name, e.Text)
			}
		}
		return Error(Finalize())
	})
}

// TestWrongArgumentsReturnErrors checks that calls with wrong arguments, which cohort's own checks would reject,
// return errors on every kind of communicator.
func TestWrongArgumentsReturnErrors(t *testing.T) {
	alone(t, func(path string) error {
		l, err := joined(path)
		if err != nil {
			return err
		}
		var wrong []error
		must := func(what string, code Code, sentinel error) {
			var e *backend.MPIError
			err := Error(code)
			if !errors.As(err, &e) || !errors.Is(err, sentinel) || e.Text == "" {
				wrong = append(wrong, fmt.Errorf("%s: got %v, want %v", what, err, sentinel))
			}
		}
		comms := map[string]Comm{"world": World()}
		var code [3]Code
		comms["dup"], code[0] = World().Dup()
		comms["created"], code[1] = World().Create([]int32{0}, 3)
		comms["shared"], code[2] = World().Shared()
		if code != [3]Code{} {
			return fmt.Errorf("codes %v", code)
		}
		bytes, double := TypeOf(int(backend.Uint8)), TypeOf(int(backend.Float64))
		sum, band := OpOf(int(backend.OpSum)), OpOf(int(backend.OpBand))
		_, _, maxTag, _ := World().Facts()
		buf, out := make([]byte, 64), make([]byte, 64)
		for name, c := range comms {
			must(name+" send to rank 9", c.Send(buf, 9, 0, backend.Standard), backend.ErrRank)
			must(name+" send to rank -9", c.Send(buf, -9, 0, backend.Synchronous), backend.ErrRank)
			must(name+" send with tag -9", c.Send(buf, 0, -9, backend.Standard), backend.ErrTag)
			if maxTag < 1<<31-1 {
				must(name+" send with a tag too large", c.Send(buf, 0, maxTag+1, backend.Standard), backend.ErrTag)
			}
			var st Status
			var q Request
			must(name+" recv from rank 9", c.Recv(buf, 9, 0, &st), backend.ErrRank)
			must(name+" irecv from rank 9", c.Irecv(buf, 9, 0, &q, &st), backend.ErrRank)
			must(name+" isend to rank 9", c.Isend(buf, 9, 0, backend.Standard, &q, &st), backend.ErrRank)
			must(name+" probe of rank 9", c.Iprobe(9, 0, &st), backend.ErrRank)
			must(name+" bcast from rank 9", c.Collective(&Coll{Coll: int(backend.Bcast), Recv: buf, Count: 8, Type: bytes, Root: 9, Size: 1}), backend.ErrRoot)
			must(name+" reduce to rank 9", c.Collective(&Coll{Coll: int(backend.Reduce), Send: buf, Recv: out, Count: 8, Type: bytes, Op: sum, Root: 9, Size: 1}), backend.ErrRoot)
			must(name+" band of float64", c.Allreduce(buf, out, 1, double, band), backend.ErrOp)
			if code := c.Isend(buf, 0, 1, backend.Standard, &q, &st); code != 0 {
				return Error(code)
			}
			var got Status
			must(name+" truncated", c.Recv(out[:8], 0, 1, &got), backend.ErrTruncate)
			for reqs, sts := []Request{q}, make([]Status, 1); st.Flag == 0; {
				if n, code := Testsome(reqs, 1, make([]int32, 1), sts); n == 1 || code != 0 {
					break
				}
			}
		}
		if freed := comms["dup"]; l.ABI == MPICH { // Open MPI's handles point to what is no more
			if code := freed.Free(); code != 0 {
				return Error(code)
			}
			must("send on a communicator that is no more", freed.Send(buf, 0, 0, backend.Standard), backend.ErrComm)
		}
		if !Has("MPI_Allreduce_c") {
			if err := Error(World().Collective(&Coll{Coll: int(backend.Allreduce), Count: 1 << 31, Type: bytes, Op: sum, Size: 1})); !errors.Is(err, backend.ErrCount) {
				wrong = append(wrong, fmt.Errorf("a count above 2^31-1: %v", err))
			}
		}
		wrong = append(wrong, Error(Finalize()))
		return errors.Join(wrong...)
	})
}

// TestProcessOpensOneLibrary checks that opening a library again returns it, and that another one
// is an error.
func TestProcessOpensOneLibrary(t *testing.T) {
	alone(t, func(path string) error {
		if Present() {
			return errors.New("there is a library before any was loaded")
		}
		if _, err := Open(""); err == nil {
			return errors.New("there is a library to take before any was loaded")
		}
		l, err := Open(path)
		if err != nil {
			return err
		}
		if !Present() || l.Path != path || l.Name() == "" || l.Version == "" {
			return fmt.Errorf("loaded %+v", l)
		}
		for _, again := range []string{path, ""} {
			if m, err := Open(again); err != nil || m != l {
				return fmt.Errorf("loaded again %q: %v, %v", again, m, err)
			}
		}
		if m, err := Open("/no/such/library.so"); !errors.Is(err, ErrLoaded) || m != l {
			return fmt.Errorf("another one: %v, %v", m, err)
		}
		return nil
	})
}
