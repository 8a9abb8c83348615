package tensor

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func TestNewChecksShape(t *testing.T) {
	const most = math.MaxInt
	const root = 1 << (bits.UintSize / 2)
	for _, c := range []struct {
		shape []int
		n     int
		want  error
	}{
		{nil, 1, nil},
		{[]int{7}, 7, nil},
		{[]int{2, 3, 4}, 24, nil},
		{[]int{2, 0, 4}, 0, nil},
		{[]int{0}, 0, nil},
		{[]int{1, 1, 1}, 1, nil},
		{[]int{0, most / 8}, 0, nil},
		{[]int{-1}, 0, cohort.ErrCount},
		{[]int{0, -1}, 0, cohort.ErrCount},
		{[]int{most / 4}, 0, cohort.ErrCount},                  // of 8 bytes
		{[]int{root, root}, 0, cohort.ErrCount},                // 0 in the bits of an int
		{[]int{0, most, most}, 0, cohort.ErrCount},             // its strides overflow
		{[]int{most/8 - 1}, 0, cohort.ErrAlloc},                // more than the address space
		{[]int{most, 2, most, 2}, 0, cohort.ErrCount},          // overflows more than once
		{[]int{math.MinInt, 0, 1}, 0, cohort.ErrCount},         // no length
		{[]int{most/2 + 1, 4, most/2 + 1}, 0, cohort.ErrCount}, // zero after an overflow
	} {
		x, err := New[float64](c.shape...)
		if !errors.Is(err, c.want) {
			t.Errorf("New(%v): %v, want %v", c.shape, err, c.want)
		}
		if err != nil {
			continue
		}
		if x.Len() != c.n || len(x.Data()) != c.n || !slices.Equal(x.Shape(), c.shape) || !x.IsContiguous() || x.Device() != CPU {
			t.Errorf("New(%v): %v with %d elements, want %d", c.shape, x, x.Len(), c.n)
		}
		if _, err := Of(make([]float64, c.n+1), c.shape...); !errors.Is(err, cohort.ErrCount) {
			t.Errorf("Of one element too many as %v: %v", c.shape, err)
		}
		y, err := Of(make([]float64, c.n, c.n+5), c.shape...)
		if err != nil || y.Len() != c.n || cap(y.Data()) != c.n {
			t.Errorf("Of %d elements as %v: %v with capacity %d, %v", c.n, c.shape, y, cap(y.Data()), err)
		}
	}
}

func TestOfSharesMemory(t *testing.T) {
	data, shape := []int32{1, 2, 3, 4, 5, 6}, []int{2, 3}
	x := must.Get(Of(data, shape...))
	shape[0] = 9 // must not change the tensor
	x.Shape()[1], x.Strides()[1] = 9, 9
	if got := x.String(); got != "int32[2 3] on cpu" {
		t.Errorf("got %q", got)
	}
	if !slices.Equal(x.Strides(), []int{3, 1}) {
		t.Errorf("the strides are %v", x.Strides())
	}
	if err := x.SetElem(40, 1, 0); err != nil || data[3] != 40 {
		t.Errorf("the slice is %v after element (1, 0) was set, %v", data, err)
	}
	if v, err := x.Elem(1, 2); v != 6 || err != nil {
		t.Errorf("element (1, 2) is %d, %v", v, err)
	}
}

