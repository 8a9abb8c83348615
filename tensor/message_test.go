package tensor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// envelopeOf encodes an envelope as message.go describes.
func envelopeOf(version, flags byte, kind backend.Kind, piece, number uint32, shape []uint64, payload string) []byte {
	b := []byte{version, flags, byte(kind), byte(len(shape))}
	b = binary.LittleEndian.AppendUint32(b, piece)
	b = binary.LittleEndian.AppendUint32(b, number)
	for _, n := range shape {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, payload...)
}

func TestEnvelopesSurviveEncoding(t *testing.T) {
	wide := make([]int, maxDims)
	for i := range wide {
		wide[i] = 1
	}
	wide[3] = 1 << 20
	for _, c := range []struct {
		name string
		p    untyped
		want []byte
	}{
		{"no dimensions", untyped{kind: backend.Uint16, size: 2, host: []byte{7, 8}}, envelopeOf(1, 1, backend.Uint16, 4096, 9, nil, "\x07\x08")},
		{"two", untyped{kind: backend.Int8, shape: []int{2, 3}, size: 6, host: []byte("abcdef")}, envelopeOf(1, 1, backend.Int8, 4096, 9, []uint64{2, 3}, "abcdef")},
		{"empty", untyped{kind: backend.Float64, shape: []int{5, 0}}, envelopeOf(1, 1, backend.Float64, 4096, 9, []uint64{5, 0}, "")},
		{"empty on a device", untyped{kind: backend.Float64, shape: []int{0}, dev: &Device{}}, envelopeOf(1, 1, backend.Float64, 4096, 9, []uint64{0}, "")},
		{"short on a device", untyped{kind: backend.Int8, shape: []int{2}, size: 2, dev: &Device{}}, envelopeOf(1, 0, backend.Int8, 4096, 9, []uint64{2}, "")},
		{"the longest inside", untyped{kind: backend.Uint8, shape: []int{1004}, size: 1004, host: make([]byte, 1004)}, envelopeOf(1, 1, backend.Uint8, 4096, 9, []uint64{1004}, string(make([]byte, 1004)))},
		{"one byte more", untyped{kind: backend.Uint8, shape: []int{1005}, size: 1005, host: make([]byte, 1005)}, envelopeOf(1, 0, backend.Uint8, 4096, 9, []uint64{1005}, "")},
		{"many", untyped{kind: backend.Complex128, shape: wide, size: 16 << 20, host: make([]byte, 16<<20)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &envelope{number: 9}
			b := l.write(&c.p, 4096)
			if c.want != nil && !bytes.Equal(b, c.want) {
				t.Fatalf("the envelope is\n%q, want\n%q", b, c.want)
			}
			back := new(envelope)
			if err := back.read(copy(back.b[:], b), 9); err != nil {
				t.Fatal(err)
			}
			if err := back.matches(&c.p); err != nil || back.size != c.p.size || back.piece != 4096 || back.number != 9 {
				t.Errorf("%v; %d bytes in pieces of %d under tag %d", err, back.size, back.piece, back.number)
			}
			if inside := c.p.size == 0 || c.p.dev == nil && len(c.want) == len(b) && len(b) > envelopeHead+8*len(c.p.shape); inside != (back.inside != nil) {
				t.Errorf("payload inside: %t, want %t", back.inside != nil, inside)
			}
			if back.inside != nil && !bytes.Equal(back.inside, c.p.host) {
				t.Errorf("the payload is %q, want %q", back.inside, c.p.host)
			}
		})
	}
}

