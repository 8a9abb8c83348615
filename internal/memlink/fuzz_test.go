//go:build linux

package memlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// FuzzRing has an honest sender and receiver: what goes in comes out, in order, whatever the lengths and
// however often the receiver looks. A byte below 192 sends a frame of some length, others let the receiver
// read.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 1, 43, 44, 45, 64, 100, 191, 255, 255, 255})
	f.Add(bytes.Repeat([]byte{190}, 300))
	f.Add(bytes.Repeat([]byte{191, 3, 255, 5, 255}, 100))
	seg := memory(f, 4096)
	f.Fuzz(func(t *testing.T, script []byte) {
		a, b := pairIn(seg, Config{Data: 4096})
		var sent []int // lengths
		for _, x := range script {
			if x >= 192 {
				if _, err := b.read(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			i, n := len(sent), int(x)*int(x)/4 // up to more than the data ring
			h := frame.Header{Kind: frame.Eager, Context: uint32(i) * 3, Tag: int32(i), Length: uint64(n)}
			if i%2 == 1 {
				h = frame.Header{Kind: frame.Data, Token: uint64(i), Offset: uint64(n), Length: uint64(n)}
			}
			write(t, a, b, h, bytes.Repeat([]byte{byte(i)}, n))
			sent = append(sent, n)
		}
		readAll(t, b)
		if len(b.frames) != len(sent) {
			t.Fatalf("%d frames have arrived of %d", len(b.frames), len(sent))
		}
		for i, h := range b.frames {
			right := h == frame.Header{Kind: frame.Eager, Context: uint32(i) * 3, Tag: int32(i), Length: uint64(sent[i])}
			if i%2 == 1 {
				right = h == frame.Header{Kind: frame.Data, Token: uint64(i), Offset: uint64(sent[i]), Length: uint64(sent[i])}
			}
			if !right || !bytes.Equal(b.bodies[i], bytes.Repeat([]byte{byte(i)}, sent[i])) {
				t.Fatalf("frame %d of %d bytes is %+v", i, sent[i], h)
			}
		}
	})
}

// hostile checks what a Link passes on.
type hostile struct{ t *testing.T }

func (r hostile) Begin(a *frame.Arrival) error {
	h := &a.Head
	if !h.Kind.Valid() || h.Length > lengthMax || a.Left > frame.MaxPayload || uint64(a.Left) != h.Payload() {
		r.t.Fatalf("%+v with %d bytes of payload", *h, a.Left)
	}
	return nil
}

func (r hostile) End(a *frame.Arrival) error {
	if a.Left != 0 {
		r.t.Fatalf("%+v ends, and %d bytes are missing", a.Head, a.Left)
	}
	return nil
}

// FuzzHostileRing has cells, heads and descs as a faulty process may write them: nothing outside of the
// rings is read or handed out, and what cannot be is ErrFrame.
func FuzzHostileRing(f *testing.F) {
	cell := func(kind, size uint64) []byte {
		return binary.LittleEndian.AppendUint64(make([]byte, 4), kind<<kindBits|size)
	}
	f.Add(cell(uint64(frame.Eager), 0))
	f.Add(cell(uint64(frame.Eager), inlineMax))
	f.Add(cell(uint64(frame.Eager), inlineMax+1))
	f.Add(cell(uint64(frame.Eager), sizeMask))
	f.Add(bytes.Repeat(cell(uint64(frame.Data), 2048), 70))
	f.Add(append(cell(uint64(frame.Eager), 4096), bytes.Repeat(cell(kindMore, 1024), 5)...))
	f.Add(cell(uint64(frame.Expose), 1<<40))
	f.Add(bytes.Repeat(cell(kindProbe, probeSize), 30))
	f.Add(bytes.Repeat(cell(61, 1<<41), 3))
	f.Add(bytes.Repeat([]byte{255}, 12*80))
	seg := memory(f, 4096)
	f.Fuzz(func(t *testing.T, text []byte) {
		a, b := pairIn(seg, Config{Data: 4096, Copies: true, Spare: true})
		in := frame.Arrival{Receiver: hostile{t}}
		for ; len(text) >= 12; text = text[12:] {
			// The sender meets a head, and a desc in any state.
			word := binary.LittleEndian.Uint64(text[4:])
			a.out.r.head.Store(binary.LittleEndian.Uint32(text))
			body := make([]byte, int(text[4])*8)
			n, err := a.Write(&frame.Header{Kind: frame.Eager, Length: uint64(len(body))}, body, 0)
			if err != nil || n < 0 || n > frame.HeaderSize+len(body) {
				t.Fatalf("%d of %d bytes written, %v", n, frame.HeaderSize+len(body), err)
			}
			if o := &a.out; o.tail-o.head > cells || o.free > o.pos || o.pos-o.free > 2*uint64(len(o.data)) {
				t.Fatalf("with head %d: tail %d, head %d, bytes %d to %d", o.r.head.Load(), o.tail, o.head, o.free, o.pos)
			}
			s := &Transfer{}
			if _, ok := a.Announce(s, body); ok {
				s.desc.state.Store(descState(s.gen, uint64(text[0])%8))
				a.theirs[s.idx].n.Store(word)
				a.Step(newCompleter()) // dst is 0, which no process has mapped
			}
			// The receiver meets a cell.
			c := &b.Link.in.r.cells[b.Link.in.next%cells]
			c.size, c.ctx, c.tag = word, binary.LittleEndian.Uint32(text), int32(n)
			copy(c.data[:], text)
			atomic.StoreUint32(&c.seq, b.Link.in.next+1)
			moved, err := b.Read(&in)
			if !moved || err != nil && !errors.Is(err, frame.ErrFrame) {
				t.Fatalf("the cell is read: %v, %v", moved, err)
			}
			if err != nil { // the engine gives the link up
				in.Left, in.Head.Kind = 0, 0
			}
			if b.Valid(word) {
				b.Announced(word)
			}
		}
	})
}
