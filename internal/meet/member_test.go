package meet

import (
	"math"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// largest is the longest member there can be.
func largest() Member {
	m := Member{Rank: frame.MaxRanks - 1, Process: math.MaxInt, Node: strings.Repeat("\x01", maxName), Host: strings.Repeat("<", maxHost),
		OnDemand: true, Wake: strings.Repeat("\x00", maxName)}
	for i := range MaxAddrs {
		m.Addrs = append(m.Addrs, netip.AddrPortFrom(netip.MustParseAddr("fd00:1111:2222:3333:4444:5555:6666:7777"), uint16(65535-i)))
	}
	for i := range m.CPUs {
		m.CPUs[i] = math.MaxUint64
	}
	return m
}

func TestJoinMessageRoundTrip(t *testing.T) {
	for _, m := range []Member{member(0), member(3), largest()} {
		want := joining{Size: 77, Patience: math.MaxInt64, Member: m}
		b := encode(&want)
		if got, err := decodeJoin(b, m.Rank); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v\nwant %+v", got, err, want)
		}
		if len(b) > maxJoin || len(encode(&m)) > maxMember {
			t.Errorf("%d bytes, above %d", len(b), maxJoin)
		}
		for n := range b { // cut anywhere
			if _, err := decodeJoin(b[:n], 1); err == nil {
				t.Errorf("taken, with %d bytes of %d", n, len(b))
			}
		}
		_, err := decodeJoin(append(b, '{'), 1)
		has(t, err, nil, "invalid character '{' after top-level value")
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
		{change(func(m *Member) { m.Process = -1 }), "process number"},
		{change(func(m *Member) { m.Host = "a\nb" }), "printable ASCII"},
		{change(func(m *Member) { m.Host = "\x1b[2J" }), "printable ASCII"},
		{change(func(m *Member) { m.Host = strings.Repeat("h", maxHost+1) }), "too long"},
		{change(func(m *Member) { m.Addrs = nil }), "0 addresses"},
		{change(func(m *Member) { m.Addrs = make([]netip.AddrPort, MaxAddrs+1) }), "9 addresses"},
		{change(at("127.0.0.1:0")), "127.0.0.1:0 is not an address to connect to"},
		{change(at("0.0.0.0:1")), "is not an address"},
		{change(at("[::]:1")), "is not an address"},
		{change(at("224.0.0.1:1")), "is not an address"},
		{change(at("[::ffff:1.2.3.4]:1")), "is not an address"},
		{change(at("[fe80::1%eth0]:1")), "is not an address"},
		{change(func(m *Member) { m.Addrs[0] = netip.AddrPort{} }), "is not an address"},
		{change(func(m *Member) { m.Node = strings.Repeat("n", maxName+1) }), "a node of 129 bytes"},
		{change(func(m *Member) { m.Wake = strings.Repeat("w", maxName+1) }), "a socket of 129"},
	} {
		has(t, c.m.check(), nil, c.want)
		_, err := decodeJoin(encode(&joining{Size: 1, Member: c.m}), 1)
		has(t, err, nil, c.want)
		table := []Member{member(0), c.m}
		_, err = decodeTable(encode(table), 2)
		has(t, err, backend.ErrInit, "entry 1: ", c.want)
	}
}

func TestTableRoundTrip(t *testing.T) {
	want := []Member{member(0), member(1), member(2)}
	b := encode(want)
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
	_, err = decodeTable(append(b, ']'), 3)
	has(t, err, nil, "after top-level value")
}

// TestTableAllocatesOnlyWhatArrives decodes a table that is shorter than the job: the job's size allocates nothing.
// Other goroutines may allocate meanwhile, so the least of several runs counts.
func TestTableAllocatesOnlyWhatArrives(t *testing.T) {
	b := encode([]Member{member(0)})
	least := uint64(math.MaxUint64)
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeTable(b, frame.MaxRanks)
		runtime.ReadMemStats(&after)
		has(t, err, nil, "it has 1, want 65536")
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least >= frame.MaxRanks {
		t.Errorf("%d bytes allocated, a byte or more for each rank of the job", least)
	}
}

func TestRefusalTextIsOneLine(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
		text string
	}{
		{backend.Faultf(backend.ErrTimeout, "rank %d", 3), backend.ErrTimeout, "timed out: rank 3"},
		{os.ErrExist, backend.ErrInternal, "file already exists"},
		{backend.Faultf(backend.ErrInit, "a\x1b[2J\nb\xff"), backend.ErrInit, "a?[2J?b?"},
		{backend.Faultf(backend.ErrInit, "%s", strings.Repeat("x", 2*maxRefusal)), backend.ErrInit, strings.Repeat("x", maxRefusal-1)},
	} {
		b := backend.AsFault(c.err).Encode(maxRefusal)
		has(t, decodeRefused(b), c.want, c.text)
		if len(b) > maxRefusal {
			t.Errorf("%d bytes", len(b))
		}
	}
	has(t, decodeRefused(nil), backend.ErrInternal)
	has(t, decodeRefused([]byte{0, 'x'}), backend.ErrInternal)
	has(t, decodeRefused([]byte{126, 'x'}), backend.ErrInternal)
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
		if n != "" {
			t.Error(n)
		}
		return
	}
	if n == "" || len(n) > maxName || n != ThisNode() {
		t.Errorf("%s, then %s", n, ThisNode())
	}
	if !(&Member{Node: n}).Shares(&Member{Node: n}) || (&Member{}).Shares(&Member{}) || (&Member{Node: n}).Shares(&Member{Node: "n"}) {
		t.Error("who shares with whom")
	}
}

// FuzzJoin decodes arbitrary bytes as a join message. A message that it accepts is within the limits, and stays
// the same when it is sent on.
func FuzzJoin(f *testing.F) {
	f.Add(encode(&joining{Size: 4, Patience: 1000, Member: member(1)}))
	f.Add(encode(&joining{Size: frame.MaxRanks, Member: largest()}))
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeJoin(b, 1)
		if err != nil {
			return
		}
		text := encode(&j)
		if again, err := decodeJoin(text, 1); err != nil || !reflect.DeepEqual(again, j) || len(text) > maxJoin || j.Member.check() != nil {
			t.Errorf("%s\nis %+v, and sent on %+v, %v", b, j, again, err)
		}
	})
}

// FuzzTable does the same with the table.
func FuzzTable(f *testing.F) {
	f.Add(encode([]Member{member(0), member(1)}), 2)
	f.Add(encode([]Member{largest()}), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		members, err := decodeTable(b, size)
		if err != nil {
			return
		}
		text := encode(members)
		if again, err := decodeTable(text, size); err != nil || !reflect.DeepEqual(again, members) || len(members) != size {
			t.Errorf("%s\nis %+v, and sent on %+v, %v", b, members, again, err)
		}
		for r := range members {
			if members[r].Rank != r || members[r].check() != nil {
				t.Errorf("%s: rank %d is %+v", b, r, members[r])
			}
		}
	})
}

// FuzzRefused decodes anything as a refusal of the coordinator: always an error, in one line.
func FuzzRefused(f *testing.F) {
	f.Add(backend.Faultf(backend.ErrInit, "two processes").Encode(maxRefusal))
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := decodeRefused(b); err.Sentinel == nil || strings.ContainsAny(err.Error(), "\n\r\x1b") {
			t.Errorf("%q", err)
		}
	})
}
