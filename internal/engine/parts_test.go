package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// strips is a backend.Parts whose elements are size bytes of every second size bytes of memory.
type strips struct {
	memory    []byte
	size, at  int
	scattered bool
}

func (s *strips) Pack(dst []byte) int {
	return s.move(dst, func(packed, own []byte) { copy(packed, own) })
}
func (s *strips) Unpack(src []byte) int {
	return s.move(src, func(packed, own []byte) { copy(own, packed) })
}
func (s *strips) Scattered() bool { return s.scattered }

func (s *strips) move(packed []byte, copies func(packed, own []byte)) (n int) {
	for ; len(packed)-n >= s.size && s.at < len(s.memory); n += s.size {
		copies(packed[n:][:s.size], s.memory[s.at:][:s.size])
		s.at += 2 * s.size
	}
	return n
}

// A message that the engine packs and unpacks in pieces is the same as one that is packed before. The pieces, and the
// frames of a message that is not, end inside elements.
func TestPartsMoveWholeMessages(t *testing.T) {
	ranks := mesh(t, 2)
	for _, size := range []int{1, 8, 24, 1000} {
		for _, elements := range []int{0, 1, 3, EagerMax/size + 1, 3*packSocket/size + 5, 2*pieceMax/size + 7} {
			n := size * elements
			memory := make([]byte, 2*n)
			for i := range memory {
				memory[i] = byte(i*7 + i>>8*13)
			}
			message := make([]byte, n)
			(&strips{memory: memory, size: size}).Pack(message)
			for _, c := range []struct {
				what       string
				from, to   bool // is in parts
				room, dest int
			}{
				{"from parts", true, false, n, 1}, {"to parts", false, true, n, 1}, {"from parts to parts", true, true, n, 1},
				{"from parts to this rank", true, false, n, 0},
				{"from parts, cut", true, false, max(0, n-size/2-1), 1}, {"to parts, cut", true, true, max(0, n-size), 1},
			} {
				var in, out backend.Request
				recv, image := make([]byte, c.room), make([]byte, 2*c.room)
				target := &strips{memory: image, size: size}
				if c.to {
					in.Parts = target
				}
				in.Begin()
				ranks[c.dest].Irecv(&in, recv, 0, 3)
				buf := message
				if c.from {
					buf, out.Parts = make([]byte, n), &strips{memory: memory, size: size}
				}
				out.Begin()
				ranks[0].Isend(&out, buf, c.dest, 3, backend.Standard)
				until(t, c.what, ranks[0], func() bool {
					ranks[c.dest].Poll()
					return out.Ready() && in.Ready()
				})
				want := error(nil)
				if c.room < n {
					want = backend.ErrTruncate
				}
				if out.Err != nil || !errors.Is(in.Err, want) || in.Status != (backend.Status{Tag: 3, Bytes: n}) {
					t.Fatalf("%d elements of %d bytes %s: %v; %v, %+v", elements, size, c.what, out.Err, in.Err, in.Status)
				}
				switch {
				case target.at > 0 && want != nil:
					t.Fatalf("%d elements of %d bytes %s: a message that is too long was unpacked", elements, size, c.what)
				case target.at > 0: // unpacked, all of it
					recv = make([]byte, n)
					(&strips{memory: image, size: size}).Pack(recv)
				case n > EagerMax && c.to && want == nil:
					t.Fatalf("%d elements of %d bytes %s: nothing was unpacked", elements, size, c.what)
				}
				if !bytes.Equal(recv, message[:c.room]) {
					t.Fatalf("%d elements of %d bytes %s: the message has changed", elements, size, c.what)
				}
			}
		}
	}
}

// A message that is canceled before it has matched is neither packed nor unpacked.
func TestPartsOfCanceledMessageStay(t *testing.T) {
	ranks := mesh(t, 2)
	from := &strips{memory: make([]byte, 4*EagerMax), size: 8}
	q := &backend.Request{Parts: from}
	q.Begin()
	ranks[0].Isend(q, make([]byte, 2*EagerMax), 1, 1, backend.Standard)
	ranks[0].Cancel(q)
	if err := await(t, ranks[0], q); !errors.Is(err, backend.ErrCanceled) || from.at > 0 {
		t.Fatalf("a send that was canceled: %v, %d bytes packed", err, from.at)
	}
	into := &strips{memory: make([]byte, 4*EagerMax), size: 8}
	in := &backend.Request{Parts: into}
	in.Begin()
	ranks[1].Irecv(in, make([]byte, 2*EagerMax), 0, 1)
	if !ranks[1].Cancel(in) || into.at > 0 {
		t.Fatalf("a receive that was canceled: %v, %d bytes unpacked", in.Err, into.at)
	}
}
