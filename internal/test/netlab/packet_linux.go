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

// repair sets the checksum of a TCP segment to what it ought to be (RFC 9293, section 3.1).
func repair(b []byte, p *packet) {
	h := b[p.head:p.end]
	h[16], h[17] = 0, 0
	binary.BigEndian.PutUint16(h[16:], checksum(b, p))
}

// checksum is that of a segment with its pseudo-header: 0 if the one that is in it is right.
func checksum(b []byte, p *packet) uint16 {
	h := b[p.head:p.end]
	sum := uint64(protocolTCP) + uint64(len(h))
	for _, part := range [][]byte{b[12:20], h} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint64(binary.BigEndian.Uint16(part[i:]))
		}
		if len(part)%2 == 1 {
			sum += uint64(part[len(part)-1]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
