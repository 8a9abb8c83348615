package node

import (
	"bytes"
	"context"
	"fmt"
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

// FuzzJoin decodes the messages that ranks exchange when they join, in both directions.
func FuzzJoin(f *testing.F) {
	from := func(rank, size, pid int) []byte {
		b := make([]byte, messageSize)
		b[0] = yes
		copy(b[1:], fmt.Sprintf(hello, rank, size, pid))
		return b
	}
	for _, b := range [][]byte{
		from(1, 4, os.Getpid()), from(0, 4, os.Getpid()), from(4, 4, os.Getpid()), from(1, 5, os.Getpid()), from(min(1<<32-1, math.MaxInt), 4, 1),
		from(1, 4, 0), from(1, 4, 1)[:20], bytes.Replace(from(1, 4, os.Getpid()), []byte("rank 1"), []byte("rank +1"), 1), bytes.Replace(from(1, 4, os.Getpid()), []byte("\x00\x00"), []byte("\x000"), 1), append([]byte("\x00there is one already"), make([]byte, messageSize)...), append([]byte{yes}, make([]byte, messageSize)...), {}, {1},
		bytes.Repeat([]byte{255}, messageSize),
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
		rank, pid, ours, err := readHello(context.Background(), c, &Config{Ranks: upTo(4)})
		c.Close()
		if err == nil && !bytes.Equal(b[:messageSize], from(rank, 4, os.Getpid())) {
			t.Fatalf("%q is taken for the greeting of rank %d, process %d", b, rank, pid)
		}
		if err == nil && (!ours || rank < 1 || rank > 3) {
			t.Fatalf("there is no rank %d to greet", rank)
		}
		c = send()
		fd, err := hear(c, 0, " refused")
		c.Close()
		if fd != -1 { // none was sent
			t.Fatalf("an answer %q gives descriptor %d", b, fd)
		}
		if err == nil {
			if len(b) < messageSize || b[0] != yes {
				t.Fatalf("an answer %q is taken for yes", b)
			}
			return
		}
		if !strings.Contains(err.Error(), "rank 0") || len(err.Error()) > 2*messageSize {
			t.Fatalf("an answer %q gives %q", b, err)
		}
	})
}
