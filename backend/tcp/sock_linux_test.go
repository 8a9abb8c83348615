package tcp

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection within the machine is not paced, where this process may choose that.
func TestConnectionWithinHostIsNotPaced(t *testing.T) {
	a, b := pair(t)
	defer b.Close()
	chosen(t, b)
	sock, err := takeSocket(a)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if how, err := unix.GetsockoptString(int(sock), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || how != "cubic" {
		t.Errorf("the congestion control is %q, %v", how, err)
	}
}

// chosen ends the test where this process may not have a connection go by cubic.
func chosen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var no error
	if err := raw.Control(func(fd uintptr) { no = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") }); err != nil {
		t.Fatal(err)
	}
	if no != nil { // ENOENT: the kernel has none; EPERM: this process may not use it
		known, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		t.Skipf("this process may not choose cubic as congestion control, of %q: %v", strings.TrimSpace(string(known)), no)
	}
}

// ends is a connection of which only the addresses are there.
type ends struct {
	net.Conn
	here, there net.Addr
}

func (e ends) LocalAddr() net.Addr  { return e.here }
func (e ends) RemoteAddr() net.Addr { return e.there }

func TestWithinHost_Addresses(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	for _, c := range []struct {
		here, there net.Addr
		want        bool
	}{
		{at("127.0.0.1"), at("127.0.0.1"), true},
		{at("::1"), at("::1"), true},
		{at("10.0.0.7"), at("10.0.0.7"), true},
		{at("10.0.0.7"), at("10.0.0.8"), false},
		{at("fd00::1"), at("fd00::2"), false},
		{&net.UnixAddr{}, &net.UnixAddr{}, false},
	} {
		if got := withinHost(ends{here: c.here, there: c.there}); got != c.want {
			t.Errorf("from %v to %v: %t", c.here, c.there, got)
		}
	}
}