func TestMalformedEnvelopesAreRejected(t *testing.T) {
	const f32 = backend.Float32
	for _, c := range []struct {
		name     string
		b        []byte
		sentinel error
	}{
		{"nothing", nil, cohort.ErrInternal},
		{"too short", []byte{1, 0, byte(f32), 0, 0, 4, 0, 0, 0, 0, 0}, cohort.ErrInternal},
		{"another version", envelopeOf(2, 0, f32, 4096, 0, []uint64{100}, ""), cohort.ErrMismatch},
		{"flags", envelopeOf(1, 2, f32, 4096, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"bool", envelopeOf(1, 0, backend.Bool, 4096, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"loc", envelopeOf(1, 0, backend.Loc, 4096, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"kind", envelopeOf(1, 0, 255, 4096, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"too many dimensions", envelopeOf(1, 1, backend.Int8, 4096, 0, ones[uint64](maxDims+1), "x"), cohort.ErrInternal},
		{"missing dimensions", envelopeOf(1, 0, f32, 4096, 0, []uint64{100}, "")[:19], cohort.ErrInternal},
		{"pieces of nothing", envelopeOf(1, 0, f32, 0, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"long pieces", envelopeOf(1, 0, f32, chunkMost+1, 0, []uint64{100}, ""), cohort.ErrInternal},
		{"tag", envelopeOf(1, 0, f32, 4096, 1000, []uint64{100}, ""), cohort.ErrInternal},
		{"negative length", envelopeOf(1, 0, f32, 4096, 0, []uint64{1 << 63}, ""), cohort.ErrInternal},
		{"too many elements", envelopeOf(1, 0, f32, 4096, 0, []uint64{1 << 40, 1 << 40}, ""), cohort.ErrInternal},
		{"too many bytes", envelopeOf(1, 0, backend.Complex128, 4096, 0, []uint64{1 << 60}, ""), cohort.ErrInternal},
		{"too little inside", envelopeOf(1, 1, f32, 4096, 0, []uint64{2}, "1234567"), cohort.ErrInternal},
		{"too much inside", envelopeOf(1, 1, f32, 4096, 0, []uint64{2}, "123456789"), cohort.ErrInternal},
		{"inside without the flag", envelopeOf(1, 0, f32, 4096, 0, []uint64{2}, "12345678"), cohort.ErrInternal},
		{"nothing without the flag", envelopeOf(1, 0, f32, 4096, 0, []uint64{0}, ""), cohort.ErrInternal},
		{"the flag without anything", envelopeOf(1, 1, f32, 4096, 0, []uint64{2}, ""), cohort.ErrInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := new(envelope)
			if err := l.read(copy(l.b[:], c.b), 999); !errors.Is(err, c.sentinel) {
				t.Errorf("error %v, want %v", err, c.sentinel)
			}
		})
	}
	l := new(envelope)
	if err := l.read(len(l.b)+1, 9); !errors.Is(err, cohort.ErrInternal) {
		t.Errorf("more bytes than there is room: %v", err)
	}
}

func ones[T int | uint64](n int) []T {
	lens := make([]T, n)
	for i := range lens {
		lens[i] = 1
	}
	return lens
}

// Any envelope that is accepted is consistent, and encodes to the same bytes.
func FuzzEnvelope(f *testing.F) {
	f.Add(envelopeOf(1, 1, backend.Float32, 1<<20, 3, []uint64{2, 1}, "12345678"))
	f.Add(envelopeOf(1, 0, backend.Complex128, 1<<20, 3, []uint64{1 << 20, 2, 1 << 20}, ""))
	f.Add(envelopeOf(1, 1, backend.Int64, 1<<20, 0, []uint64{0, 1 << 62}, ""))
	f.Add(envelopeOf(1, 0, backend.Int8, 1<<20, 0, []uint64{1 << 62, 2}, ""))
	f.Add([]byte(strings.Repeat("\x01", envelopeMost)))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := new(envelope)
		n := copy(l.b[:], b)
		if l.read(n, 1000) != nil {
			return
		}
		size := datatype.Number(l.kind).Size
		for _, d := range l.shape() {
			if d < 0 {
				t.Fatalf("the shape is %v", l.shape())
			}
			size *= d
		}
		if size != l.size || l.size < 0 || l.number > 1000 || l.inside != nil && len(l.inside) != l.size {
			t.Fatalf("%v%v: %d bytes, %d inside, tag %d", l.kind, l.shape(), l.size, len(l.inside), l.number)
		}
		p := untyped{kind: l.kind, shape: l.shape(), size: l.size, host: l.inside}
		if l.inside == nil {
			p.dev = &Device{}
		}
		if again := (&envelope{number: l.number}).write(&p, l.piece); !bytes.Equal(again, b[:n]) {
			t.Fatalf("it is written as\n%q, and was\n%q", again, b[:n])
		}
	})
}

// Blocking messages of tensors on the processor do not allocate: short ones, and long ones whose
// receiver is waiting.
func TestMessagesDoNotAllocate(t *testing.T) { messagesDoNotAllocate(t, CPU) }

func messagesDoNotAllocate(t *testing.T, place *Device) {
	t.Helper()
	if racing {
		t.Skip("the race detector allocates")
	}
	for _, n := range []int{1, 100, 100000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onRanks(t, []int{2}, func(t *testing.T, world *cohort.Comm) error {
				c := must.Get(messageComm(world))
				x := must.Get(NewOn[float64](place, n))
				const runs = 200 // AllocsPerRun adds one
				other := 1 - c.Rank()
				var failed error
				round := func() {
					if c.Rank() == 0 {
						if err := Send(c, x, other, 0); err != nil {
							failed = err
						}
					}
					if _, err := Recv(c, x, other, 0); err != nil {
						failed = err
					}
					if c.Rank() == 1 {
						if err := Send(c, x, other, 0); err != nil {
							failed = err
						}
					}
				}
				for range 20 { // what is made once
					round()
				}
				if c.Rank() == 1 { // it counts both ranks' together
					for range runs + 1 {
						round()
					}
				} else if got := testing.AllocsPerRun(runs, round); got != 0 {
					t.Errorf("a round trip of %d numbers makes %v allocations", n, got)
				}
				return errors.Join(failed, x.Close(), c.Close())
			})
		})
	}
}

// BenchmarkMessages measures half a round trip between two goroutines, for tensors and for slices.
func BenchmarkMessages(b *testing.B) {
	for _, n := range []int{8, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("%d/tensor", n), func(b *testing.B) {
			pingpong(b, n, func(c *Comm, t *Tensor[uint8], other int) error { return Send(c, t, other, 0) },
				func(c *Comm, t *Tensor[uint8], other int) error { _, err := Recv(c, t, other, 0); return err })
		})
		b.Run(fmt.Sprintf("%d/slice", n), func(b *testing.B) {
			pingpong(b, n, func(c *Comm, t *Tensor[uint8], other int) error { return cohort.Send(c.coll, t.data, other, 0) },
				func(c *Comm, t *Tensor[uint8], other int) error {
					_, err := cohort.Recv(c.coll, t.data, other, 0)
					return err
				})
		})
	}
}

func pingpong(b *testing.B, n int, send, recv func(*Comm, *Tensor[uint8], int) error) {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		c, err := NewComm(world, nil)
		if err != nil {
			return err
		}
		t, err := New[uint8](n)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			b.ResetTimer()
		}
		for i := range 2 * ((b.N + 1) / 2) {
			if i%2 == c.Rank() {
				err = send(c, t, 1-c.Rank())
			} else {
				err = recv(c, t, 1-c.Rank())
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(world.Barrier(), c.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
}
