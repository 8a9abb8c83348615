package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// has checks that err wraps target and contains parts.
func has(t *testing.T, err, target error, parts ...string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want one that wraps %v", err, target)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not contain %q", err, p)
		}
	}
}

// slowCRC is Castagnoli's CRC bit by bit, as RFC 3720, appendix B.4, has it.
func slowCRC(crc uint32, b []byte) uint32 {
	crc = ^crc
	for _, x := range b {
		crc ^= uint32(x)
		for range 8 {
			crc = crc>>1 ^ crc&1*0x82f63b78
		}
	}
	return ^crc
}

func TestSumIsCastagnoliCRC(t *testing.T) {
	if got := Sum(0, []byte("123456789")); got != 0xe3069283 { // the check value of CRC-32/ISCSI
		t.Errorf("sum %#x", got)
	}
	b := []byte("what comes in pieces")
	if Sum(Sum(0, b[:7]), b[7:]) != Sum(0, b) || Sum(0, b) != slowCRC(0, b) {
		t.Error("the sum of pieces is not that of the whole")
	}
}

// frames has one of each kind, with everything that the kind can have.
var frames = []Header{
	{Kind: Eager, Flags: FlagSummed, Elems: 0xfedc, Context: 0xfedcba98, Tag: -5, Length: 77, Sum: 0xdeadbeef},
	{Kind: ReadyToSend, Elems: 1, Context: 3, Tag: 1<<31 - 1, Length: MaxMessage, Token: 9},
	{Kind: ClearToSend, Length: 1 << 40, Token: 9, Reply: 1<<64 - 1},
	{Kind: Data, Flags: FlagSummed, Length: 100, Token: 12, Offset: 1 << 41, Sum: 7},
	{Kind: Withdraw, Tag: 1, Token: 5},
	{Kind: Withdrawn, Token: 5},
	{Kind: Expose, Elems: 1 << 15, Context: 4, Tag: -9, Length: 1 << 40, Token: 1 << 61},
	{Kind: Broken, Flags: FlagSummed, Context: 8, Tag: -1, Length: 100, Sum: 1},
	{Kind: Closed, Context: 1<<32 - 1, Tag: 5*MaxRanks + 4},
	{Kind: Goodbye},
	{Kind: Left, Flags: FlagSummed, Tag: 1, Length: 8, Sum: 4},
	{Kind: Heartbeat},
	{Kind: Abort, Tag: -1 << 31, Length: 3},
	{Kind: Lost, Tag: MaxRanks - 1, Length: 0},
	{Kind: Join, Length: 99},
	{Kind: Table, Flags: FlagSummed, Length: 100, Sum: 2},
	{Kind: Refused, Length: 1},
	{Kind: Agree, Length: 1},
	{Kind: Connected},
}

// layout writes a header by the layout's description, independently of Encode.
func layout(h Header, seed uint32) (b [HeaderSize]byte) {
	le := binary.LittleEndian
	b[0], b[1] = byte(h.Kind), h.Flags
	le.PutUint16(b[2:], h.Elems)
	le.PutUint32(b[4:], h.Context)
	le.PutUint32(b[8:], uint32(h.Tag))
	if h.Kind == Data {
		le.PutUint64(b[4:], h.Offset)
	}
	if h.Kind == ClearToSend {
		le.PutUint64(b[4:], h.Reply)
	}
	le.PutUint32(b[12:], h.Seq)
	le.PutUint64(b[16:], h.Length)
	le.PutUint64(b[24:], h.Token)
	le.PutUint32(b[32:], h.Sum)
	le.PutUint32(b[36:], slowCRC(seed, b[:36]))
	return b
}