func TestStridedChecksBounds(t *testing.T) {
	const most = math.MaxInt
	for _, c := range []struct {
		shape, strides []int
		n, raw         int // elements, and the length of the slice
		contiguous     bool
		want           error
	}{
		{nil, nil, 1, 1, true, nil},
		{[]int{2, 3}, []int{3, 1}, 6, 6, true, nil},
		{[]int{2, 3}, []int{4, 1}, 6, 7, false, nil},
		{[]int{3, 2}, []int{1, 3}, 6, 6, false, nil},
		{[]int{1, 5}, []int{99, 1}, 5, 5, true, nil},
		{[]int{4, 5}, []int{0, 1}, 20, 5, false, nil}, // one row, four times
		{[]int{3, 3}, []int{1, 1}, 9, 5, false, nil},  // windows
		{[]int{1, 1}, []int{most, most}, 1, 1, true, nil},
		{[]int{0, 7}, []int{most, most}, 0, 0, true, nil},
		{[]int{20}, []int{1}, 20, 20, true, nil},
		{[]int{21}, []int{1}, 0, 0, false, cohort.ErrBuffer},
		{[]int{2, 2}, []int{19, 1}, 0, 0, false, cohort.ErrBuffer},
		{[]int{2}, []int{most}, 0, 0, false, cohort.ErrBuffer},
		{[]int{3}, []int{most}, 0, 0, false, cohort.ErrBuffer}, // 2*most+1 is -1 in 64 bits
		{[]int{2, 3}, []int{4, most}, 0, 0, false, cohort.ErrBuffer},
		{[]int{3, 3, 3}, []int{most, most, most}, 0, 0, false, cohort.ErrBuffer},
		{[]int{5, 5}, []int{most / 2, most / 2}, 0, 0, false, cohort.ErrBuffer},
		{[]int{2, 3}, []int{3}, 0, 0, false, cohort.ErrCount},
		{nil, []int{3}, 0, 0, false, cohort.ErrCount},
		{[]int{2}, []int{-1}, 0, 0, false, cohort.ErrCount},
		{[]int{0}, []int{-1}, 0, 0, false, cohort.ErrCount},
		{[]int{-2}, []int{1}, 0, 0, false, cohort.ErrCount},
	} {
		x, err := Strided(make([]int16, 20), c.shape, c.strides)
		if !errors.Is(err, c.want) {
			t.Errorf("shape %v, strides %v: %v, want %v", c.shape, c.strides, err, c.want)
		}
		if err == nil && (x.Len() != c.n || len(x.Raw()) != c.raw || cap(x.Raw()) != c.raw || x.IsContiguous() != c.contiguous ||
			(x.Data() != nil) != c.contiguous) {
			t.Errorf("shape %v, strides %v: %d elements in %d, contiguous %v", c.shape, c.strides, x.Len(), len(x.Raw()), x.IsContiguous())
		}
	}
}

func TestElemRejectsWrongIndex(t *testing.T) {
	x := must.Get(New[float64](2, 3))
	empty := must.Get(New[float64](2, 0))
	for _, c := range []struct {
		x     *Tensor[float64]
		index []int
		want  error
	}{
		{x, []int{2, 0}, cohort.ErrCount},
		{x, []int{0, 3}, cohort.ErrCount},
		{x, []int{-1, 0}, cohort.ErrCount},
		{x, []int{0}, cohort.ErrCount},
		{x, []int{0, 0, 0}, cohort.ErrCount},
		{x, nil, cohort.ErrCount},
		{empty, []int{0, 0}, cohort.ErrCount},
		{&Tensor[float64]{}, nil, cohort.ErrCount},
		{nil, []int{0, 0}, cohort.ErrBuffer},
	} {
		if _, err := c.x.Elem(c.index...); !errors.Is(err, c.want) {
			t.Errorf("element %v of %v: %v, want %v", c.index, c.x, err, c.want)
		}
		if err := c.x.SetElem(1, c.index...); !errors.Is(err, c.want) {
			t.Errorf("set element %v of %v: %v, want %v", c.index, c.x, err, c.want)
		}
	}
	for i, v := range x.Data() {
		if v != 0 {
			t.Errorf("element %d was set to %v", i, v)
		}
	}
}

// Methods of a nil tensor return zero values or errors.
func TestNilTensorGivesZeroValues(t *testing.T) {
	var x *Tensor[float32]
	y := must.Get(New[float32]())
	if x.Shape() != nil || x.Strides() != nil || x.Len() != 0 || x.Device() != CPU || x.IsContiguous() || x.Data() != nil ||
		x.Raw() != nil || x.Address() != 0 || x.String() != "no tensor of float32" || x.Close() != nil {
		t.Error("a method of a tensor that is nil does not say that there is nothing")
	}
	for name, f := range map[string]func() error{
		"Reshape":        func() error { _, err := x.Reshape(); return err },
		"Sub":            func() error { _, err := x.Sub(0, 0, 0); return err },
		"Index":          func() error { _, err := x.Index(0, 0); return err },
		"Permute":        func() error { _, err := x.Permute(); return err },
		"Transpose":      func() error { _, err := x.Transpose(); return err },
		"Compact":        func() error { _, err := x.Compact(); return err },
		"To":             func() error { _, err := x.To(CPU); return err },
		"Copy from nil":  func() error { return Copy(y, x) },
		"Copy to nil":    func() error { return Copy(x, y) },
		"needContiguous": x.needContiguous,
	} {
		if err := f(); !errors.Is(err, cohort.ErrBuffer) {
			t.Errorf("%s: %v, want ErrBuffer", name, err)
		}
	}
}

