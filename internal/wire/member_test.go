package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// largest is the longest member there can be.
func largest() Member {
	m := Member{Rank: MaxRanks - 1, Process: min(1<<40, math.MaxInt), Node: Node{15: 9}, Host: strings.Repeat("h", maxHost), Info: make([]byte, maxInfo)}
	for i := range MaxAddrs {
		m.Addrs = append(m.Addrs, netip.AddrPortFrom(netip.MustParseAddr("fd00::1"), uint16(i+1)))
	}
	return m
}

func TestJoinMessageRoundTrip(t *testing.T) {
	for _, m := range []Member{member(0), member(3), largest()} {
		want := joining{size: 77, patience: 12345, member: m}
		b := want.append(nil)
		if got, err := decodeJoin(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
		if len(b) > maxJoin || m.Rank == MaxRanks-1 && len(b) != maxJoin {
			t.Errorf("%d bytes, above %d", len(b), maxJoin)
		}
		for n := range b { // cut anywhere
			if _, err := decodeJoin(b[:n]); err == nil {
				t.Errorf("taken, with %d bytes of %d", n, len(b))
			}
		}
		_, err := decodeJoin(append(b, 0))
		has(t, err, nil, "join: 1 bytes too many")
	}
}

func TestBadMembersAreRejected(t *testing.T) {
	change := func(f func(*Member)) Member {
		m := member(1)
		f(&m)
		return m
	}
	at := func(a string) func(*Member) {
		return func(m *Member) { m.Addrs[0] = netip.MustParseAddrPort(a) }
	}
	for _, c := range []struct {
		m    Member
		want string
	}{
		{change(func(m *Member) { m.Rank = MaxRanks }), "rank 65536"},
		{change(func(m *Member) { m.Rank = -1 }), "rank"},
		{change(func(m *Member) { m.Process = -1 }), "process number"},
		{change(func(m *Member) { m.Host = "a\nb" }), "printable ASCII"},
		{change(func(m *Member) { m.Host = "\x1b[2J" }), "printable ASCII"},
		{change(func(m *Member) { m.Addrs = nil }), "0 addresses"},
		{change(func(m *Member) { m.Addrs = make([]netip.AddrPort, MaxAddrs+1) }), "9 addresses"},
		{change(at("127.0.0.1:0")), "127.0.0.1:0 is not an address to connect to"},
		{change(at("0.0.0.0:1")), "is not an address"},
		{change(at("[::]:1")), "is not an address"},
		{change(at("224.0.0.1:1")), "is not an address"},
		{change(at("[::ffff:1.2.3.4]:1")), "is not an address"},
		{change(func(m *Member) { m.Info = make([]byte, maxInfo+1) }), "257 bytes of information"},
	} {
		has(t, c.m.check(), nil, c.want)
		if slices.ContainsFunc(c.m.Addrs, func(a netip.AddrPort) bool { return !a.IsValid() }) {
			continue // it cannot be sent
		}
		_, err := decodeJoin((&joining{size: 1, member: c.m}).append(nil))
		has(t, err, nil, "join:")
	}
	zone := change(at("[fe80::1%eth0]:1"))
	has(t, zone.check(), nil, "is not an address")
	for _, c := range []struct {
		at   int
		to   byte
		want string
	}{
		{0, 0, "a job of 0 ranks"}, {3, 1, "a job of 16777"}, {8 + 28 + 1 + len(member(1).Host), 9, "9 addresses"},
		{8 + 28 + 1 + len(member(1).Host) + 1, 5, "neither IPv4 nor IPv6"},
	} {
		b := (&joining{size: 1, member: member(1)}).append(nil)
		b[c.at] = c.to
		if c.at < 4 {
			b[0] = 0
		}
		_, err := decodeJoin(b)
		has(t, err, nil, c.want)
	}
}

func TestTableRoundTrip(t *testing.T) {
	want := []Member{member(0), member(1), member(2)}
	b := appendTable(nil, want)
	if got, err := decodeTable(b, 3); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for n := range b {
		if _, err := decodeTable(b[:n], 3); err == nil {
			t.Errorf("taken, with %d bytes of %d", n, len(b))
		}
	}
	_, err := decodeTable(b, 2)
	has(t, err, nil, "it has 3, want 2")
	_, err = decodeTable(append(b, 0), 3)
	has(t, err, nil, "1 bytes too many")
	_, err = decodeTable(appendTable(nil, []Member{member(1), member(0)}), 2)
	has(t, err, nil, "entry 0: it is that of rank 1")
}

// TestTableAllocatesOnlyWhatArrives decodes a table that claims to be large and is not: it allocates nothing.
func TestTableAllocatesOnlyWhatArrives(t *testing.T) {
	b := append(binary.LittleEndian.AppendUint32(nil, MaxRanks), make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decodeTable(b, MaxRanks)
	runtime.ReadMemStats(&after)
	has(t, err, nil, "104 bytes for 65536 ranks")
	if n := after.TotalAlloc - before.TotalAlloc; n > 10<<10 {
		t.Errorf("%d bytes allocated", n)
	}
}

func TestRefusalTextIsOneLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
		text string
	}{
		{fault(backend.ErrTimeout, "rank %d", 3), backend.ErrTimeout, "timed out: rank 3"},
		{os.ErrExist, backend.ErrInternal, "file already exists"},
		{fault(backend.ErrInit, "a\x1b[2J\nb\xff"), backend.ErrInit, "a?[2J?b?"},
		{fault(backend.ErrInit, "%s", strings.Repeat("x", 2*maxText)), backend.ErrInit, strings.Repeat("x", maxText)},
	} {
		b := appendRefused(nil, c.err)
		has(t, decodeRefused(b), c.want, c.text)
		if len(b) > 1+maxText {
			t.Errorf("%d bytes", len(b))
		}
	}
	has(t, decodeRefused(nil), nil, "0 bytes")
	has(t, decodeRefused(make([]byte, maxText+2)), nil, "4098 bytes")
	has(t, decodeRefused([]byte{0, 'x'}), backend.ErrInternal)
	has(t, decodeRefused([]byte{255, 'x'}), backend.ErrInternal)
}

