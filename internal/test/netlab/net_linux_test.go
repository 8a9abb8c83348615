package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// dial returns the two ends of a connection from host 0 to host 1.
func dial(t *testing.T, n *Net) (a, b net.Conn) {
	t.Helper()
	var l net.Listener
	err := n.Do(1, func() (err error) {
		l, err = net.Listen("tcp", n.Addr(1).String()+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = n.Do(0, func() (err error) {
		// A deadline would have the dialer start a goroutine, on another thread.
		a, err = (&net.Dialer{FallbackDelay: -1}).DialContext(context.Background(), "tcp", l.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

func make2(t *testing.T) *Net {
	t.Helper()
	n, err := New(Config{Hosts: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestTraceCountsStepsAndBytes checks the steps and bytes of a conversation whose messages wait for each other.
func TestTraceCountsStepsAndBytes(t *testing.T) {
	if !Need(t) {
		return
	}
	n := make2(t)
	a, b := dial(t, n)
	marks := make([]func(string) error, 2)
	for i := range marks {
		err := n.Do(i, func() error {
			mark, end, err := Marker()
			if err == nil {
				marks[i] = mark
				t.Cleanup(func() { end() })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n.Set(-1, -1, Path{Delay: time.Millisecond})
	n.Record()
	reported := make(chan struct{})
	n.On("over", func() { close(reported) })
	buf := make([]byte, 100)
	for times := range 4 {
		for i := range marks {
			if err := marks[i](fmt.Sprint(times)); err != nil {
				t.Fatal(err)
			}
		}
		for range times {
			for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
				if _, err := way[0].Write(buf); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(way[1], buf); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := marks[0]("over"); err != nil {
		t.Fatal(err)
	}
	<-reported
	ops := n.Trace().Operations()
	for times := 1; times < 4; times++ {
		op := ops[fmt.Sprint(times)]
		if op == nil {
			t.Fatalf("there is no operation %d in the trace: %v", times, ops)
		}
		if op.Steps != 2*times || op.Bytes[[2]int{0, 1}] != 100*times || op.Bytes[[2]int{1, 0}] != 100*times {
			t.Errorf("%d times there and back: %+v", times, op)
		}
	}
}

// home is the namespace of the main thread before any network was made.
var home, _ = os.Readlink("/proc/self/ns/net")

// TestCloseLeavesNothing checks that the namespace of a network is gone after Close, with what was started
// in it, and that threads and descriptors are not kept.
func TestCloseLeavesNothing(t *testing.T) {
	if !Need(t) {
		return
	}
	before, routines := leak.Files(), runtime.NumGoroutine()
	n := make2(t)
	cmd := exec.Command("sleep", "1000")
	if err := n.Start(1, cmd); err != nil {
		t.Fatal(err)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil || here != home {
		t.Fatalf("the main thread is in %q, %v, and was in %q: it does not end with its goroutine, nor what it started", here, err, home)
	}
	there, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil || there == here || there == "" {
		t.Errorf("the process is in %q, %v, and this one in %q", there, err, here)
	}
	n.Close()
	n.Close()
	var end *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &end) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process ended with %v", err)
	}
	if err := n.Do(0, func() error { return nil }); err == nil {
		t.Error("Do after Close")
	}
	if err := errors.Join(leak.Above("descriptors", leak.Files, before), leak.Above("goroutines", runtime.NumGoroutine, routines)); err != nil {
		t.Error(err)
	}
}

func TestNewRejectsBadNetworks(t *testing.T) {
	for _, hosts := range []int{0, -1, maxHosts + 1} {
		if n, err := New(Config{Hosts: hosts}); err == nil {
			n.Close()
			t.Errorf("%d hosts: no error", hosts)
		}
	}
}
