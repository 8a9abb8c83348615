package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
)

const (
	maxHost = 255
	maxInfo = 256
	// maxMember is the longest form of a member: rank, process, node, host, addresses, info.
	maxMember = 4 + 8 + nodeSize + 1 + maxHost + 1 + MaxAddrs*(1+16+2) + 2 + maxInfo
	maxJoin   = 8 + maxMember
	maxText   = 4096 // of why the job fails to start
	nodeSize  = 16
)

// A Node identifies the processes that could share memory: those with the same Node that is not zero.
type Node [nodeSize]byte

// A Member describes a rank to the others.
type Member struct {
	Rank    int
	Process int    // its process ID on its host
	Node    Node   // zero if unknown
	Host    string // its name, for messages
	Addrs   []netip.AddrPort
	Info    []byte // of the backend, at most 256 bytes
}

// Shares reports whether two ranks could share memory.
func (m *Member) Shares(o *Member) bool { return m.Node == o.Node && m.Node != Node{} }

// String describes the rank in errors.
func (m *Member) String() string {
	return fmt.Sprintf("rank %d (process %d on %s)", m.Rank, m.Process, m.Host)
}

// check returns what is wrong with a member, of this process or of another.
func (m *Member) check() error {
	switch {
	case m.Rank < 0 || m.Rank >= MaxRanks:
		return fmt.Errorf("rank %d, want less than %d", m.Rank, MaxRanks)
	case m.Process < 0:
		return fmt.Errorf("process number %d", m.Process)
	case len(m.Host) > maxHost || strings.ContainsFunc(m.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the host's name is too long or has characters that are not printable ASCII")
	case len(m.Addrs) == 0 || len(m.Addrs) > MaxAddrs:
		return fmt.Errorf("%d addresses, want 1 to %d", len(m.Addrs), MaxAddrs)
	case len(m.Info) > maxInfo:
		return fmt.Errorf("%d bytes of information, want at most %d", len(m.Info), maxInfo)
	}
	for _, a := range m.Addrs {
		if !a.IsValid() || a.Port() == 0 || a.Addr().Zone() != "" || a.Addr().Is4In6() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			return fmt.Errorf("%v is not an address to connect to", a)
		}
	}
	return nil
}

// HostName turns the name of a host into one that is valid in a Member.
func HostName(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return clean[:min(len(clean), maxHost)]
}

// append encodes a member that check finds right.
func (m *Member) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Rank))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Process))
	b = append(b, m.Node[:]...)
	b = append(append(b, byte(len(m.Host))), m.Host...)
	b = append(b, byte(len(m.Addrs)))
	for _, a := range m.Addrs {
		ip := a.Addr().AsSlice()
		b = append(append(b, byte(len(ip))), ip...)
		b = binary.LittleEndian.AppendUint16(b, a.Port())
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Info)))
	return append(b, m.Info...)
}

// A reader takes fields from a message. Once one is missing, all others are zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.short, r.rest = true, nil
		return make([]byte, min(n, 16)) // enough for a number
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() int     { return int(r.take(1)[0]) }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

var errShort = errors.New("it is truncated")

// member reads a member and checks it. Lengths are those of what is there, so that nothing is
// allocated for what is not.
func (r *reader) member() (m Member, err error) {
	rank, process := r.u32(), r.u64()
	if rank >= MaxRanks || process > 1<<62 {
		return m, fmt.Errorf("rank %d, process number %d", rank, process)
	}
	m.Rank, m.Process = int(rank), int(process)
	copy(m.Node[:], r.take(nodeSize))
	m.Host = string(r.take(r.u8()))
	n := r.u8()
	if n > MaxAddrs {
		return m, fmt.Errorf("%d addresses, want at most %d", n, MaxAddrs)
	}
	for range n {
		ip, ok := netip.AddrFromSlice(r.take(r.u8()))
		port := r.u16()
		if r.short {
			return m, errShort
		}
		if !ok {
			return m, errors.New("an address is neither IPv4 nor IPv6")
		}
		m.Addrs = append(m.Addrs, netip.AddrPortFrom(ip, port))
	}
	info := int(r.u16())
	if info > maxInfo {
		return m, fmt.Errorf("%d bytes of information, want at most %d", info, maxInfo)
	}
	m.Info = append([]byte(nil), r.take(info)...)
	if r.short {
		return m, errShort
	}
	return m, m.check()
}

// end checks that a message has been read to its end.
func (r *reader) end() error {
	if r.short {
		return errShort
	}
	if len(r.rest) > 0 {
		return fmt.Errorf("%d bytes too many", len(r.rest))
	}
	return nil
}

// A joining is the message with which a rank joins.
type joining struct {
	size     int    // of the job, as the rank knows it
	patience uint32 // how many milliseconds it will wait; 0: no limit
	member   Member
}

func (j *joining) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(j.size))
	b = binary.LittleEndian.AppendUint32(b, j.patience)
	return j.member.append(b)
}

func decodeJoin(b []byte) (j joining, err error) {
	r := reader{rest: b}
	size := r.u32()
	j.patience = r.u32()
	if size < 1 || size > MaxRanks {
		return j, fmt.Errorf("join: a job of %d ranks, want 1 to %d", size, MaxRanks)
	}
	j.size = int(size)
	if j.member, err = r.member(); err == nil {
		err = r.end()
	}
	if err != nil {
		return j, fmt.Errorf("join: %w", err)
	}
	return j, nil
}

func appendTable(b []byte, members []Member) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(members)))
	for i := range members {
		b = members[i].append(b)
	}
	return b
}

// decodeTable reads the table of a job of size ranks.
func decodeTable(b []byte, size int) ([]Member, error) {
	r := reader{rest: b}
	n := r.u32()
	if uint64(n) != uint64(size) {
		return nil, fmt.Errorf("table of the ranks: it has %d, want %d", n, size)
	}
	if least := size * (4 + 8 + nodeSize + 1 + 1 + 2); len(b) < least {
		return nil, fmt.Errorf("table of the ranks: %d bytes for %d ranks, which take %d at least", len(b), size, least)
	}
	members := make([]Member, size)
	for i := range members {
		var err error
		if members[i], err = r.member(); err == nil && members[i].Rank != i {
			err = fmt.Errorf("it is that of rank %d", members[i].Rank)
		}
		if err != nil {
			return nil, fmt.Errorf("table of the ranks: entry %d: %w", i, err)
		}
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("table of the ranks: %w", err)
	}
	return members, nil
}

// appendRefused encodes why the job fails to start.
func appendRefused(b []byte, err error) []byte {
	text := err.Error()
	if f, ok := errors.AsType[*backend.Fault](err); ok {
		text = f.Text
	}
	return append(append(b, backend.Code(err)), text[:min(len(text), maxText)]...)
}

// decodeRefused reads it, as the error that every rank returns.
func decodeRefused(b []byte) error {
	if len(b) == 0 || len(b) > 1+maxText {
		return fmt.Errorf("the coordinator's refusal has %d bytes, want 1 to %d", len(b), 1+maxText)
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(b[1:]), "?"))
	sentinel := backend.Sentinel(b[0])
	if sentinel == nil {
		sentinel = backend.ErrInternal
	}
	return &backend.Fault{Sentinel: sentinel, Text: text}
}