func TestOperationsNeedContiguousTensors(t *testing.T) {
	x := must.Get(Strided(make([]float32, 12), []int{3, 2}, []int{4, 1}))
	err := x.needContiguous()
	if !errors.Is(err, cohort.ErrBuffer) {
		t.Fatalf("got %v, want ErrBuffer", err)
	}
	for _, part := range []string{"float32[3 2] on cpu", "[4 1]", "Compact"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if x, err = x.Compact(); err != nil || x.needContiguous() != nil {
		t.Errorf("what Compact returns is not contiguous: %v, %v", x, err)
	}
}

// FuzzStrided checks with big integers that Strided accepts exactly what fits into the slice.
func FuzzStrided(f *testing.F) {
	f.Add(20, 2, 3, 0, 3, 1, 0, uint8(2))
	f.Add(7, 2, 3, 1, 4, 1, 9, uint8(3))
	f.Add(20, 3, 3, 3, math.MaxInt, math.MaxInt, math.MaxInt, uint8(3))
	f.Add(5, 3, 2, 1, math.MaxInt, 1, 1, uint8(1))
	const root = 1 << (bits.UintSize / 2)
	f.Add(5, root, root, 1, 0, 0, 0, uint8(3))
	f.Add(0, 0, math.MaxInt/4, math.MaxInt/4, 1, 1, 1, uint8(3))
	f.Add(9, 5, 5, 5, 0, 1, 1, uint8(3))
	f.Fuzz(func(t *testing.T, length, d0, d1, d2, s0, s1, s2 int, dims uint8) {
		length = max(0, min(length, 1<<12))
		k := int(dims % 4)
		shape, strides := []int{d0, d1, d2}[:k], []int{s0, s1, s2}[:k]
		n, end, valid := big.NewInt(1), big.NewInt(1), true
		nonzero, empty := big.NewInt(1), false
		for i, d := range shape {
			valid = valid && d >= 0 && strides[i] >= 0
			n.Mul(n, big.NewInt(int64(d)))
			if empty = empty || d == 0; d != 0 {
				nonzero.Mul(nonzero, big.NewInt(int64(d)))
			}
			far := big.NewInt(int64(d - 1))
			end.Add(end, far.Mul(far, big.NewInt(int64(strides[i]))))
		}
		if empty {
			end.SetInt64(0)
		}
		nonzero.Mul(nonzero, big.NewInt(8))
		want := valid && nonzero.IsInt64() && end.Cmp(big.NewInt(int64(length))) <= 0
		x, err := Strided(make([]uint64, length), shape, strides)
		if want != (err == nil) {
			t.Fatalf("%d elements, shape %v, strides %v: %v, want it taken: %v", length, shape, strides, err, want)
		}
		if err != nil {
			if !errors.Is(err, cohort.ErrCount) && !errors.Is(err, cohort.ErrBuffer) {
				t.Fatal(err)
			}
			return
		}
		if big.NewInt(int64(x.Len())).Cmp(n) != 0 || big.NewInt(int64(len(x.Raw()))).Cmp(end) != 0 {
			t.Fatalf("shape %v, strides %v: %d elements in %d, want %v in %v", shape, strides, x.Len(), len(x.Raw()), n, end)
		}
		if x.Len() == 0 {
			return
		}
		last := make([]int, k)
		for i := range last {
			last[i] = shape[i] - 1
		}
		if err := x.SetElem(1, last...); err != nil || x.Raw()[len(x.Raw())-1] != 1 {
			t.Fatalf("shape %v, strides %v: the last element is not the slice's last: %v", shape, strides, err)
		}
	})
}
