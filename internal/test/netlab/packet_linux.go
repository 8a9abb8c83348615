package netlab

import (
	"encoding/binary"
	"net/netip"
)

// The numbers of the protocols above IP that are looked into.
const (
	protocolTCP = 6
	protocolUDP = 17
)

// packet holds the offsets of the parts of an IPv4 packet.
type packet struct {
	src, dst netip.Addr
	protocol byte
	ports    [2]uint16 // source and destination
	seq      uint32    // of TCP
	flags    byte      // of TCP
	head     int       // where the header of TCP or UDP begins
	data     int       // where what it carries begins
	end      int       // where the packet ends
}

// parse reads the headers of a packet. It reports false for what is no whole IPv4 packet.
func parse(b []byte, p *packet) bool {
	if len(b) < 20 || b[0]>>4 != 4 {
		return false
	}
	*p = packet{head: int(b[0]&15) * 4, end: int(binary.BigEndian.Uint16(b[2:])), protocol: b[9]}
	if p.head < 20 || p.end > len(b) || p.head > p.end {
		return false
	}
	p.src = netip.AddrFrom4([4]byte(b[12:16]))
	p.dst = netip.AddrFrom4([4]byte(b[16:20]))
	p.data = p.end
	h := b[p.head:p.end]
	switch {
	case binary.BigEndian.Uint16(b[6:])&0x3fff != 0: // a fragment: left alone
	case p.protocol == protocolTCP && len(h) >= 20:
		p.data = p.head + int(h[12]>>4)*4
		p.seq, p.flags = binary.BigEndian.Uint32(h[4:]), h[13]
	case p.protocol == protocolUDP && len(h) >= 8:
		p.data = p.head + 8
	}
	if p.data > p.end {
		return false
	}
	if p.data < p.end || len(h) >= 4 {
		p.ports = [2]uint16{binary.BigEndian.Uint16(h), binary.BigEndian.Uint16(h[2:])}
	}
	return true
}
