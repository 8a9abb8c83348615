//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// An honest sender and receiver: what goes in comes out, in order, whatever the lengths and however
// often the receiver looks. A byte below 192 sends a message of some length, others receive.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 1, 43, 44, 45, 64, 100, 191, 255, 255, 255})
	f.Add(bytes.Repeat([]byte{190}, 300))
	f.Add(bytes.Repeat([]byte{191, 3, 255, 5, 255}, 100))
	f.Fuzz(func(t *testing.T, script []byte) {
		r, data := new(ring), make([]byte, 4<<10)
		out, in := outRing{r: r, data: data}, inRing{r: r, data: data}
		var sent []int // lengths under way
		taken, number := 0, 0
		receive := func() {
			h, payload, ok := in.peek()
			if !ok {
				t.Fatalf("no message, and %d are under way", len(sent))
			}
			if h.kind != kindEager || h.size != sent[0] || h.tag != int32(taken) || h.ctx != uint32(taken)*3 {
				t.Fatalf("message %d is %+v, want %d bytes", taken, h, sent[0])
			}
			if len(payload) != sent[0] || len(payload) > 0 && (payload[0] != byte(taken) || payload[len(payload)-1] != byte(taken)) {
				t.Fatalf("message %d has %d bytes, want %d of %d", taken, len(payload), sent[0], byte(taken))
			}
			in.take(footprint(h.kind, h.size))
			sent, taken = sent[1:], taken+1
		}
		for _, b := range script {
			if b >= 192 {
				if len(sent) > 0 {
					receive()
				}
				continue
			}
			n := int(b) * len(data) / 8 / 191 // up to an eighth of the data ring
			c, buf, ok := out.room(n)
			for !ok { // full: there is something to take, and then there is room
				if len(sent) == 0 {
					t.Fatalf("no room for %d bytes in an empty ring", n)
				}
				receive()
				c, buf, ok = out.room(n)
			}
			for i := range buf {
				buf[i] = byte(number)
			}
			out.publish(c, kindEager, uint32(number)*3, int32(number), n)
			sent, number = append(sent, n), number+1
		}
		for len(sent) > 0 {
			receive()
		}
		if _, _, ok := in.peek(); ok {
			t.Fatal("a message that was never sent")
		}
	})
}

// Cells and heads as another process that is not one of ours may write them: nothing outside of the
// ring is read or handed out, and a payload that cannot be is said to be one.
func FuzzHostileRing(f *testing.F) {
	cell := func(kind uint64, size uint64) []byte {
		return binary.LittleEndian.AppendUint64(make([]byte, 4), kind<<sizeBits|size)
	}
	f.Add(cell(kindEager, 0))
	f.Add(cell(kindEager, inlineMax))
	f.Add(cell(kindEager, inlineMax+1))
	f.Add(cell(kindEager, 1<<sizeBits-1))
	f.Add(bytes.Repeat(cell(kindChunk, 2048), 70))
	f.Add(cell(kindRTS, 1<<46))
	f.Add(bytes.Repeat(cell(255, 1<<55), 3))
	f.Add(bytes.Repeat([]byte{255}, 12*80))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, data := new(ring), make([]byte, 4<<10)
		out, in := outRing{r: r, data: data}, inRing{r: r, data: data}
		for ; len(text) >= 12; text = text[12:] {
			// The sender meets a head.
			r.head.Store(binary.LittleEndian.Uint32(text))
			n := int(text[4]) * 2
			if c, buf, ok := out.room(n); ok {
				if c == nil || len(buf) != n {
					t.Fatalf("room of %d bytes, want %d", len(buf), n)
				}
				clear(buf)
				out.publish(c, kindEager, 0, 0, n)
			}
			if out.tail-out.head > cells || out.free > out.pos || out.pos-out.free > 2*uint64(len(data)) {
				t.Fatalf("with head %d: tail %d, head %d, bytes %d to %d", r.head.Load(), out.tail, out.head, out.free, out.pos)
			}
			// The receiver meets a cell.
			c := &r.cells[in.next%cells]
			c.size, c.ctx, c.tag = binary.LittleEndian.Uint64(text[4:]), binary.LittleEndian.Uint32(text), int32(n)
			c.seq.Store(in.next + 1)
			h, payload, ok := in.peek()
			if !ok {
				t.Fatal("the cell is not there")
			}
			if payload == nil {
				if h != (header{}) {
					t.Fatalf("a header %+v without what it is of", h)
				}
				continue // the engine ends the job
			}
			want := h.size
			if h.kind == kindRTS {
				want = rtsSize
				getRTS(payload)
			}
			if len(payload) != want || want > len(data)/2 {
				t.Fatalf("%d bytes of payload for %+v", len(payload), h)
			}
			in.take(footprint(h.kind, want))
		}
	})
}
