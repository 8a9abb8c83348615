package meet

import (
	"bytes"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func FuzzCoordinator(f *testing.F) {
	for _, s := range []string{"", "host:1", "[::1]:65535", "127.0.0.1:0", ":7", "a:b:c", "0.0.0.0:9", "[fe80::1%eth0]:80", "h:65536", "h:+1", "\x00:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		host, port, err := ParseCoordinator(address)
		if err != nil {
			if !strings.Contains(err.Error(), strconv.Quote(address)) {
				t.Fatalf("the error does not name %q: %v", address, err)
			}
			return
		}
		if host == "" || port == 0 {
			t.Fatalf("%q is host %q, port %d", address, host, port)
		}
		again, p, err := ParseCoordinator(net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err != nil || again != host || p != port {
			t.Fatalf("%q: %q, %d; read again %q, %d, %v", address, host, port, again, p, err)
		}
	})
}

func FuzzInterfaces(f *testing.F) {
	list := slices.Concat(onInterface("lo", "127.0.0.1/8", "::1/128"), onInterface("eth0", "10.1.2.3/16", "fe80::1/64"), onInterface("ib0", "fd00::7/64"))
	for _, s := range []string{"", "any", "lo", "eth0,ib0", "10.1.0.0/16", "fd00::/8", "::ffff:10.1.2.3", "0.0.0.0/0,::/0", ",", "eth1", "10.1.2.3/", "any,any"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, choice string) {
		chosen, err := choose(choice, list)
		if err != nil {
			if chosen != nil {
				t.Fatalf("%v beside %v", chosen, err)
			}
			return
		}
		if len(chosen) == 0 || len(chosen) > MaxAddrs {
			t.Fatalf("%q chooses %d addresses", choice, len(chosen))
		}
		for i, a := range chosen {
			here := slices.ContainsFunc(list, func(i ifaceAddr) bool { return i.Addr() == a })
			if !here || a.IsLinkLocalUnicast() || slices.Contains(chosen[:i], a) {
				t.Fatalf("%q chooses %v", choice, chosen)
			}
		}
	})
}

func FuzzSecretFile(f *testing.F) {
	var b bytes.Buffer
	if err := NewSecret().Send(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:64])
	f.Add(b.Bytes()[:63])
	f.Add(append(b.Bytes()[:64:64], "\r\n\n"...))
	f.Add(b.Bytes()[:32])
	f.Add(make([]byte, 32))
	f.Add([]byte(strings.Repeat("xy", 32)))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadSecret(bytes.NewReader(text))
		if s.Valid() != (err == nil) {
			t.Fatalf("a secret beside %v", err)
		}
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := s.Send(&out); err != nil {
			t.Fatal(err)
		}
		again, err := ReadSecret(&out)
		if err != nil || *again.key != *s.key {
			t.Fatalf("a secret sent is another one: %v", err)
		}
	})
}
