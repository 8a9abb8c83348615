package tcp

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection within the machine is not paced, where this process may choose that.
func TestWithinHost(t *testing.T) {
	file := "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
	if os.Geteuid() == 0 { // may choose what is not for everybody
		file = "/proc/sys/net/ipv4/tcp_available_congestion_control"
	}
	known, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(known), "cubic") {
		t.Skipf("this system's kernel offers %q as congestion control, and not cubic: %v", strings.TrimSpace(string(known)), err)
	}
	a, b := pair(t)
	defer b.Close()
	fd, err := takeSocket(a)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if how, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || how != "cubic" {
		t.Errorf("the congestion control is %q, %v", how, err)
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
