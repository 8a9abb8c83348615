package tcp

import (
	"crypto/rand"
	"testing"

	"golang.org/x/sys/unix"
)

// Ranks that read nothing, because they are stopped, do not keep this rank from waking another one: the datagrams that
// wait for them use up the room of this rank's socket.
func TestStoppedRanksKeepNoOtherAsleep(t *testing.T) {
	const stopped, rings = 20, 2
	var sockets []*wakeSocket
	var to []unix.SockaddrUnix
	for range stopped + 2 {
		s, err := newWakeSocket("@cohort-test/" + rand.Text())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.sock.Close() })
		sockets, to = append(sockets, s), append(to, unix.SockaddrUnix{Name: s.name})
	}
	s, asleep := sockets[0], sockets[stopped+1]
	s.to = to
	if err := unix.SetsockoptInt(int(s.sock), unix.SOL_SOCKET, unix.SO_SNDBUF, 0); err != nil { // the least that the system gives
		t.Fatal(err)
	}
	for rank := 1; rank <= stopped; rank++ {
		for range rings {
			s.send(rank)
		}
	}
	if err := unix.Sendto(int(s.sock), wakeUp, 0, &to[stopped+1]); err != unix.EAGAIN {
		t.Fatalf("the socket has room for more: %v", err) // or asleep has a ring already
	}
	s.send(stopped + 1)
	var buf [8]byte
	if n, err := unix.Read(int(asleep.sock), buf[:]); n != 1 || err != nil {
		t.Errorf("nothing has woken the rank: %d, %v", n, err)
	}
}