func TestHostNameIsMadeValid(t *testing.T) {
	for name, want := range map[string]string{"node-1.cluster": "node-1.cluster", "a b\nc": "a?b?c", strings.Repeat("n", 300): strings.Repeat("n", 255), "é": "?"} {
		m := member(0)
		if m.Host = HostName(name); m.Host != want || m.check() != nil {
			t.Errorf("%q: %q, %v", name, m.Host, m.check())
		}
	}
}

func TestThisNodeIsStable(t *testing.T) {
	n := ThisNode()
	if runtime.GOOS != "linux" {
		if n != (Node{}) {
			t.Errorf("%x", n)
		}
		return
	}
	if n == (Node{}) || n != ThisNode() {
		t.Errorf("%x, then %x", n, ThisNode())
	}
	if !(&Member{Node: n}).Shares(&Member{Node: n}) || (&Member{}).Shares(&Member{}) || (&Member{Node: n}).Shares(&Member{Node: Node{1}}) {
		t.Error("who shares with whom")
	}
}

// FuzzJoin decodes arbitrary bytes as a join message; what it accepts encodes to the same bytes.
func FuzzJoin(f *testing.F) {
	f.Add((&joining{size: 4, patience: 1000, member: member(1)}).append(nil))
	f.Add((&joining{size: MaxRanks, member: largest()}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if j, err := decodeJoin(b); err == nil {
			if again := j.append(nil); !bytes.Equal(again, b) || len(b) > maxJoin {
				t.Errorf("% x\nencodes to % x", b, again)
			}
		}
	})
}

// FuzzTable does the same with the table.
func FuzzTable(f *testing.F) {
	f.Add(appendTable(nil, []Member{member(0), member(1)}), 2)
	f.Add(appendTable(nil, []Member{largest()}), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 || size > MaxRanks {
			return // the rank's own, which it has checked
		}
		if m, err := decodeTable(b, size); err == nil {
			if again := appendTable(nil, m); !bytes.Equal(again, b) || len(m) != size {
				t.Errorf("% x\nencodes to % x", b, again)
			}
		}
	})
}

// FuzzRefused decodes anything as a refusal of the coordinator: always an error, in one line.
func FuzzRefused(f *testing.F) {
	f.Add(appendRefused(nil, fault(backend.ErrInit, "two processes")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := decodeRefused(b); err == nil || strings.ContainsAny(err.Error(), "\n\r\x1b") || len(err.Error()) > 3*maxText+100 {
			t.Errorf("%q", err)
		}
	})
}
