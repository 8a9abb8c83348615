package meet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// A machine with what machines in clusters have.
var machine = slices.Concat(
	onInterface("lo", "127.0.0.1/8", "::1/128"),
	onInterface("eth0", "10.1.2.3/16", "fe80::1/64", "fd00:1::3/64"),
	onInterface("ib0", "192.168.7.3/24"),
	onInterface("docker0", "172.17.0.1/16"),
)

func onInterface(name string, addrs ...string) (list []ifaceAddr) {
	for _, s := range addrs {
		list = append(list, ifaceAddr{name, netip.MustParsePrefix(s)})
	}
	return list
}

func TestChoiceSelectsAddresses(t *testing.T) {
	for _, c := range []struct{ choice, want string }{
		{"", "[127.0.0.1]"},
		{"lo", "[127.0.0.1 ::1]"},
		{"eth0", "[10.1.2.3 fd00:1::3]"},
		{"ib0,eth0", "[192.168.7.3 10.1.2.3 fd00:1::3]"},
		{" ib0 , 192.168.0.0/16", "[192.168.7.3]"},
		{"10.0.0.0/8", "[10.1.2.3]"},
		{"fd00::/8", "[fd00:1::3]"},
		{"0.0.0.0/0", "[127.0.0.1 10.1.2.3 192.168.7.3 172.17.0.1]"},
		{"172.17.0.1", "[172.17.0.1]"},
		{"::1", "[::1]"},
		{"any", "[10.1.2.3 fd00:1::3 192.168.7.3 172.17.0.1]"},
	} {
		if got, err := choose(c.choice, machine); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v, want %s", c.choice, got, err, c.want)
		}
	}
	for _, c := range []struct{ choice, want string }{
		{"eth1", "no address of this machine matches; want the name of an interface"},
		{"eth1", "docker0 172.17.0.1/16"},
		{"11.0.0.0/8", "no address of this machine matches"},
		{"fe80::/10", "no address of this machine matches"},
		{"10.1.2.4", "no address of this machine matches"},
		{"10.0.0.0/99", "a network such as"},
	} {
		_, err := choose(c.choice, machine)
		has(t, err, nil, fmt.Sprintf("%q", c.choice), c.want)
	}
	var many []ifaceAddr
	for i := range MaxAddrs + 1 {
		many = append(many, onInterface(fmt.Sprint("eth", i), fmt.Sprintf("10.0.%d.1/24", i))...)
	}
	_, err := choose("any", many)
	has(t, err, nil, "9 addresses match, and a rank can have 8")
	_, err = choose("", onInterface("eth0", "10.0.0.1/8"))
	has(t, err, nil, "the loopback interface has no address", "ip link set lo up")
}

// TestInterfacesIncludeLoopback asks this machine: its loopback interface is there.
func TestInterfacesIncludeLoopback(t *testing.T) {
	got, err := Interfaces("")
	if err != nil || len(got) != 1 || !got[0].IsLoopback() {
		t.Errorf("%v, %v", got, err)
	}
	if all, err := Interfaces("127.0.0.0/8"); err != nil || !slices.Contains(all, loopback) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestOursChecksCoordinatorAddress(t *testing.T) {
	parse := func(list ...string) (a []netip.Addr) {
		for _, s := range list {
			a = append(a, netip.MustParseAddr(s))
		}
		return a
	}
	for _, c := range []struct {
		host  string
		found []netip.Addr
		want  string
	}{
		{"node3", parse("10.1.2.3"), "[10.1.2.3]"},
		{"node3", parse("10.9.9.9", "10.1.2.3", "fd00:1::3"), "[10.1.2.3 fd00:1::3]"},
		{"node3", parse("127.0.1.1"), "[127.0.1.1 10.1.2.3 fd00:1::3 192.168.7.3 172.17.0.1]"}, // as Debian has it
		{"localhost", parse("::1", "127.0.0.1"), "[::1 127.0.0.1]"},
		{"127.0.0.1", parse("127.0.0.1"), "[127.0.0.1]"},
	} {
		if got, err := ours(c.host, c.found, machine); err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, %v, want %s", c.host, got, err, c.want)
		}
	}
	_, err := ours("node4", parse("10.1.2.4"), machine)
	has(t, err, nil, "node4 ([10.1.2.4])", "not an address of this machine", "name the machine of rank 0")
	if got, err := CoordinatorAddrs(t.Context(), "127.0.0.1"); err != nil || fmt.Sprint(got) != "[127.0.0.1]" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestPortRangesAreParsed(t *testing.T) {
	for _, c := range []struct {
		text        string
		first, last int
	}{
		{"", 0, 0}, {"20000-20100", 20000, 20100}, {"20000", 20000, 20000}, {" 1 - 65535 ", 1, 65535},
		{"0-5", -1, 0}, {"5-4", -1, 0}, {"1-65536", -1, 0}, {"-", -1, 0}, {"a-b", -1, 0}, {"1-2-3", -1, 0}, {"-5", -1, 0},
	} {
		first, last, err := ParsePorts(c.text)
		if c.first < 0 {
			if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), "COHORT_TCP_PORTS") {
				t.Errorf("%q: %v", c.text, err)
			}
		} else if err != nil || int(first) != c.first || int(last) != c.last {
			t.Errorf("%q: %d to %d, %v", c.text, first, last, err)
		}
	}
}
