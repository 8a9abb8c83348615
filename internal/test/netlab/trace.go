package netlab

import "time"

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds: three of packets, and the marks of programs.
const (
	Sent      EventKind = iota // host From has sent the packet
	Delivered                  // host To is about to receive it
	Dropped                    // it is not delivered
	Marked                     // a program on host From has made a mark
)

// Flags of a TCP segment (RFC 9293, section 3.1).
const (
	FIN byte = 1 << 0
	RST byte = 1 << 2
)

// An Event is one line of a [Trace].
type Event struct {
	Kind     EventKind
	At       time.Duration // since the network was made
	From, To int
	Packet   int       // its number, the same when it is sent and when it arrives
	Ports    [2]uint16 // source and destination
	Seq      uint32    // of TCP: the number of the first byte that it carries
	Flags    byte      // of TCP: FIN, RST, and others
	Payload  int       // bytes that it carries
	Text     string    // of a mark
}

// A Trace is the list of events in the switch. A cause precedes its effect: a packet that a host sends in
// response to another one follows the Delivered of that one.
type Trace []Event

// An Operation covers the packets of a test's ranks between a mark and each rank's next one.
type Operation struct {
	// Steps is the length of the longest chain of packets with data in which each was sent by the host
	// that had received the one before. It is at least the number of messages that must wait for each
	// other. It is larger if a host was late, and sent a message after it had received one that it did
	// not need.
	Steps int

	// Bytes counts the distinct bytes of TCP connections from one host to another.
	Bytes map[[2]int]int
}

// Operations cuts the trace at the marks. Each host's operation with a mark's text lasts from that
// mark to its next; a packet belongs to the operation in which it was sent. The name "" ends an
// operation without beginning another.
func (t Trace) Operations() map[string]*Operation {
	all := map[string]*Operation{}
	now := map[int]string{}         // what the host does
	of := map[int]string{}          // packet's operation
	depth := map[int]int{}          // of a packet
	got := map[string]map[int]int{} // of an operation, by host: the deepest packet it got
	next := map[[4]uint16]uint32{}  // of a direction of a connection: the byte that comes next
	for _, e := range t {
		switch e.Kind {
		case Marked:
			now[e.From] = e.Text
		case Sent:
			name := now[e.From]
			if e.Payload == 0 || name == "" || e.To < 0 {
				continue
			}
			op := all[name]
			if op == nil {
				op = &Operation{Bytes: map[[2]int]int{}}
				all[name], got[name] = op, map[int]int{}
			}
			way, conn := [2]int{e.From, e.To}, [4]uint16{uint16(e.From), e.Ports[0], uint16(e.To), e.Ports[1]}
			end, old := e.Seq+uint32(e.Payload), next[conn]
			if _, seen := next[conn]; seen && int32(end-old) <= 0 {
				continue // once more
			}
			fresh := e.Payload
			if old, seen := next[conn]; seen && int32(old-e.Seq) > 0 {
				fresh = int(end - old)
			}
			next[conn] = end
			op.Bytes[way] += fresh
			of[e.Packet], depth[e.Packet] = name, got[name][e.From]+1
		case Delivered:
			if name, ok := of[e.Packet]; ok {
				got[name][e.To] = max(got[name][e.To], depth[e.Packet])
				all[name].Steps = max(all[name].Steps, depth[e.Packet])
			}
		}
	}
	return all
}
