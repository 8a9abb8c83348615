package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// sockets returns the two ends of a connection between processes of this node.
func sockets(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// What ranks say to each other when they join, both ways.
func FuzzJoin(f *testing.F) {
	hello := func(rank, size, pid int) []byte {
		b := make([]byte, helloSize)
		copy(b, greeting)
		binary.LittleEndian.PutUint32(b[16:], uint32(rank))
		binary.LittleEndian.PutUint32(b[20:], uint32(size))
		binary.LittleEndian.PutUint64(b[24:], uint64(pid))
		return b
	}
	for _, b := range [][]byte{
		hello(1, 4, os.Getpid()), hello(0, 4, os.Getpid()), hello(4, 4, os.Getpid()), hello(1, 5, os.Getpid()), hello(min(1<<32-1, math.MaxInt), 4, 1),
		hello(1, 4, 0), hello(1, 4, 1)[:20], bytes.Replace(hello(1, 4, os.Getpid()), []byte(greeting+"\x00"), []byte(greeting+"0"), 1), append([]byte("\x00there is one already"), make([]byte, replySize)...), append([]byte{yes}, make([]byte, replySize)...), {}, {1},
		bytes.Repeat([]byte{255}, replySize),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		send := func() *net.UnixConn {
			from, to := sockets(t)
			if len(b) > 1<<12 {
				b = b[:1<<12] // fits the socket
			}
			if _, err := from.Write(b); err != nil {
				t.Fatal(err)
			}
			from.Close()
			return to
		}
		c := send()
		rank, pid, err := readHello(context.Background(), c, &Config{Ranks: upTo(4)})
		c.Close()
		if err == nil && !bytes.Equal(b[:helloSize], hello(rank, 4, os.Getpid())) {
			t.Fatalf("%q is taken for the greeting of rank %d, process %d", b, rank, pid)
		}
		if err == nil && (rank < 1 || rank > 3) {
			t.Fatalf("there is no rank %d to greet", rank)
		}
		c = send()
		fd, err := hear(c, 0, " refused")
		c.Close()
		if fd != -1 { // none was sent
			t.Fatalf("an answer %q gives descriptor %d", b, fd)
		}
		if err == nil {
			if len(b) < replySize || b[0] != yes {
				t.Fatalf("an answer %q is taken for yes", b)
			}
			return
		}
		if !strings.Contains(err.Error(), "rank 0") || len(err.Error()) > 2*replySize {
			t.Fatalf("an answer %q gives %q", b, err)
		}
	})
}
