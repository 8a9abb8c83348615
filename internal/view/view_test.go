package view

import (
	"math"
	"runtime"
	"testing"
	"unsafe"
)

type cell struct {
	A uint8
	B float64
	C [3]int16
}

func TestBytesAndBack(t *testing.T) {
	s := []cell{{1, 2.5, [3]int16{1, 2, 3}}, {2, math.Pi, [3]int16{-1, -2, -3}}}
	b := Bytes(s)
	if len(b) != 2*int(unsafe.Sizeof(cell{})) || cap(b) != len(b) {
		t.Fatalf("Bytes of 2 cells: len %d cap %d", len(b), cap(b))
	}
	back := Of[cell](b)
	if len(back) != 2 || &back[0] != &s[0] {
		t.Fatalf("Of(Bytes(s)) is not s: len %d", len(back))
	}
	back[1].B = -1
	if s[1].B != -1 {
		t.Fatal("a write through the view is not seen in the slice")
	}
	if got := Size[cell](); got != int(unsafe.Sizeof(cell{})) {
		t.Fatalf("Size[cell] = %d", got)
	}
}

func TestViewsOfNothingAreNil(t *testing.T) {
	if Bytes[int](nil) != nil || Bytes([]int{}) != nil || Bytes([]struct{}{{}, {}}) != nil {
		t.Fatal("Bytes of nothing is not nil")
	}
	if Of[int64](nil) != nil || Of[int64](make([]byte, 7)) != nil || Of[struct{}](make([]byte, 7)) != nil {
		t.Fatal("Of too few bytes is not nil")
	}
	if got := len(Of[int16](make([]byte, 7))); got != 3 {
		t.Fatalf("7 bytes hold %d int16, want 3", got)
	}
}

func TestUnalignedViewsKeepValues(t *testing.T) {
	if runtime.GOARCH == "arm" {
		t.Skip("this processor faults on unaligned numbers")
	}
	b := make([]byte, 33)
	v := Of[float64](b[1:])
	for i := range v {
		v[i] = float64(i) + 0.5
	}
	for i := range 4 {
		bits := uint64(0)
		for j := 7; j >= 0; j-- {
			bits = bits<<8 | uint64(b[1+8*i+j])
		}
		if nativeIsLittle() && math.Float64frombits(bits) != float64(i)+0.5 {
			t.Fatalf("element %d stands wrong in the bytes", i)
		}
	}
	if b[0] != 0 {
		t.Fatal("a byte before the view was written")
	}
}

func nativeIsLittle() bool { return Bytes([]uint16{1})[0] == 1 }

func TestOverlapFindsSharedBytes(t *testing.T) {
	a := make([]byte, 10)
	for _, c := range []struct {
		x, y          []byte
		overlap, same bool
	}{
		{a, a, true, true},
		{a[:5], a[5:], false, false},
		{a[:6], a[5:], true, false},
		{a[5:], a[:6], true, false},
		{a[2:4], a, true, false},
		{a[3:3], a, false, false},
		{nil, nil, false, false},
		{a[:4], a[:5], true, false},
		{a, make([]byte, 10), false, false},
	} {
		if got := Overlap(c.x, c.y); got != c.overlap {
			t.Errorf("Overlap(len %d, len %d) = %v", len(c.x), len(c.y), got)
		}
		if got := Same(c.x, c.y); got != c.same {
			t.Errorf("Same(len %d, len %d) = %v", len(c.x), len(c.y), got)
		}
	}
}

func TestOneViewsSingleValue(t *testing.T) {
	x := 7
	s := One(&x)
	s[0]++
	if len(s) != 1 || cap(s) != 1 || x != 8 {
		t.Fatalf("One: len %d cap %d x %d", len(s), cap(s), x)
	}
}

var sink []byte

func BenchmarkBytes(b *testing.B) {
	s := make([]float64, 8)
	b.ReportAllocs()
	for b.Loop() {
		sink = Bytes(s)
	}
}

func TestCViewsMemoryOfC(t *testing.T) {
	a := []float64{1, 2, 3}
	if v := C(&a[0], 2); len(v) != 2 || &v[0] != &a[0] || v[1] != 2 {
		t.Errorf("got %v, want the first two of %v", v, a)
	}
	for _, v := range [][]float64{C[float64](nil, 2), C(&a[0], 0)} {
		if v != nil {
			t.Errorf("got %v, want nil", v)
		}
	}
}
