//go:build linux || darwin

package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// The tests of this package run programs of several processes: the test binary starts itself again,
// once for each rank, with the name of a program below. It makes their connections and hands them
// over as descriptors.
var programs = map[string]func(c backend.Comm) error{}

func TestMain(m *testing.M) {
	name := os.Getenv("TCP_TEST_PROGRAM")
	if name == "" {
		os.Exit(m.Run())
	}
	rank, _ := strconv.Atoi(os.Getenv("TCP_TEST_RANK"))
	size, _ := strconv.Atoi(os.Getenv("TCP_TEST_SIZE"))
	c, err := inherited(rank, size)
	if err == nil {
		err = must.Return(programs[name])(c)
		c.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: %v\n", rank, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inherited makes the engine of a rank whose connections are descriptors 3 and up, by rank.
func inherited(rank, size int) (backend.Comm, error) {
	name := os.Getenv("TCP_TEST_NODE")
	data, _ := strconv.Atoi(os.Getenv("TCP_TEST_RING"))
	wake := func(rank int) string { return fmt.Sprintf("@cohort-test/%s/%d", name, rank) }
	own := ""
	if data > 0 {
		own = wake(rank)
	}
	sleep, err := newSleeper(own)
	if err != nil {
		return nil, err
	}
	spare := os.Getenv("TCP_TEST_CROWDED") == ""
	cfg := engine.Config{Rank: rank, Peers: make([]engine.Peer, size), Sleeper: sleep, Spare: spare,
		Heartbeat: heartbeatOf(os.Getenv("TCP_TEST_HEARTBEAT"))}
	meeting := node.Config{Name: name, Rank: rank, Data: data, Bell: func(r int) { sleep.wake.send(r) }}
	for r := range size {
		cfg.Peers[r] = engine.Peer{PID: r, Host: "here", Node: r}
		meeting.Ranks = append(meeting.Ranks, r)
	}
	e := engine.New(cfg)
	if data > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for r := range size {
			sleep.wake.to = append(sleep.wake.to, unix.SockaddrUnix{Name: wake(r)})
		}
		if sleep.node, err = node.Join(ctx, meeting); err != nil {
			return nil, err
		}
		sleep.node.Spare = spare
		sleep.node.Copies = sleep.node.Copies && os.Getenv("TCP_TEST_EXPOSE") != ""
	}
	for r, at := 0, 3; r < size; r++ {
		if r == rank {
			continue
		}
		f := os.NewFile(uintptr(at), "connection")
		c, err := net.FileConn(f)
		f.Close()
		at++
		if err != nil {
			return nil, err
		}
		sock, err := takeSocket(c)
		if err != nil {
			return nil, err
		}
		if data > 0 {
			e.Connect(r, &near{Link: sleep.node.Link(r), sock: sock})
			continue
		}
		l := &link{sums: os.Getenv("TCP_TEST_SUMS") != ""}
		l.use(sock)
		e.Connect(r, l)
	}
	return e.Start()
}

// over returns the communicator of a rank whose connections to the others are given, by rank.
func over(rank int, sockets []net.Conn, heartbeat time.Duration, sums bool) (backend.Comm, error) {
	sleep, err := newSleeper("")
	if err != nil {
		return nil, err
	}
	e := engine.New(engine.Config{Rank: rank, Peers: make([]engine.Peer, len(sockets)), Sleeper: sleep, Heartbeat: heartbeat})
	for r, c := range sockets {
		if r == rank {
			continue
		}
		sock, err := takeSocket(c)
		if err != nil {
			return nil, err
		}
		l := &link{sums: sums}
		l.use(sock)
		e.Connect(r, l)
	}
	return e.Start()
}

func heartbeatOf(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}

// pair returns the two ends of a connection over the loopback interface.
func pair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// run runs a program on n ranks and returns how each ended.
func run(t testing.TB, name string, n int, env ...string) []error {
	t.Helper()
	files := make([][]*os.File, n) // by rank, then by peer
	for r := range n {
		files[r] = make([]*os.File, n)
	}
	for r := range n {
		for s := range r {
			a, b := pair(t)
			for _, end := range []struct {
				c        *net.TCPConn
				rank, to int
			}{{a, r, s}, {b, s, r}} {
				f, err := end.c.File()
				if err != nil {
					t.Fatal(err)
				}
				end.c.Close()
				files[end.rank][end.to] = f
			}
		}
	}
	cmds, errs, meeting := make([]*exec.Cmd, n), make([]error, n), rand.Text()
	for r := range cmds {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TCP_TEST_PROGRAM="+name, fmt.Sprintf("TCP_TEST_RANK=%d", r), fmt.Sprintf("TCP_TEST_SIZE=%d", n), "TCP_TEST_NODE="+meeting)
		c.Env = append(c.Env, env...)
		c.Stderr, c.Stdout = os.Stderr, os.Stdout
		for s, f := range files[r] {
			if s != r {
				c.ExtraFiles = append(c.ExtraFiles, f)
			}
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[r] = c
	}
	for _, row := range files {
		for _, f := range row {
			if f != nil {
				f.Close()
			}
		}
	}
	for r, c := range cmds {
		if err := c.Wait(); err != nil {
			errs[r] = fmt.Errorf("rank %d of %s: %w", r, strings.TrimSpace(name), err)
		}
	}
	return errs
}

// launch is run, and every rank must end well.
func launch(t testing.TB, name string, n int, env ...string) {
	t.Helper()
	for _, err := range run(t, name, n, env...) {
		if err != nil {
			t.Error(err)
		}
	}
}
