package netlab

import (
	"bytes"
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

// TestStreamSurvivesBadPath checks that a stream gets through whole whatever happens to its packets, and that it did
// happen.
func TestStreamSurvivesBadPath(t *testing.T) {
	if !Need(t) {
		return
	}
	in := make([]byte, 1<<20)
	for i := range in {
		in[i] = byte(i >> 8 * 7)
	}
	for _, c := range []struct {
		what string
		path Path
		did  func(Count) int
	}{
		{"nothing", Path{}, func(c Count) int { return c.Packets }},
		{"delay", Path{Delay: time.Millisecond}, func(c Count) int { return c.Packets }},
		{"jitter", Path{Delay: time.Millisecond, Jitter: 100 * time.Microsecond}, func(c Count) int { return c.Packets }},
		{"loss", Path{Loss: 0.02}, func(c Count) int { return c.Lost }},
		{"duplicates", Path{Duplicate: 0.1}, func(c Count) int { return c.Duplicated }},
		{"order", Path{Reorder: 0.1, Hold: 100 * time.Microsecond}, func(c Count) int { return c.Held }},
		{"flips", Path{Corrupt: 0.02}, func(c Count) int { return c.Corrupted }},
		{"a narrow wire", Path{Bandwidth: 1e8}, func(c Count) int { return c.Packets }},
	} {
		t.Run(c.what, func(t *testing.T) {
			n := make2(t)
			a, b := dial(t, n)
			n.Set(-1, -1, c.path)
			go func() {
				a.Write(in)
				a.Close()
			}()
			got, err := io.ReadAll(b)
			if err != nil || len(got) != len(in) {
				t.Fatalf("%d bytes came of %d, %v", len(got), len(in), err)
			}
			if !bytes.Equal(got, in) {
				t.Error("the data are not the same")
			}
			count := n.Count(0, 1)
			if c.did(count) == 0 || count.Bytes < len(in) {
				t.Errorf("%+v", count)
			}
		})
	}
}

// TestCutStopsPackets checks that nothing passes a cut, and what was kept does afterwards; one direction is
// cut as well as both.
func TestCutStopsPackets(t *testing.T) {
	if !Need(t) {
		return
	}
	n := make2(t)
	a, b := dial(t, n)
	n.Set(0, 1, Path{Cut: true})
	lost := n.Count(0, 1).Lost
	if _, err := a.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	for n.Count(0, 1).Lost < lost+2 { // it is sent again and again
		runtime.Gosched()
	}
	if _, err := b.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(a, got[:4]); err != nil || string(got[:4]) != "back" {
		t.Errorf("the other direction: %q, %v", got[:4], err)
	}
	n.Isolate(1, true)
	n.Isolate(1, false)
	if _, err := io.ReadFull(b, got); err != nil || string(got) != "hello" {
		t.Errorf("after the cut: %q, %v", got, err)
	}
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
