// Package names is a DNS server for tests. Its names become known, and change, while it runs.
package names

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// A Server answers queries for addresses (RFC 1035, section 4; RFC 3596). Its methods may be called concurrently.
type Server struct {
	conn net.PacketConn
	all  sync.WaitGroup

	mu    sync.Mutex
	known map[string]netip.Addr
	asked map[string]int
}

// Serve starts a server at conn, which it owns from then on.
func Serve(conn net.PacketConn) *Server {
	s := &Server{conn: conn, known: map[string]netip.Addr{}, asked: map[string]int{}}
	s.all.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := s.answer(b[:n]); answer != nil {
				conn.WriteTo(answer, from)
			}
		}
	})
	return s
}

// Set gives a name an address, in place of the one that it had. The zero address makes the name unknown again.
func (s *Server) Set(name string, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = a
}

// Asked returns how many queries there were for the IPv4 address of a name.
func (s *Server) Asked(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

// Close ends the server.
func (s *Server) Close() error {
	err := s.conn.Close()
	s.all.Wait()
	return err
}

const (
	headerSize = 12
	typeA      = 1
	typeAAAA   = 28
	noSuchName = 3
	answering  = 0x8580 // a response, authoritative, recursion desired and available
	toQuestion = 0xc000 | headerSize
)

// answer returns the response to a query, nil to what is none.
func (s *Server) answer(query []byte) []byte {
	if len(query) < headerSize {
		return nil
	}
	var labels []string
	at := headerSize
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end > len(query) {
			return nil
		}
		labels, at = append(labels, string(query[at+1:end])), end
	}
	if at += 5; at > len(query) { // the root, type, and class
		return nil
	}
	asks, name := binary.BigEndian.Uint16(query[at-4:]), strings.Join(labels, ".")
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[name]
	flags, answers := uint16(answering), uint16(0)
	if asks == typeA {
		s.asked[name]++
	}
	if !a.IsValid() {
		flags |= noSuchName
	} else if asks == typeA && a.Is4() || asks == typeAAAA && a.Is6() {
		answers = 1
	}
	r := append([]byte{}, query[:2]...)
	for _, v := range []uint16{flags, 1, answers, 0, 0} {
		r = binary.BigEndian.AppendUint16(r, v)
	}
	r = append(r, query[headerSize:at]...)
	if answers == 1 {
		for _, v := range []uint16{toQuestion, asks, 1, 0, 0, uint16(a.BitLen() / 8)} { // for no time: nobody is to keep it
			r = binary.BigEndian.AppendUint16(r, v)
		}
		r = append(r, a.AsSlice()...)
	}
	return r
}
