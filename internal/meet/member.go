package meet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

const (
	maxHost = 255
	maxName = 128 // of a node, and of a wake-up socket

	// Limits of encoded messages. The longest member takes about 3 KiB, nearly all 200 bytes.
	maxMember   = 4 << 10
	maxJoin     = maxMember + 100
	maxRefusal  = 4 << 10
	maxSettings = 16 << 10
)

// A Member describes a rank to the others.
type Member struct {
	Rank    int    `json:"-"` // known from the place in the table, and to the coordinator from the handshake
	Process int    // its process ID on its host
	Node    string // the same for processes that could share memory; "" if unknown
	Host    string // its name, for messages
	Addrs   []netip.AddrPort

	Worlds   int        `json:",omitempty"` // that its process has been in before
	OnDemand bool       // it makes connections when they are first needed
	Listener string     `json:",omitempty"` // which of its listeners is at Addrs, if it may join again at the same ports: connections to others are refused
	Wake     string     // its wake-up socket; "" if it takes no part in shared memory
	CPUs     [16]uint64 // the set of processors that it may use
}

// Shares reports whether two ranks could share memory.
func (m *Member) Shares(o *Member) bool { return m.Node == o.Node && m.Node != "" }

// String describes the rank in errors.
func (m *Member) String() string {
	return fmt.Sprintf("rank %d (process %d on %s)", m.Rank, m.Process, m.Host)
}

// check returns what is wrong with a member, of this process or of another.
func (m *Member) check() error {
	switch {
	case m.Process < 0 || m.Worlds < 0:
		return fmt.Errorf("process number %d, in its world %d", m.Process, m.Worlds)
	case len(m.Host) > maxHost || m.Host != HostName(m.Host):
		return errors.New("the host's name is too long or has characters that are not printable ASCII")
	case len(m.Node) > maxName || len(m.Wake) > maxName || len(m.Listener) > maxName:
		return fmt.Errorf("a node of %d bytes, a socket of %d and a listener of %d, want at most %d", len(m.Node), len(m.Wake), len(m.Listener), maxName)
	case len(m.Addrs) == 0 || len(m.Addrs) > MaxAddrs:
		return fmt.Errorf("%d addresses, want 1 to %d", len(m.Addrs), MaxAddrs)
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

// ThisNode returns the node of this process: a hash of the kernel's boot ID, the user, and the namespaces
// that processes need in common to find each other and share memory: those of processes, users, and
// networks. It is empty where these are not known, as on all systems but Linux.
func ThisNode() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(strings.TrimSpace(string(boot))) == 0 {
		return ""
	}
	text := fmt.Sprintf("cohort node %s %d", strings.TrimSpace(string(boot)), os.Geteuid())
	for _, name := range []string{"pid", "user", "net"} {
		space, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return ""
		}
		text += " " + space
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:16])
}

// A joining is the message with which a rank joins.
type joining struct {
	Size     int           // of the job, as the rank knows it
	Patience time.Duration // how long the rank will wait; 0: without limit
	Member   Member
}

// encode encodes a message of the rendezvous, all of which can be.
func encode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic("meet: " + err.Error())
	}
	return b
}

func decodeJoin(b []byte, rank int) (j joining, err error) {
	if err = json.Unmarshal(b, &j); err == nil {
		err = j.Member.check()
	}
	j.Member.Rank = rank
	return j, err
}

func decodeTable(b []byte, size int) ([]Member, error) {
	var members []Member
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, backend.Faultf(backend.ErrInit, "table of the ranks: %v", err)
	}
	if len(members) != size {
		return nil, backend.Faultf(backend.ErrInit, "table of the ranks: it has %d, want %d", len(members), size)
	}
	for r := range members {
		members[r].Rank = r
		if err := members[r].check(); err != nil {
			return nil, backend.Faultf(backend.ErrInit, "table of the ranks: entry %d: %v", r, err)
		}
	}
	return members, nil
}

// decodeRefused reads why the job fails to start, or why a rank cannot connect.
func decodeRefused(b []byte) *backend.Fault {
	f := backend.DecodeFault(b)
	f.Text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(f.Text, "?"))
	return f
}