func TestFramesRoundTrip(t *testing.T) {
	if len(frames) != int(kinds)-1 {
		t.Fatalf("%d frames for %d kinds", len(frames), kinds-1)
	}
	enc, dec := Encoder{Seed: 0x12345678}, Decoder{Seed: 0x12345678, Limit: 100}
	for i, want := range frames {
		h := want
		var b [HeaderSize]byte
		enc.Encode(&b, &h)
		if want.Seq = uint32(i); h != want {
			t.Errorf("%v: encoding made %+v of %+v", h.Kind, h, want)
		}
		if b != layout(want, 0x12345678) {
			t.Errorf("%v: % x\nwant % x", h.Kind, b, layout(want, 0x12345678))
		}
		var got Header
		if err := dec.Decode(&got, &b); err != nil || got != want {
			t.Errorf("decoded %+v, %v; want %+v", got, err, want)
		}
		if loaded := h.Length > 0 && h.Kind != ReadyToSend && h.Kind != ClearToSend && h.Kind != Expose; (h.Payload() > 0) != loaded {
			t.Errorf("%v: a payload of %d bytes", h.Kind, h.Payload())
		}
	}
}

// TestDecoderDetectsFlippedBits flips every bit of a frame of each kind, and every pair of neighbors.
func TestDecoderDetectsFlippedBits(t *testing.T) {
	for _, h := range frames {
		good := layout(h, 99)
		for i := range HeaderSize * 8 {
			for _, width := range []int{1, 2} {
				b := good
				for k := i; k < min(i+width, HeaderSize*8); k++ {
					b[k/8] ^= 1 << (k % 8)
				}
				if err := (&Decoder{Seed: 99, Limit: 100}).Decode(new(Header), &b); err == nil {
					t.Errorf("%v: a frame with bit %d flipped (%d bits) is taken", h.Kind, i, width)
				}
			}
		}
	}
}

func TestDecoderRejectsBadFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Header
		at   int // a byte to set, with a right checksum
		to   byte
		want string
	}{
		{"no kind", Header{}, 0, 0, "there is no kind 0"},
		{"a kind too far", Header{Kind: kinds}, 0, byte(kinds), "there is no kind"},
		{"flags", Header{Kind: ReadyToSend}, 1, FlagSummed, "ready to send: flags 0x1, and it can have 0x0"},
		{"unknown flags", Header{Kind: Eager}, 1, 0x80, "eager message: flags 0x80"},
		{"elements", Header{Kind: Data}, 2, 1, "data: elements 0x1, and it has none"},
		{"elements too", Header{Kind: Heartbeat}, 3, 1, "heartbeat: elements 0x100, and it has none"},
		{"sequence", Header{Kind: Eager, Seq: 1}, 1, 0, "sequence number 1, want 0"},
		{"too long", Header{Kind: Eager, Length: 101}, 1, 0, "a payload of 101 bytes, above the limit of 100"},
		{"longest", Header{Kind: Data, Length: 1<<64 - 1}, 1, 0, "length 18446744073709551615"},
		{"offered too much", Header{Kind: ReadyToSend, Length: MaxMessage + 1}, 1, 0, "ready to send: length"},
		{"offset", Header{Kind: Data, Offset: MaxMessage + 1}, 1, 0, "data: offset"},
		{"a sum, no flag", Header{Kind: Data, Sum: 1}, 1, 0, "without the flag"},
		{"context", Header{Kind: Abort, Context: 1}, 1, 0, "context 1, and it has none"},
		{"tag", Header{Kind: Heartbeat, Tag: 1}, 1, 0, "tag 1, and it has none"},
		{"length", Header{Kind: Goodbye, Length: 1}, 1, 0, "length 1, and it has none"},
		{"token", Header{Kind: Heartbeat, Token: 1}, 1, 0, "token 1, and it has none"},
		{"sum", Header{Kind: Withdraw, Sum: 1}, 1, 0, "without the flag"},
		{"lost -1", Header{Kind: Lost, Tag: -1}, 1, 0, "rank -1"},
		{"lost too far", Header{Kind: Lost, Tag: MaxRanks}, 1, 0, "rank 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := layout(c.h, 0)
			b[c.at] = c.to
			if c.at == 1 && c.to == 0 {
				b[1] = c.h.Flags
			}
			binary.LittleEndian.PutUint32(b[36:], slowCRC(0, b[:36]))
			dec := Decoder{Limit: 100}
			has(t, dec.Decode(new(Header), &b), ErrFrame, c.want)
			b = layout(Header{Kind: Heartbeat}, 0)
			if err := dec.Decode(new(Header), &b); err != nil {
				t.Errorf("a refused frame counts: %v", err)
			}
		})
	}
}

