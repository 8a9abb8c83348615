package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// Rank 0 announces a message and is stopped. Rank 1 receives the message nevertheless.
	programs["exposed"] = func(c backend.Comm) error {
		const n = 3<<20 + 5
		b := &backend.Bound{Timeout: time.Minute}
		want := ranktest.Fill(make([]byte, n), 7)
		if c.Rank() == 0 {
			must.OK(c.Send(b, []byte(strconv.Itoa(os.Getpid())), 1, 1, backend.Standard))
			return c.Send(b, want, 1, 2, backend.Standard)
		}
		text := make([]byte, 20)
		st := must.Get(c.Recv(b, text, 0, 1))
		pid, err := strconv.Atoi(string(text[:st.Bytes]))
		if err != nil {
			return err
		}
		must.Get2(c.Probe(b, 0, 2, true))
		must.OK(stop(pid))
		defer syscall.Kill(pid, syscall.SIGCONT)
		buf := make([]byte, n)
		if st, err = c.Recv(b, buf, 0, 2); err != nil {
			return err
		}
		if st.Bytes != n || !bytes.Equal(buf, want) {
			return errors.New("the message is another one, or damaged")
		}
		return nil
	}
}

// stop stops a process, and returns when all its threads are.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		stopped := 0
		for _, at := range tasks {
			if b, err := os.ReadFile(at); err == nil && bytes.Contains(b, []byte(") T ")) {
				stopped++
			}
		}
		if stopped > 0 && stopped == len(tasks) {
			return nil
		}
	}
	return fmt.Errorf("process %d has not stopped", pid)
}

// The heartbeat is off: the test decides how long the sender is stopped.
func TestLongMessageIsReadFromStoppedPeer(t *testing.T) {
	if b, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); len(b) > 0 && b[0] != '0' && os.Geteuid() != 0 {
		t.Skipf("the kernel lets processes read the memory of their descendants alone: ptrace_scope is %s", bytes.TrimSpace(b))
	}
	launch(t, "exposed", 2, "TCP_TEST_RING=4096", "TCP_TEST_EXPOSE=1", "TCP_TEST_CROWDED=1", "TCP_TEST_HEARTBEAT=-1s")
}
