package tcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

func init() {
	// Rank 0 announces a message and is stopped. Rank 1 receives the message nevertheless.
	programs["exposed"] = func(c backend.Comm) error {
		const n = 3<<20 + 5
		b := &backend.Bound{Timeout: time.Minute}
		want := ranktest.Fill(make([]byte, n), 7)
		if c.Rank() == 0 {
			if err := c.Send(b, []byte(strconv.Itoa(os.Getpid())), 1, 1, backend.Standard); err != nil {
				return err
			}
			return c.Send(b, want, 1, 2, backend.Standard)
		}
		text := make([]byte, 20)
		st, err := c.Recv(b, text, 0, 1)
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(string(text[:st.Bytes]))
		if err != nil {
			return err
		}
		if _, _, err := c.Probe(b, 0, 2, true); err != nil {
			return err
		}
		if err := stop(pid); err != nil {
			return err
		}
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

// joined returns ranks that share memory, all in this process.
func joined(t *testing.T, ranks int, cfg node.Config) []*node.Node {
	t.Helper()
	cfg.Name = rand.Text()
	for r := range ranks {
		cfg.Ranks = append(cfg.Ranks, r)
	}
	nodes, errs := make([]*node.Node, ranks), make([]error, ranks)
	var all sync.WaitGroup
	for r := range ranks {
		mine := cfg
		mine.Rank = r
		all.Go(func() { nodes[r], errs[r] = node.Join(t.Context(), mine) })
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nodes[r].Close)
	}
	return nodes
}

// nearPair returns the two ends of a link through memory, without sockets.
func nearPair(t *testing.T) (a, b *near) {
	t.Helper()
	n := joined(t, 2, node.Config{Data: 4096})
	n[0].Spare, n[1].Spare = false, false
	return &near{Link: n[0].Link(1), fd: -1}, &near{Link: n[1].Link(0), fd: -1}
}

// ended counts the transfers that have ended.
type ended struct{ sent, received int }

func (e *ended) Sent(*memlink.Transfer)            { e.sent++ }
func (e *ended) Received(*memlink.Transfer, error) { e.received++ }
func (e *ended) Withdrawn(*memlink.Transfer) error { return nil }

// What the peer does to a transfer after this rank's last look, and before it announces its sleep, rings no
// bell. The announcement finds it.
func TestArmFindsNewsOfTransfers(t *testing.T) {
	a, b := nearPair(t)
	var send, recv memlink.Transfer
	var ends ended
	body := ranktest.Fill(make([]byte, 40000), 1)
	got := make([]byte, len(body))
	armed := func(what string, n *near, want bool) {
		t.Helper()
		if got := n.Arm(false); got != want {
			t.Errorf("%s: news for the sleeper: %v, want %v", what, got, want)
		}
		n.Disarm()
	}
	addr, _ := a.Announce(&send, body)
	armed("sender of a message that was not accepted", a, false)
	if !b.Accept(&recv, send.Token(), addr, got) {
		t.Fatal("the message was not accepted")
	}
	armed("sender of a message of which it can copy a part", a, true)
	armed("receiver of a message of which it can copy a part", b, true)
	for chunks := 0; b.Receiving(); chunks++ {
		if n := ends.sent + ends.received; n > 0 || chunks > 100 {
			t.Fatalf("%d ends of the transfer after %d chunks", n, chunks)
		}
		if moved, err := b.Step(&ends); !moved || err != nil {
			t.Skipf("the kernel lets this process not copy its own memory: %v", err)
		}
	}
	armed("sender of a message that is copied", a, true)
	armed("receiver afterwards", b, false)
	if _, err := a.Step(&ends); err != nil || ends != (ended{1, 1}) || !bytes.Equal(got, body) {
		t.Errorf("the transfer: %v, %+v, the right bytes: %v", err, ends, bytes.Equal(got, body))
	}
	armed("sender afterwards", a, false)
}

// A sender sleeps while there is no room for its next piece, even if there is room for a frame without data.
func TestArmWaitsForRoomForData(t *testing.T) {
	a, b := nearPair(t)
	h, body, off := frame.Header{Kind: frame.Eager, Length: 8192}, make([]byte, 8192), 0
	for n := -1; n != off; {
		n = off
		off, _ = a.Write(&h, body, off)
	}
	if off == frame.HeaderSize+len(body) {
		t.Fatal("the ring has taken all")
	}
	if a.Arm(true) {
		t.Error("there is no room, and the sender would not sleep")
	}
	in := frame.Arrival{Receiver: dropped{}}
	if _, err := b.Read(&in); err != nil {
		t.Fatal(err)
	}
	if !a.Arm(true) {
		t.Error("there is room, and the sender would sleep")
	}
}

// dropped takes frames without their payloads.
type dropped struct{}

func (dropped) Begin(*frame.Arrival) error { return nil }
func (dropped) End(*frame.Arrival) error   { return nil }