// TestDecoderDetectsMissingAndRepeatedFrames repeats, leaves out, and swaps frames.
func TestDecoderDetectsMissingAndRepeatedFrames(t *testing.T) {
	var enc Encoder
	var b [4][HeaderSize]byte
	for i := range b {
		enc.Encode(&b[i], &Header{Kind: Heartbeat})
	}
	for _, order := range [][]int{{0, 0}, {0, 2}, {1}, {0, 1, 0}, {0, 1, 3}} {
		var dec Decoder
		for i, k := range order {
			err := dec.Decode(new(Header), &b[k])
			if last := i == len(order)-1; (err != nil) != last {
				t.Errorf("order %v: frame %d: %v", order, i, err)
			}
		}
	}
	// The numbers go on after the last.
	enc, dec := Encoder{seq: 1<<32 - 1}, Decoder{seq: 1<<32 - 1}
	for range 2 {
		enc.Encode(&b[0], &Header{Kind: Goodbye})
		if err := dec.Decode(new(Header), &b[0]); err != nil {
			t.Error(err)
		}
	}
}

func TestPayloadChecksumDetectsFlippedBits(t *testing.T) {
	p := []byte("some payload")
	h := Header{Kind: Eager, Flags: FlagSummed, Length: uint64(len(p)), Sum: Sum(0, p)}
	if err := h.CheckSum(Sum(0, p)); err != nil {
		t.Error(err)
	}
	for i := range len(p) * 8 {
		q := bytes.Clone(p)
		q[i/8] ^= 1 << (i % 8)
		has(t, h.CheckSum(Sum(0, q)), ErrFrame, "the sum of its payload")
	}
	h.Flags = 0
	if err := h.CheckSum(Sum(0, p[1:])); err != nil {
		t.Errorf("without a sum: %v", err)
	}
}

func TestFramesDoNotAllocate(t *testing.T) {
	enc, dec := Encoder{}, Decoder{Limit: 100}
	h, got := frames[0], Header{}
	b := new([HeaderSize]byte)
	if n := testing.AllocsPerRun(100, func() {
		enc.Encode(b, &h)
		if err := dec.Decode(&got, b); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a frame", n)
	}
}

// FuzzFrame decodes anything, with a right checksum and without. A valid frame encodes to the same
// bytes, and keeps to the limits.
func FuzzFrame(f *testing.F) {
	for _, h := range frames {
		b := layout(h, 1)
		f.Add(b[:], uint32(1), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint32, fix bool) {
		var b [HeaderSize]byte
		copy(b[:], data)
		if fix {
			binary.LittleEndian.PutUint32(b[36:], slowCRC(seed, b[:36]))
		}
		seq := binary.LittleEndian.Uint32(b[12:])
		var h Header
		if (&Decoder{Seed: seed, seq: seq, Limit: 1000}).Decode(&h, &b) != nil {
			return
		}
		if h.Payload() > 1000 || h.Length > MaxMessage || h.Offset > MaxMessage || fmt.Sprint(h.Kind) == fmt.Sprintf("kind %d", h.Kind) {
			t.Errorf("taken: %+v", h)
		}
		var again [HeaderSize]byte
		if (&Encoder{Seed: seed, seq: seq}).Encode(&again, &h); again != b {
			t.Errorf("% x\nencodes to % x", b, again)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	b.ReportAllocs()
	enc, h, to := Encoder{Seed: rand.Uint32()}, frames[0], new([HeaderSize]byte)
	for b.Loop() {
		enc.Encode(to, &h)
	}
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	dec, h, from := Decoder{Limit: 100}, frames[0], layout(frames[0], 0)
	for b.Loop() {
		dec.seq = 0
		if err := dec.Decode(&h, &from); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSum(b *testing.B) {
	for _, n := range []int{64, 4096, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				Sum(0, p)
			}
		})
	}
}
